package controllers

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/flotilla-kube/flotilla/pkg/election/fence"
)

// TestRefusedErrorsHoldNobodyUp reports as many errors as a deep queue has items. The fence's
// errors must be reported at once, and others at upstream's pace.
func TestRefusedErrorsHoldNobodyUp(t *testing.T) {
	const items = 500
	refused := &fence.RefusedError{Shard: "cluster/garbage"}
	for name, test := range map[string]struct {
		err  error
		held bool
	}{
		"wrapped": {fmt.Errorf("error syncing item: %w", refused), false},
		"quoted":  {fmt.Errorf("error syncing item: %v", refused), false},
		"another": {errors.New("error syncing item"), true},
	} {
		synctest.Test(t, func(t *testing.T) {
			report := func() {
				for _, handle := range utilruntime.ErrorHandlers[1:] {
					handle(t.Context(), test.err, "Failed")
				}
			}
			report() // Upstream waits after the last one, which was outside of this bubble's time.
			began := time.Now()
			for range items {
				report()
			}
			// Upstream lets two errors a millisecond pass.
			if took := time.Since(began); took > 0 != test.held || test.held && took < items/2*time.Millisecond || took > time.Second {
				t.Errorf("%s: %d errors took %v, want them held up: %t", name, items, took, test.held)
			}
		})
	}
}

package cli

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/internal/status"
)

// silent is an API server that never answers.
type silent struct {
	coordinationclient.LeaseInterface
}

func (silent) List(ctx context.Context, _ metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestWaitIsBounded waits for something on an API server that does not answer.
func TestWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connection{target: Target{Timeout: 10 * time.Second}, clock: clock.RealClock{}, leases: silent{}} // virtual
		began, missing := time.Now(), func(*status.Reading) error { return nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err := c.wait(ctx, waiting{what: "an answer", missing: missing}, 25*time.Second, func(string) {})
		if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "waited 25s for an answer") || took > 26*time.Second {
			t.Errorf("after %v: %v, want an error after 25 s", took, err)
		}
	})
}

// ready is an API server that answers at once, unless the request is over.
type ready struct {
	coordinationclient.LeaseInterface
}

func (ready) List(ctx context.Context, _ metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	return &coordinationv1.LeaseList{}, ctx.Err()
}

// TestWaitSaysWhatIsMissing has the time end at the moment of a look, so that nothing is left for
// that one. The error must be about what is missing, and not about that look.
func TestWaitSaysWhatIsMissing(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			c := connection{target: Target{Timeout: 10 * time.Second}, clock: clock.RealClock{}, leases: ready{}} // virtual
			missing := func(*status.Reading) error { return errors.New("two shards") }
			err := c.wait(t.Context(), waiting{what: "all of it", missing: missing}, 4*waitInterval, func(string) {})
			if err == nil || err.Error() != "waited 2s for all of it: two shards" {
				t.Error(err)
			}
		})
	}
}

// TestApplyWaitsForAnEarlierOne applies a plan that is there already.
func TestApplyWaitsForAnEarlierOne(t *testing.T) {
	plan := testPlan(t)
	c := newCluster(newLeases(t, plan))
	out, _, err := c.run(t, document(t, plan), "plan", "apply", "-f", "-", "--wait")
	if err != nil || !strings.Contains(out, "Nothing would change") || !strings.Contains(out, "Every shard of it runs") || c.writes() > 0 {
		t.Errorf("%v, %d writes\n%s", err, c.writes(), out)
	}
}

package catalogue

import (
	"reflect"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/flotilla-kube/flotilla/pkg/controllers/slim"
)

// TestSlimIsAskedFor: a controller of a group that reads Pods has slim copies, unless it is known to
// read more. A new one upstream fails here until somebody has looked what it reads of them, and has
// named its packages in pkg/controllers/slim.
func TestSlimIsAskedFor(t *testing.T) {
	readsMore := []string{names.SELinuxWarningController}
	w := newWorld(t)
	slimmed := 0
	for _, row := range All() {
		has := slices.Contains(row.Slim, slim.Pods)
		if has && (len(row.Parts) > 0 || len(row.Needs) > 0 || row.Scope != ScopeCluster) || row.UpdatesSlim && !has {
			t.Errorf("%s: slim copies are for controllers of groups, without Parts and Needs", row.Name)
		}
		if row.Scope != ScopeCluster || row.BuildAfterClaim {
			continue
		}
		c := w.context(t)
		recorder := &coreRecorder{SharedInformerFactory: c.InformerFactory, asked: map[reflect.Type]bool{}}
		c.InformerFactory = recorder
		if _, err := w.build(t, c, row.Name); err != nil {
			t.Fatal(err)
		}
		asks := recorder.asked[reflect.TypeFor[*v1.Pod]()]
		if want := asks && !slices.Contains(readsMore, row.Name); has != want {
			t.Errorf("%s: asks for Pods: %t, has slim copies: %t. See what it reads, and say so in the row", row.Name, asks, has)
		}
		if has {
			slimmed++
		}
	}
	if slimmed != 5 {
		t.Errorf("%d controllers have slim copies, want 5", slimmed)
	}
}

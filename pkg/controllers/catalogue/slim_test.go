package catalogue

import (
	"reflect"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/flotilla-kube/flotilla/pkg/controllers/slim"
)

// TestSlimIsAskedFor requires slim copies for each controller of a group that reads Pods, unless it
// is known to read more, and for each controller of ranges that reads Nodes. A new controller
// upstream fails here until somebody has checked what it reads of them, and has named its packages
// in pkg/controllers/slim.
func TestSlimIsAskedFor(t *testing.T) {
	kinds := map[Scope]struct {
		resource  schema.GroupVersionResource
		typ       reflect.Type
		readsMore []string
		want      int
	}{
		ScopeCluster:    {slim.Pods, reflect.TypeFor[*v1.Pod](), []string{names.SELinuxWarningController}, 5},
		ScopeNamespaced: {slim.Nodes, reflect.TypeFor[*v1.Node](), nil, 3},
	}
	w := newFixture(t)
	slimmed := map[Scope]int{}
	for _, row := range All() {
		kind := kinds[row.Scope]
		has := slices.Contains(row.Slim, kind.resource)
		if has != (len(row.Slim) > 0) || len(row.Slim) > 1 {
			t.Errorf("%s: of %v there are slim copies, and nothing else, for controllers of scope %s", row.Name, kind.resource, row.Scope)
		}
		if has && (len(row.FieldSelectors) > 0 || slices.Contains(row.Needs, NeedOneCache)) || row.UpdatesSlim && row.Scope != ScopeCluster {
			t.Errorf("%s: slim copies are for controllers without FieldSelectors that do not need one cache; Nodes are not updated by them", row.Name)
		}
		if row.BuildAfterClaim || slices.Contains(row.Needs, NeedRootClient) {
			continue
		}
		c := w.context(t)
		recorder := &coreRecorder{SharedInformerFactory: c.InformerFactory, asked: map[reflect.Type]bool{}}
		c.InformerFactory = recorder
		if _, err := w.build(t, c, row.Name); err != nil {
			t.Fatal(err)
		}
		asks := recorder.asked[kind.typ]
		if want := asks && !slices.Contains(kind.readsMore, row.Name); has != want {
			t.Errorf("%s: asks for %s: %t, has slim copies: %t. See what it reads, and say so in the row", row.Name, kind.resource.Resource, asks, has)
		}
		if has {
			slimmed[row.Scope]++
		}
	}
	for scope, kind := range kinds {
		if slimmed[scope] != kind.want {
			t.Errorf("%d controllers of scope %s have slim copies, want %d", slimmed[scope], scope, kind.want)
		}
	}
}

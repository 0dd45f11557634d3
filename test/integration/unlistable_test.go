package integration

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/flotilla-kube/flotilla/pkg/controllers"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// TestKindThatCannotBeListed has a kind whose conversion webhook does not answer, as when its pods
// are down. A range is prepared and counts as running all the same, so that a member can become
// ready, and take and hand over ranges. The controllers that read the kind catch up once it can be
// listed.
func TestKindThatCannotBeListed(t *testing.T) {
	rafts := schema.GroupVersionResource{Group: customGroup, Version: "v1", Resource: "rafts"}
	repair := harness.UnreadableKind(t, plane, rafts, "Raft")
	for _, warm := range []bool{true, false} {
		t.Run(fmt.Sprintf("prepared %t", warm), func(t *testing.T) {
			c, _ := newConfig(t)
			process, err := controllers.NewProcess(c, controllers.NewEndpoints())
			if err != nil {
				t.Fatal(err)
			}
			isRunning := make(chan struct{})
			all := specs(t, 2)
			spec := all[slices.IndexFunc(all, func(s controllers.Spec) bool { return s.ID.Ring == catalogue.NamespacesRing })]
			spec.Controllers = []string{names.ResourceQuotaController, names.GarbageCollectorController, names.DeploymentController}
			spec.Running = func() { close(isRunning) }
			r := startAs(t, process, spec, warm)
			waitFor(t, "the range to run", func() bool {
				select {
				case <-isRunning:
					return true
				default:
					return false
				}
			})
			if r.Informers().HasSynced() {
				t.Error("all caches are full, so nothing was tested")
			}
			if failing := process.Pool().Failing(); !slices.Equal(failing, []schema.GroupResource{rafts.GroupResource()}) {
				t.Errorf("failing resources are %v, want %s", failing, rafts.GroupResource())
			}
			if !warm {
				repair()
				waitFor(t, "all caches", r.Informers().HasSynced)
				waitFor(t, "no resource to fail", func() bool { return len(process.Pool().Failing()) == 0 })
			}
		})
	}
}

package informer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
)

// warmed is a factory with two full caches, one of the range and one shared, each with a handler
// that blocks.
type warmed struct {
	*Factory
	t       *testing.T
	blocked chan struct{}
	remove  []func() error
}

func newWarmed(t *testing.T) *warmed {
	f, _ := halves(t, newTestPool(t, &apiServer{}, clock.RealClock{}, 0))
	w := &warmed{Factory: f, t: t, blocked: make(chan struct{})}
	maps, nodeResource := newFakeResource(t), newFakeResource(t)
	for i := range 50 { // some of them in the range
		maps.Add(informertest.ConfigMap(fmt.Sprintf("team-%d-prod", i*i), "one"))
	}
	nodeResource.Add(newNode("one"))
	f.reading(configMaps, maps, &v1.ConfigMap{})
	f.reading(nodes, nodeResource, &v1.Node{})
	for _, e := range f.informers {
		handle, err := e.given.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-w.blocked }})
		if err != nil {
			t.Fatal(err)
		}
		w.remove = append(w.remove, func() error { return e.given.RemoveEventHandler(handle) })
	}
	if err := f.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

// check checks that all informers have synced, or that none has.
func (w *warmed) check(when string, synced bool) {
	w.t.Helper()
	synctest.Wait()
	for key, e := range w.informers {
		if e.given.HasSynced() != synced || e.given.GetController().HasSynced() != synced || w.HasSynced() != synced {
			w.t.Errorf("%s: the informer of %s, its controller and the factory have synced: %t, %t, %t, want %t", when, key.resource.Resource,
				e.given.HasSynced(), e.given.GetController().HasSynced(), w.HasSynced(), synced)
		}
	}
}

// TestInformersSyncOnceHandlersHaveBeenTold fills caches before the start. Controllers must not
// find them synced before their handlers have received all objects.
func TestInformersSyncOnceHandlersHaveBeenTold(t *testing.T) {
	t.Run("when they return", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWarmed(t)
			w.StartWithContext(t.Context())
			w.check("while handlers are being told", false)
			close(w.blocked)
			w.check("when they have been", true)
		})
	})
	t.Run("when they are removed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWarmed(t)
			for _, remove := range w.remove {
				if err := remove(); err != nil {
					t.Fatal(err)
				}
			}
			w.StartWithContext(t.Context())
			w.check("without handlers", true)
			close(w.blocked)
		})
	})
	t.Run("not for ever", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWarmed(t)
			w.StartWithContext(t.Context())
			time.Sleep(toldPatience - time.Second) // virtual
			w.check("shortly before", false)
			time.Sleep(2 * time.Second)
			w.check("later", true)
			close(w.blocked)
		})
	})
}

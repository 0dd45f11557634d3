package owners

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// turn is an informer whose handlers wait for their turn. All methods may be called concurrently.
type turn struct {
	cache.SharedIndexInformer
	resource schema.GroupVersionResource
	withheld *withheld
	// told is closed when the handlers have received what there is, and the graph contains it.
	told chan struct{}

	mu sync.Mutex
	// came says that the turn has come, and waiting are the handlers that were added before.
	came    bool
	waiting []waiting
}

// waiting is a handler to be added.
type waiting struct {
	handler cache.ResourceEventHandler
	options cache.HandlerOptions
}

// AddEventHandler implements cache.SharedInformer.
func (t *turn) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return t.AddEventHandlerWithOptions(h, cache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (t *turn) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, resync time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return t.AddEventHandlerWithOptions(h, cache.HandlerOptions{ResyncPeriod: &resync})
}

// AddEventHandlerWithOptions implements cache.SharedInformer. The registration of a handler that
// waits for its turn reports whether it has synced, but cannot be removed; it goes with the
// informer.
func (t *turn) AddEventHandlerWithOptions(h cache.ResourceEventHandler, o cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h = withholding{h, t.withheld}
	if t.came {
		return t.SharedIndexInformer.AddEventHandlerWithOptions(h, o)
	}
	t.waiting = append(t.waiting, waiting{h, o})
	return t, nil
}

// tell adds the handlers and returns true when they have received what there is; false when ctx
// ended first.
func (t *turn) tell(ctx context.Context) bool {
	checkers, err := t.come()
	if err != nil {
		klog.FromContext(ctx).Info("A shard's informer has ended before its handlers were told of anything", "resource", t.resource, "reason", err)
		return false
	}
	return cache.WaitFor(ctx, "", checkers...)
}

// come adds the handlers, and returns checkers that are done when they have received what there is.
func (t *turn) come() ([]cache.DoneChecker, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.came = true
	checkers := []cache.DoneChecker{t.SharedIndexInformer.HasSyncedChecker()}
	for _, w := range t.waiting {
		handle, err := t.SharedIndexInformer.AddEventHandlerWithOptions(w.handler, w.options)
		if err != nil {
			return nil, err
		}
		checkers = append(checkers, handle.HasSyncedChecker())
	}
	t.waiting = nil
	return checkers, nil
}

// each calls f for each object in the cache.
func (t *turn) each(f func(obj metav1.Object)) {
	for _, obj := range t.GetStore().List() {
		if accessor, err := meta.Accessor(obj); err == nil {
			f(accessor)
		}
	}
}

// HasSynced implements cache.SharedInformer: the handlers have received what there is, too.
func (t *turn) HasSynced() bool { return cache.IsDone(t.HasSyncedChecker()) }

// HasSyncedChecker implements cache.SharedInformer.
func (t *turn) HasSyncedChecker() cache.DoneChecker { return toldOf{t} }

// GetController implements cache.SharedInformer.
func (t *turn) GetController() cache.Controller {
	return controller{t.SharedIndexInformer.GetController(), t}
}

// controller is an informer's controller that has synced when the handlers have received what there
// is, too.
type controller struct {
	cache.Controller
	t *turn
}

// HasSynced implements cache.Controller.
func (c controller) HasSynced() bool { return c.t.HasSynced() }

// HasSyncedChecker implements cache.Controller.
func (c controller) HasSyncedChecker() cache.DoneChecker { return c.t.HasSyncedChecker() }

// toldOf is a turn as a cache.DoneChecker.
type toldOf struct{ t *turn }

func (d toldOf) Name() string          { return "Handlers of " + d.t.resource.String() }
func (d toldOf) Done() <-chan struct{} { return d.t.told }

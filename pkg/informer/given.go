package informer

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/store"
)

// toldPatience is how long an informer waits for handlers that do not return before it reports that
// it has synced anyway.
const toldPatience = time.Minute

// given is an informer as a factory gives it to controllers. It has synced once its cache has, and
// the handlers that were added before its start have processed the objects of the first list.
//
// Controllers that act on what their handlers have gathered wait only until their informers have
// synced. Stock's do so while their handlers receive the first list. A cache that is full before
// the start would have synced at once, with handlers that have received nothing yet.
type given struct {
	cache.SharedIndexInformer
	// begin starts the informer as its factory does; see [Factory.begin].
	begin func(context.Context)

	mu sync.Mutex
	// started says that later handlers are not waited for.
	started  bool
	handlers []cache.ResourceEventHandlerRegistration
	told     chan struct{}
}

func (f *Factory) newGiven(e *entry) *given {
	return &given{
		SharedIndexInformer: e.SharedIndexInformer, told: make(chan struct{}),
		begin: func(ctx context.Context) { f.begin(ctx, e) },
	}
}

// Run implements cache.SharedInformer.
func (g *given) Run(stopCh <-chan struct{}) { g.RunWithContext(wait.ContextForChannel(stopCh)) }

// RunWithContext implements cache.SharedInformer, for controllers that start the informers which
// they ask for while they run. It returns when ctx or the factory has ended, at once if the
// informer had been started; a delivery to a handler may still be in progress then, until Shutdown
// returns.
func (g *given) RunWithContext(ctx context.Context) { g.begin(ctx) }

// start returns a function that waits for the handlers, for the caller to run; nil for all but the
// first call.
func (g *given) start() func(context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.started {
		return nil
	}
	g.started = true
	waiting := make([]cache.DoneChecker, 0, len(g.handlers))
	for _, handle := range g.handlers {
		waiting = append(waiting, handle.HasSyncedChecker())
	}
	g.handlers = nil
	return func(ctx context.Context) { g.await(ctx, waiting) }
}

func (g *given) hasStarted() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.started
}

// await makes the informer sync, unless ctx ends first.
func (g *given) await(ctx context.Context, handlers []cache.DoneChecker) {
	if !cache.WaitFor(ctx, "", g.SharedIndexInformer.HasSyncedChecker()) {
		return
	}
	patience, cancel := context.WithTimeout(ctx, toldPatience)
	defer cancel()
	if !cache.WaitFor(patience, "", handlers...) {
		if ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).Error(nil, "A controller's handlers have not returned from what they were told at the start, going on without them",
			"handlers", unfinished(handlers), "after", toldPatience)
	}
	close(g.told)
}

func unfinished(handlers []cache.DoneChecker) []string {
	var names []string
	for _, h := range handlers {
		if !cache.IsDone(h) {
			names = append(names, h.Name())
		}
	}
	return names
}

// AddEventHandler implements cache.SharedInformer.
func (g *given) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return g.AddEventHandlerWithOptions(h, cache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (g *given) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, resync time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return g.AddEventHandlerWithOptions(h, cache.HandlerOptions{ResyncPeriod: &resync})
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (g *given) AddEventHandlerWithOptions(h cache.ResourceEventHandler, o cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	handle, err := g.SharedIndexInformer.AddEventHandlerWithOptions(h, o)
	if err == nil && !g.started {
		g.handlers = append(g.handlers, handle)
	}
	return handle, err
}

// RemoveEventHandler implements cache.SharedInformer.
func (g *given) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.handlers = slices.DeleteFunc(g.handlers, func(h cache.ResourceEventHandlerRegistration) bool { return h == handle })
	return g.SharedIndexInformer.RemoveEventHandler(handle)
}

// HasSynced implements cache.SharedInformer.
func (g *given) HasSynced() bool { return cache.IsDone(g.HasSyncedChecker()) }

// HasSyncedChecker implements cache.SharedInformer.
func (g *given) HasSyncedChecker() cache.DoneChecker { return givenDone{g} }

// GetController implements cache.SharedInformer.
func (g *given) GetController() cache.Controller { return store.ControllerOf(g) }

// givenDone is a given informer as a cache.DoneChecker.
type givenDone struct{ g *given }

func (d givenDone) Name() string          { return d.g.SharedIndexInformer.HasSyncedChecker().Name() }
func (d givenDone) Done() <-chan struct{} { return d.g.told }

// Filled returns a checker that is done once an informer's cache is full, even if its handlers have
// not received what there is. The informer must be a factory's.
func Filled(i cache.SharedIndexInformer) cache.DoneChecker {
	if g, ok := i.(*given); ok {
		i = g.SharedIndexInformer
	}
	return i.HasSyncedChecker()
}

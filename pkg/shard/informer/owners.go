package informer

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// ownersPatience is how long those that have synced wait for the others, which may be owners of theirs. It is well below
// the 30 s after which the garbage collector begins without those that have not synced (garbagecollector.go: Run).
const ownersPatience = 10 * time.Second

// OwnersFirst is an ObjectOrMetadata for the garbage collector. It tells handlers of what there is at the start kind by kind,
// owners before what they own.
//
// The garbage collector asks the API server for each owner that it first hears of from a dependent, and for that owner's own
// owners, under its client's limit (graph_builder.go: addDependentToOwners); what is to be collected waits behind that. With stock,
// where all kinds are listed at the same time, the long list of pods comes last. Here pods are often cached already, and
// ReplicaSets are only then listed by their metadata: each of them would be asked for.
//
// The handlers of informers that are asked for before a Start belong together. They are told once all of these have synced, or
// after 10 s of those that have; the rest follow as they sync. Who owns whom is read from the objects, once. Where kinds own
// each other in a circle, one of them is told first all the same. What comes later has no order.
type OwnersFirst struct {
	ObjectOrMetadata

	mu sync.Mutex
	// asked are those whose handlers nobody has been set to tell.
	asked []*turn
}

// OwnersFirst returns o for the garbage collector.
func (o ObjectOrMetadata) OwnersFirst() *OwnersFirst { return &OwnersFirst{ObjectOrMetadata: o} }

// ForResource returns an informer for any resource, as ObjectOrMetadata does. Its handlers are told nothing before the next
// Start. Its controller has synced once they have been told what there is.
func (o *OwnersFirst) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	i, err := o.ObjectOrMetadata.ForResource(gvr)
	if err != nil {
		return nil, err
	}
	t := &turn{SharedIndexInformer: i.Informer(), resource: gvr, told: make(chan struct{})}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, t)
	return &generic{informer: t, lister: func(cache.Indexer) cache.GenericLister { return i.Lister() }}, nil
}

// Start starts the factory's informers that do not run yet, and has the handlers told of those that were asked for.
func (o *OwnersFirst) Start(stopCh <-chan struct{}) {
	o.ObjectOrMetadata.Start(stopCh)
	o.mu.Lock()
	defer o.mu.Unlock()
	if asked := o.asked; len(asked) > 0 && o.factory.alongside(stopCh, func(ctx context.Context) { tell(ctx, asked) }) {
		o.asked = nil
	}
}

// alongside calls run, which ends with stopCh or the factory. It returns false when the factory has ended.
func (f *Factory) alongside(stopCh <-chan struct{}, run func(ctx context.Context)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shutdown {
		return false
	}
	f.goLocked(wait.ContextForChannel(stopCh), run)
	return true
}

// tell gives handlers their turns.
func tell(ctx context.Context, turns []*turn) {
	patience, cancel := context.WithTimeout(ctx, ownersPatience)
	defer cancel()
	checkers := make([]cache.DoneChecker, 0, len(turns))
	for _, t := range turns {
		checkers = append(checkers, t.SharedIndexInformer.HasSyncedChecker())
	}
	synced := cache.WaitFor(patience, "", checkers...)
	if ctx.Err() != nil {
		return
	}
	if !synced {
		missing := slices.DeleteFunc(slices.Clone(turns), func(t *turn) bool { return t.SharedIndexInformer.HasSynced() })
		klog.FromContext(ctx).Info("The garbage collector is told of what there is without some kinds, which have not been read yet", "resources", resourceNames(missing))
	}
	var late []*turn
	for _, t := range ownersFirst(turns) {
		if !t.SharedIndexInformer.HasSynced() {
			late = append(late, t)
		} else if !t.tell(ctx) {
			return
		}
	}
	var wg sync.WaitGroup
	for _, t := range late {
		wg.Go(func() { t.tell(ctx) })
	}
	wg.Wait()
}

func resourceNames(turns []*turn) []string {
	resources := make([]string, 0, len(turns))
	for _, t := range turns {
		resources = append(resources, t.resource.GroupResource().String())
	}
	slices.Sort(resources)
	return resources
}

// ownersFirst sorts kinds so that each comes after those whose objects own some of its.
func ownersFirst(turns []*turn) []*turn {
	owned := map[types.UID][]*turn{} // the kinds that have dependents of an owner
	for _, t := range turns {
		t.each(func(obj metav1.Object) {
			for _, ref := range obj.GetOwnerReferences() {
				if !slices.Contains(owned[ref.UID], t) {
					owned[ref.UID] = append(owned[ref.UID], t)
				}
			}
		})
	}
	owners := map[*turn]map[*turn]struct{}{}
	for _, t := range turns {
		owners[t] = map[*turn]struct{}{}
	}
	for _, t := range turns {
		t.each(func(obj metav1.Object) {
			for _, dependent := range owned[obj.GetUID()] {
				owners[dependent][t] = struct{}{}
			}
		})
	}
	sorted := make([]*turn, 0, len(turns))
	visited := map[*turn]bool{}
	var visit func(t *turn)
	visit = func(t *turn) {
		if visited[t] {
			return
		}
		visited[t] = true
		for _, other := range turns { // not the map, whose order differs each time
			if _, owner := owners[t][other]; owner {
				visit(other)
			}
		}
		sorted = append(sorted, t)
	}
	for _, t := range turns {
		visit(t)
	}
	return sorted
}

// turn is an informer whose handlers wait for their turn. All methods may be called concurrently.
type turn struct {
	cache.SharedIndexInformer
	resource schema.GroupVersionResource
	// told is closed when the handlers have been told what there is.
	told chan struct{}

	mu sync.Mutex
	// came says that the turn has come, and waiting are those that have been added before.
	came    bool
	waiting []waiting
}

// waiting is a handler that is to be added.
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

// AddEventHandlerWithOptions implements cache.SharedInformer. The registration of a handler that waits for its turn can be asked whether it
// has synced, and cannot be removed; it goes with the factory.
func (t *turn) AddEventHandlerWithOptions(h cache.ResourceEventHandler, o cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.came {
		return t.SharedIndexInformer.AddEventHandlerWithOptions(h, o)
	}
	t.waiting = append(t.waiting, waiting{h, o})
	return state{t}, nil
}

// tell adds the handlers and returns true when they have been told what there is; false when ctx has ended before.
func (t *turn) tell(ctx context.Context) bool {
	checkers, err := t.come()
	if err != nil {
		klog.FromContext(ctx).Info("A shard's informer has ended before its handlers were told of anything", "resource", t.resource, "reason", err)
		return false
	}
	if !cache.WaitFor(ctx, "", checkers...) {
		return false
	}
	close(t.told)
	return true
}

// come adds the handlers, and returns what tells that they have been told what there is.
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

// HasSynced implements cache.SharedInformer: the handlers have been told, too.
func (t *turn) HasSynced() bool { return cache.IsDone(t.HasSyncedChecker()) }

// HasSyncedChecker implements cache.SharedInformer.
func (t *turn) HasSyncedChecker() cache.DoneChecker { return toldOf{t} }

// GetController implements cache.SharedInformer.
func (t *turn) GetController() cache.Controller { return state{t} }

// toldOf is a turn as a cache.DoneChecker.
type toldOf struct{ t *turn }

func (d toldOf) Name() string          { return "Handlers of " + d.t.resource.String() }
func (d toldOf) Done() <-chan struct{} { return d.t.told }

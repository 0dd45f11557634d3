package informer

import (
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// ownersPatience is how long synced kinds wait for the others, which may own some of their
	// objects. It is well below the 30 s after which the garbage collector begins without kinds
	// that have not synced (garbagecollector.go: Run).
	ownersPatience = 10 * time.Second
	// dependentsPatience is how long deletions that depend on dependents wait for kinds that cannot
	// be read, and may have some: as long as the garbage collector waits for them in stock.
	dependentsPatience = 30 * time.Second
	// settlePatience is how long a graph may take to grow before a log line says so.
	settlePatience = time.Minute
)

// OwnersFirst is an ObjectOrMetadata for the garbage collector. At the start its handlers receive
// what there is kind by kind, owners before what they own. It makes sure that nothing is decided by
// a graph that lacks dependents.
//
// The garbage collector asks the API server for each owner that it first learns of from a
// dependent, and for that owner's own owners, under its client's limit (graph_builder.go:
// addDependentToOwners); collection waits behind that. In stock, where all kinds are listed at the
// same time, the long list of pods comes last. Here pods are often cached already, while
// ReplicaSets are only then listed by their metadata: the collector would ask for each of them.
//
// The handlers of informers that are asked for before a Start belong together. They receive objects
// once all of these informers have synced, or after 10 s from those that have; the rest follow as
// they sync. Who owns whom is read from the objects, once. Where kinds own each other in a circle,
// one of them comes first anyway. Later events have no order.
//
// The garbage collector's handlers only put events into a queue, from which one worker builds the
// graph. So a controller has synced only when the worker has processed what its handlers received;
// then garbage is collected. Deletions that depend on dependents are withheld from the handlers
// longer where a kind cannot be read, for 30 s at most, and whenever kinds are added later. See
// withheld.
type OwnersFirst struct {
	ObjectOrMetadata

	settle   func(context.Context) error
	withheld withheld

	mu sync.Mutex
	// asked are the turns that have no goroutine yet to give them.
	asked []*turn
}

// OwnersFirst returns o for the garbage collector. settle returns once the graph contains
// everything that the handlers had received when it was called, or returns the cause of its
// context's end.
func (o ObjectOrMetadata) OwnersFirst(settle func(context.Context) error) *OwnersFirst {
	return &OwnersFirst{ObjectOrMetadata: o, settle: settle}
}

// ForResource returns an informer for any resource, as ObjectOrMetadata does. Its handlers receive
// nothing before the next Start. Its controller has synced once they have received what there is,
// and the graph contains it.
func (o *OwnersFirst) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	i, err := o.ObjectOrMetadata.ForResource(gvr)
	if err != nil {
		return nil, err
	}
	t := &turn{SharedIndexInformer: i.Informer(), resource: gvr, withheld: &o.withheld, told: make(chan struct{})}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, t)
	return &generic{informer: t, lister: func(cache.Indexer) cache.GenericLister { return i.Lister() }}, nil
}

// Start starts the factory's informers that do not run yet, and begins to send events to the
// handlers that were added since the last Start.
func (o *OwnersFirst) Start(stopCh <-chan struct{}) {
	o.ObjectOrMetadata.Start(stopCh)
	o.mu.Lock()
	defer o.mu.Unlock()
	asked := o.asked
	if len(asked) == 0 {
		return
	}
	release := o.withheld.hold()
	if o.factory.alongside(stopCh, func(ctx context.Context) { o.tell(ctx, asked, release) }) {
		o.asked = nil
	}
}

// alongside calls run, which ends with stopCh or the factory. It returns false when the factory has
// ended.
func (f *Factory) alongside(stopCh <-chan struct{}, run func(ctx context.Context)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shutdown {
		return false
	}
	f.goLocked(wait.ContextForChannel(stopCh), run)
	return true
}

// tell gives handlers their turns. release ends the withholding for them; it is not called if ctx
// ends first.
func (o *OwnersFirst) tell(ctx context.Context, turns []*turn, release func()) {
	patience, cancel := context.WithTimeout(ctx, dependentsPatience)
	defer cancel()
	if !awaitOwners(ctx, turns) {
		return
	}
	var synced, late []*turn
	for _, t := range ownersFirst(turns) {
		if !t.SharedIndexInformer.HasSynced() {
			late = append(late, t)
			continue
		}
		if !t.tell(ctx) {
			return
		}
		synced = append(synced, t)
	}
	if !o.settled(ctx) {
		return
	}
	if len(late) == 0 {
		release()
		if !o.settled(ctx) {
			return
		}
	}
	for _, t := range synced {
		close(t.told)
	}
	o.tellLate(ctx, patience, late, release)
}

// tellLate gives handlers their turns as their informers sync. It calls release when all handlers
// have received what there is, or when patience ends.
func (o *OwnersFirst) tellLate(ctx, patience context.Context, late []*turn, release func()) {
	var telling sync.WaitGroup
	told := make([]cache.DoneChecker, 0, len(late))
	for _, t := range late {
		told = append(told, toldOf{t})
		telling.Go(func() { o.tellOne(ctx, t) })
	}
	if !cache.WaitFor(patience, "", told...) && ctx.Err() == nil {
		klog.FromContext(ctx).Info("The garbage collector goes on without the dependents in some kinds, which have not been read yet",
			"resources", unsynced(late))
	}
	if ctx.Err() == nil {
		release()
	}
	telling.Wait()
}

// tellOne gives the handlers of an informer their turn once it has synced.
func (o *OwnersFirst) tellOne(ctx context.Context, t *turn) {
	if !cache.WaitFor(ctx, "", t.SharedIndexInformer.HasSyncedChecker()) {
		return
	}
	release := o.withheld.hold()
	if !t.tell(ctx) || !o.settled(ctx) {
		return
	}
	release()
	close(t.told)
}

// settled returns true once the graph contains everything that the handlers have received; false
// when ctx ended first.
func (o *OwnersFirst) settled(ctx context.Context) bool {
	for began := time.Now(); ; {
		patience, cancel := context.WithTimeout(ctx, settlePatience)
		err := o.settle(patience)
		if err == nil {
			cancel()
			return true
		}
		<-patience.Done()
		cancel()
		if ctx.Err() != nil {
			return false
		}
		klog.FromContext(ctx).Error(err, "The garbage collector's graph lacks some of what there is, and nothing is collected before it is complete",
			"waited", time.Since(began))
	}
}

// awaitOwners returns true when all kinds have synced, or after ownersPatience; false when ctx
// ended first.
func awaitOwners(ctx context.Context, turns []*turn) bool {
	patience, cancel := context.WithTimeout(ctx, ownersPatience)
	defer cancel()
	checkers := make([]cache.DoneChecker, 0, len(turns))
	for _, t := range turns {
		checkers = append(checkers, t.SharedIndexInformer.HasSyncedChecker())
	}
	if !cache.WaitFor(patience, "", checkers...) && ctx.Err() == nil {
		klog.FromContext(ctx).Info("The garbage collector is told of what there is without some kinds, which have not been read yet",
			"resources", unsynced(turns))
	}
	return ctx.Err() == nil
}

// unsynced returns the names of the resources whose informers have not synced, sorted.
func unsynced(turns []*turn) []string {
	var resources []string
	for _, t := range turns {
		if !t.SharedIndexInformer.HasSynced() {
			resources = append(resources, t.resource.GroupResource().String())
		}
	}
	slices.Sort(resources)
	return resources
}

// ownersFirst sorts kinds so that each comes after those that own some of its objects.
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

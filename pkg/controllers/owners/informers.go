package owners

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
	"k8s.io/controller-manager/pkg/informerfactory"
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

// Informers are informers for the garbage collector. Make them with [First], and end them with
// Close. All methods may be called concurrently.
type Informers struct {
	all      informerfactory.InformerFactory
	settle   func(context.Context) error
	withheld withheld

	ctx     context.Context // Ends with Close.
	end     context.CancelFunc
	running sync.WaitGroup

	mu sync.Mutex
	// asked are the turns that have no goroutine yet to give them.
	asked []*turn
}

var _ informerfactory.InformerFactory = &Informers{}

// First returns all for the garbage collector, owners first. Handlers must not block. settle
// returns once the graph contains everything that they had received when it was called, or returns
// the cause of its context's end.
func First(all informerfactory.InformerFactory, settle func(context.Context) error) *Informers {
	ctx, end := context.WithCancel(context.Background())
	return &Informers{all: all, settle: settle, ctx: ctx, end: end}
}

// ForResource returns an informer for any resource, as all does. Its handlers receive nothing
// before the next Start. Its controller has synced once they have received what there is, and the
// graph contains it.
func (o *Informers) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	i, err := o.all.ForResource(gvr)
	if err != nil {
		return nil, err
	}
	t := &turn{SharedIndexInformer: i.Informer(), resource: gvr, withheld: &o.withheld, told: make(chan struct{})}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, t)
	return generic{t, i}, nil
}

// generic is a turn with the lister of its informer.
type generic struct {
	turn *turn
	informers.GenericInformer
}

// Informer implements informers.GenericInformer.
func (g generic) Informer() cache.SharedIndexInformer { return g.turn }

// Start starts the informers that do not run yet, and begins to send events to the handlers that
// were added since the last Start. Handlers that have not had their turn when stopCh is closed, or
// at Close, receive nothing.
func (o *Informers) Start(stopCh <-chan struct{}) {
	o.all.Start(stopCh)
	o.mu.Lock()
	defer o.mu.Unlock()
	asked := o.asked
	if len(asked) == 0 || o.ctx.Err() != nil {
		return
	}
	o.asked = nil
	release := o.withheld.hold()
	o.running.Go(func() {
		ctx, cancel := context.WithCancel(wait.ContextForChannel(stopCh))
		defer cancel()
		defer context.AfterFunc(o.ctx, cancel)()
		o.tell(ctx, asked, release)
	})
}

// Close ends what Start has begun, and returns when it has ended. It does not end the informers;
// call it before they end. It may be called more than once.
func (o *Informers) Close() {
	o.mu.Lock()
	o.end() // under the lock: Start adds nothing any more
	o.mu.Unlock()
	o.running.Wait()
}

// tell gives handlers their turns. release ends the withholding for them; it is not called if ctx
// ends first.
func (o *Informers) tell(ctx context.Context, turns []*turn, release func()) {
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
func (o *Informers) tellLate(ctx, patience context.Context, late []*turn, release func()) {
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
func (o *Informers) tellOne(ctx context.Context, t *turn) {
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
func (o *Informers) settled(ctx context.Context) bool {
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

package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// minimumResync is the shortest period after which a handler receives every object again, as in
// client-go.
const minimumResync = time.Second

// ErrStopped is why an informer that has ended takes no handlers or indexes.
var ErrStopped = errors.New("informer has stopped")

// ErrNoHandler is why an informer takes no handler of watch errors.
var ErrNoHandler = errors.New("watch error handlers are not supported by shard informers")

var errTransform = errors.New("transforms are not supported by shard informers, whose objects others may have too")

// Source fills an informer until ctx ends. It returns only after all of its goroutines have
// returned.
type Source func(ctx context.Context, into *Sink)

// Informer is a cache.SharedIndexInformer that keeps what its filter lets through. All methods may
// be called concurrently.
type Informer struct {
	example runtime.Object
	keep    func(obj any) bool
	picks   func() func(obj any) bool
	source  Source
	resync  time.Duration
	indexer cache.Indexer
	shed    func(obj any) any
	strict  bool
	copies  *Copies // nil if it is not of slim copies

	synced chan struct{}

	// mu makes one step of a change of the store, its notifications, and the joining of handlers.
	mu        sync.Mutex
	listeners map[*listener]struct{}
	transform cache.TransformFunc
	detector  cache.MutationDetector
	// lastRV is the version up to which the source has read. moved is closed when it has read on;
	// nil while nobody waits for that.
	lastRV  string
	moved   chan struct{}
	started bool
	stopped bool
	// held keeps handlers dormant until Resume, including those added meanwhile.
	held bool
	// followers are the sinks of informers that receive every change. isDeserted says that there
	// will be no more of them, and desertion is closed then.
	followers  map[*Sink]struct{}
	isDeserted bool
	desertion  chan struct{}
}

var _ cache.SharedIndexInformer = &Informer{}

// Config of a new informer.
type Config struct {
	// Example is an object of the kind, for names and type checks.
	Example runtime.Object
	// Source fills the informer.
	Source Source
	// Keep decides by the object (never a tombstone); nil keeps all.
	Keep func(obj any) bool
	// Picks is called before each list that fills the informer, or each page of one, and returns
	// the filter of what is gathered; Keep must then not depend on what is stored. Nil for Keep
	// itself.
	Picks func() func(obj any) bool
	// Resync is the resync period of handlers that do not ask for one; 0 for none.
	Resync time.Duration
	// Transform is applied to every object that is read, before it is stored; nil for none.
	Transform cache.TransformFunc
	// Shed reduces an object received from a followed informer to what this informer keeps when it
	// reads; nil keeps the whole object.
	Shed func(obj any) any
	// Strict says that it reduces such an object even while it follows.
	Strict bool
	// Copies make it an informer of slim copies; nil for another one. They belong to it.
	Copies *Copies
	// Held informers send no events to handlers before Resume.
	Held bool
}

// New returns an informer, which does not run yet.
func New(c Config) *Informer {
	return &Informer{
		held:      c.Held,
		example:   c.Example,
		keep:      c.Keep,
		picks:     c.Picks,
		source:    c.Source,
		resync:    c.Resync,
		transform: c.Transform,
		shed:      c.Shed,
		strict:    c.Strict,
		copies:    c.Copies,
		indexer: cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		detector:  cache.NewCacheMutationDetector(fmt.Sprintf("%T", c.Example)),
		synced:    make(chan struct{}),
		listeners: map[*listener]struct{}{},
		followers: map[*Sink]struct{}{},
		desertion: make(chan struct{}),
	}
}

// AddEventHandler implements cache.SharedInformer.
func (i *Informer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, cache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (i *Informer) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, resync time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, cache.HandlerOptions{ResyncPeriod: &resync})
}

// AddEventHandlerWithOptions implements cache.SharedInformer. Unlike in client-go, each handler has
// its own resync period: it is not rounded to those of others.
func (i *Informer) AddEventHandlerWithOptions(h cache.ResourceEventHandler, o cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddHandler(h, o, false)
}

// AddHandler adds a handler. A dormant one gets no events before it is woken, and none are kept for
// it: it then receives what the store holds, like a handler that comes late.
func (i *Informer) AddHandler(h cache.ResourceEventHandler, o cache.HandlerOptions, dormant bool) (cache.ResourceEventHandlerRegistration, error) {
	resync := ptr.Deref(o.ResyncPeriod, i.resync)
	if resync > 0 && resync < minimumResync {
		resync = minimumResync
	}
	l := newListener(fmt.Sprintf("%T handler %T", i.example, h), h, ptr.Deref(o.Logger, klog.Background()), resync)

	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped {
		return nil, fmt.Errorf("handler %T for %T was not added: %w", h, i.example, ErrStopped)
	}
	i.listeners[l] = struct{}{}
	if l.dormant = dormant || i.held; !l.dormant {
		i.joinLocked(l)
	}
	return l, nil
}

// joinLocked sends l what there is, if anything is known yet.
func (i *Informer) joinLocked(l *listener) {
	if !i.started {
		return
	}
	for _, obj := range i.indexer.List() {
		l.enqueue(notification{kind: added, new: obj, initial: true})
	}
	if cache.IsDone(done{i}) {
		l.upstreamSynced()
	}
	l.startResync(func() { i.resyncListener(l) })
}

// Wake lets a dormant handler take part.
func (i *Informer) Wake(handle cache.ResourceEventHandlerRegistration) {
	l, ok := handle.(*listener)
	if !ok {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, ours := i.listeners[l]; ours && l.dormant {
		l.dormant = false
		i.joinLocked(l)
	}
}

// Resume wakes all handlers of a held informer, and holds no later ones.
func (i *Informer) Resume() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.held {
		return
	}
	i.held = false
	for l := range i.listeners {
		l.dormant = false
		i.joinLocked(l)
	}
}

// resyncListener sends every object to l again.
func (i *Informer) resyncListener(l *listener) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped {
		return
	}
	for _, obj := range i.indexer.List() {
		l.enqueue(notification{kind: updated, old: obj, new: obj})
	}
}

// RemoveEventHandler implements cache.SharedInformer. It does not wait for a call of the handler
// that is in progress; cache.ShutDownEventHandler does.
func (i *Informer) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	l, ok := handle.(*listener)
	if !ok {
		return fmt.Errorf("not a registration of this informer: %T", handle)
	}
	i.mu.Lock()
	delete(i.listeners, l)
	i.mu.Unlock()
	l.close()
	return nil
}

// Run implements cache.SharedInformer.
func (i *Informer) Run(stopCh <-chan struct{}) {
	i.RunWithContext(wait.ContextForChannel(stopCh))
}

// RunWithContext fills the informer until ctx ends, and returns after all of its goroutines have
// ended, including deliveries to handlers. An informer runs once.
func (i *Informer) RunWithContext(ctx context.Context) {
	if !i.start() {
		klog.FromContext(ctx).Info("Informer was started twice, ignored", "type", fmt.Sprintf("%T", i.example))
		return
	}
	var wg wait.Group
	detectorCtx, stopDetector := context.WithCancel(context.WithoutCancel(ctx))
	wg.StartWithChannel(detectorCtx.Done(), i.detector.Run)
	i.source(ctx, &Sink{Informer: i})
	for _, l := range i.stop() {
		<-l.finished
	}
	stopDetector()
	wg.Wait()
}

func (i *Informer) start() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.started {
		return false
	}
	i.started = true
	for l := range i.listeners {
		if !l.dormant {
			l.startResync(func() { i.resyncListener(l) })
		}
	}
	return true
}

// stop closes all listeners and returns them.
func (i *Informer) stop() []*listener {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stopped = true
	i.desertLocked()
	closed := make([]*listener, 0, len(i.listeners))
	for l := range i.listeners {
		l.close()
		closed = append(closed, l)
	}
	i.listeners = nil
	return closed
}

// Empty gives up what the informer holds. It must have ended.
func (i *Informer) Empty() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.indexer.Replace(nil, ""); err != nil {
		utilruntime.HandleError(err)
	}
}

// GetStore implements cache.SharedInformer.
func (i *Informer) GetStore() cache.Store { return i.indexer }

// GetIndexer implements cache.SharedIndexInformer.
func (i *Informer) GetIndexer() cache.Indexer { return i.indexer }

// AddIndexers implements cache.SharedIndexInformer.
func (i *Informer) AddIndexers(indexers cache.Indexers) error {
	if i.IsStopped() {
		return fmt.Errorf("index for %T was not added: %w", i.example, ErrStopped)
	}
	return i.indexer.AddIndexers(indexers)
}

// HasSynced implements cache.SharedInformer.
func (i *Informer) HasSynced() bool { return cache.IsDone(done{i}) }

// HasSyncedChecker implements cache.SharedInformer.
func (i *Informer) HasSyncedChecker() cache.DoneChecker { return done{i} }

// LastSyncResourceVersion implements cache.SharedInformer.
func (i *Informer) LastSyncResourceVersion() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.lastRV
}

// Await returns once ok returns true. It calls ok at once, and whenever the source has read on. The
// error is ctx's.
func (i *Informer) Await(ctx context.Context, ok func() bool) error {
	for {
		moved := i.next() // before ok, so that no move between the two is missed
		if ok() {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// next returns a channel that is closed when the source has read on.
func (i *Informer) next() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.moved == nil {
		i.moved = make(chan struct{})
	}
	return i.moved
}

// Example returns an object of the informer's type.
func (i *Informer) Example() runtime.Object { return i.example }

// Handlers returns how many handlers the informer has.
func (i *Informer) Handlers() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.listeners)
}

// Deserted returns a channel that is closed when the informer takes no more followers.
func (i *Informer) Deserted() <-chan struct{} { return i.desertion }

// movedLocked wakes everyone who waits for the source to read on.
func (i *Informer) movedLocked() {
	if i.moved != nil {
		close(i.moved)
		i.moved = nil
	}
}

// IsStopped implements cache.SharedInformer.
func (i *Informer) IsStopped() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.stopped
}

// SetTransform implements cache.SharedInformer. It fails unless f is nil, which changes nothing: an
// informer may read together with others, or follow one, and then has their objects.
func (i *Informer) SetTransform(f cache.TransformFunc) error {
	if f == nil {
		return nil
	}
	return errTransform
}

// SetWatchErrorHandler implements cache.SharedInformer; it always fails.
func (i *Informer) SetWatchErrorHandler(cache.WatchErrorHandler) error { return ErrNoHandler }

// SetWatchErrorHandlerWithContext implements cache.SharedInformer; it always fails.
func (i *Informer) SetWatchErrorHandlerWithContext(cache.WatchErrorHandlerWithContext) error {
	return ErrNoHandler
}

// GetController implements cache.SharedInformer. The result reports the state of the informer and
// cannot run it.
func (i *Informer) GetController() cache.Controller { return ControllerOf(i) }

// done is the informer as a cache.DoneChecker.
type done struct{ i *Informer }

func (d done) Name() string          { return fmt.Sprintf("Shard informer %T", d.i.example) }
func (d done) Done() <-chan struct{} { return d.i.synced }

// ControllerOf returns a cache.Controller that reports the state of an informer, and cannot run it.
func ControllerOf(i cache.SharedIndexInformer) cache.Controller { return state{i} }

// state is an informer as a cache.Controller.
type state struct{ i cache.SharedIndexInformer }

func (s state) Run(<-chan struct{})                 {}
func (s state) RunWithContext(context.Context)      {}
func (s state) HasSynced() bool                     { return s.i.HasSynced() }
func (s state) HasSyncedChecker() cache.DoneChecker { return s.i.HasSyncedChecker() }
func (s state) LastSyncResourceVersion() string     { return s.i.LastSyncResourceVersion() }

// sameVersion reports whether a notification only repeats what is known.
func sameVersion(a, b any) bool {
	x, err := meta.Accessor(a)
	if err != nil {
		return false
	}
	y, err := meta.Accessor(b)
	return err == nil && x.GetResourceVersion() == y.GetResourceVersion()
}

// otherUID reports whether b is another object than a, created under the same name later.
func otherUID(a, b any) bool {
	x, err := meta.Accessor(a)
	if err != nil {
		return false
	}
	y, err := meta.Accessor(b)
	return err == nil && x.GetUID() != y.GetUID()
}

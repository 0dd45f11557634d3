package informer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/store"
)

var errNotOwned = errors.New("the informer is shared by all shards of the process")

// view is one shard's view of an informer that it shares. It implements cache.SharedIndexInformer;
// closing it removes the handlers that were added through it.
//
// The informer behind it may have run for long when a shard's controllers are built. Still, their
// handlers receive nothing before the view is started: constructors add handlers before they have
// finished what those need. No events are kept for them meanwhile; they then receive what there is.
//
// Nor does the view trust the informer because it has synced: that may be long ago, and its watch
// may have stalled. A view has synced, and its handlers receive objects, once the informer is known
// to have seen the factory's past.
type view struct {
	shared *shared
	past   moment
	// trusted is closed once the informer is known to have seen past.
	trusted chan struct{}

	mu      sync.Mutex
	handles map[cache.ResourceEventHandlerRegistration]struct{}
	// trusting says that a call of trust is in progress.
	trusting bool
	started  bool
	closed   bool
}

func newView(s *shared, past moment) *view {
	return &view{shared: s, past: past, trusted: make(chan struct{}), handles: map[cache.ResourceEventHandlerRegistration]struct{}{}}
}

// close removes the shard's handlers, waits for their last calls, and gives the informer back.
func (v *view) close() error {
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		return nil
	}
	v.closed = true
	handles := v.handles
	v.handles = nil
	v.mu.Unlock()
	var errs []error
	for handle := range handles {
		errs = append(errs, cache.ShutDownEventHandler(v.shared.Informer, handle))
	}
	v.shared.release()
	return errors.Join(errs...)
}

// AddEventHandler implements cache.SharedInformer.
func (v *view) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return v.AddEventHandlerWithOptions(h, cache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (v *view) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, resync time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return v.AddEventHandlerWithOptions(h, cache.HandlerOptions{ResyncPeriod: &resync})
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (v *view) AddEventHandlerWithOptions(h cache.ResourceEventHandler, o cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil, fmt.Errorf("handler %T was not added: %w", h, store.ErrStopped)
	}
	handle, err := v.shared.AddHandler(h, o, !v.started || !v.HasSynced())
	if err != nil {
		return nil, err
	}
	v.handles[handle] = struct{}{}
	return handle, nil
}

// RemoveEventHandler implements cache.SharedInformer.
func (v *view) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	v.mu.Lock()
	delete(v.handles, handle)
	v.mu.Unlock()
	return v.shared.RemoveEventHandler(handle)
}

// Run implements cache.SharedInformer; see RunWithContext.
func (v *view) Run(stopCh <-chan struct{}) { v.RunWithContext(wait.ContextForChannel(stopCh)) }

// RunWithContext makes sure that the informer runs, sends what there is to the shard's handlers,
// and returns when ctx ends.
func (v *view) RunWithContext(ctx context.Context) {
	v.start(ctx)
	v.trust(ctx)
	<-ctx.Done()
}

// warm makes the informer run without sending the shard's handlers anything.
func (v *view) warm(ctx context.Context) { v.shared.run(ctx) }

// start is the first part of RunWithContext.
func (v *view) start(ctx context.Context) {
	v.shared.run(ctx)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.started = true
	if v.HasSynced() {
		v.wakeLocked()
	}
}

// trust finds out whether the informer has seen the factory's past, unless another call is doing
// that. It returns when the informer has, or ctx ends.
func (v *view) trust(ctx context.Context) {
	v.mu.Lock()
	trusting := v.trusting
	v.trusting = true
	v.mu.Unlock()
	if trusting || !cache.WaitFor(ctx, "", v.shared.HasSyncedChecker()) || v.shared.awaitFresh(ctx, v.past) != nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.started {
		v.wakeLocked()
	}
	close(v.trusted)
}

func (v *view) wakeLocked() {
	for handle := range v.handles {
		v.shared.Wake(handle)
	}
}

// AddIndexers implements cache.SharedIndexInformer. It leaves existing indexes: another shard's
// instance of the same controller has added them.
func (v *view) AddIndexers(indexers cache.Indexers) error {
	if v.IsStopped() {
		return store.ErrStopped
	}
	return v.GetIndexer().AddIndexers(indexers)
}

// GetIndexer implements cache.SharedIndexInformer.
func (v *view) GetIndexer() cache.Indexer { return sharedIndexer{v.shared.GetIndexer()} }

// GetStore implements cache.SharedInformer.
func (v *view) GetStore() cache.Store { return v.GetIndexer() }

// GetController implements cache.SharedInformer.
func (v *view) GetController() cache.Controller { return store.ControllerOf(v) }

// HasSynced implements cache.SharedInformer.
func (v *view) HasSynced() bool { return cache.IsDone(trusted{v}) }

// HasSyncedChecker implements cache.SharedInformer.
func (v *view) HasSyncedChecker() cache.DoneChecker { return trusted{v} }

// LastSyncResourceVersion implements cache.SharedInformer.
func (v *view) LastSyncResourceVersion() string { return v.shared.LastSyncResourceVersion() }

// IsStopped implements cache.SharedInformer.
func (v *view) IsStopped() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.closed
}

// SetTransform implements cache.SharedInformer. It fails unless f is nil, which changes nothing.
func (v *view) SetTransform(f cache.TransformFunc) error {
	if f == nil {
		return nil
	}
	return errNotOwned
}

// SetWatchErrorHandler implements cache.SharedInformer; it always fails.
func (v *view) SetWatchErrorHandler(cache.WatchErrorHandler) error { return store.ErrNoHandler }

// SetWatchErrorHandlerWithContext implements cache.SharedInformer; it always fails.
func (v *view) SetWatchErrorHandlerWithContext(cache.WatchErrorHandlerWithContext) error {
	return store.ErrNoHandler
}

// trusted is a view as a cache.DoneChecker.
type trusted struct{ v *view }

func (t trusted) Name() string          { return "Shared " + t.v.shared.HasSyncedChecker().Name() }
func (t trusted) Done() <-chan struct{} { return t.v.trusted }

// indexersMu guards the indexes of shared indexers: it makes one step of checking which exist and
// adding the others.
var indexersMu sync.Mutex

// sharedIndexer lets several instances of a controller add the same indexes.
type sharedIndexer struct{ cache.Indexer }

// GetIndexers implements cache.Indexer. It returns a copy: client-go's is the map that AddIndexers
// writes to, perhaps for another shard while the caller reads.
func (s sharedIndexer) GetIndexers() cache.Indexers {
	indexersMu.Lock()
	defer indexersMu.Unlock()
	return maps.Clone(s.Indexer.GetIndexers())
}

// AddIndexers implements cache.Indexer.
func (s sharedIndexer) AddIndexers(indexers cache.Indexers) error {
	indexersMu.Lock()
	defer indexersMu.Unlock()
	missing := cache.Indexers{}
	present := s.Indexer.GetIndexers()
	for name, f := range indexers {
		if _, ok := present[name]; !ok {
			missing[name] = f
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return s.Indexer.AddIndexers(missing)
}

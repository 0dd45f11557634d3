package manager

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/flotilla-kube/flotilla/pkg/informer"
)

// newInformer makes controller-runtime's informers: of typed and unstructured objects and of
// metadata. It does not read with the ListerWatcher that it is given, because that one ends with
// the shard.
func (c *shardCache) newInformer(
	_ toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, _ toolscache.Indexers,
) toolscache.SharedIndexInformer {
	i, err := c.informerFor(obj)
	if err != nil {
		return failed{err: err}
	}
	_, selection, err := c.selectionFor(obj)
	if err != nil {
		return failed{err: err}
	}
	s := &shardInformer{
		SharedIndexInformer: i, m: c.m, resync: resync, full: informer.Filled(i), selection: selection,
		indexer:       namedIndexer{Indexer: i.GetIndexer(), owner: c.m.shard.Controller()},
		registrations: map[*registration]struct{}{},
	}
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	c.m.informers = append(c.m.informers, s)
	return s
}

// informerFor returns the shard's informer for objects of obj's kind and form.
func (c *shardCache) informerFor(obj runtime.Object) (toolscache.SharedIndexInformer, error) {
	gvk, err := apiutil.GVKForObject(obj, c.scheme)
	if err != nil {
		return nil, err
	}
	mapping, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	example, reads, err := c.reads(obj, gvk, mapping.Resource)
	if err != nil {
		return nil, err
	}
	return c.m.shard.Informers().Custom(informer.Resource{
		GVR: mapping.Resource, Scope: mapping.Scope.Name(), Object: example, ListerWatcher: reads,
	})
}

// failed is an informer that could not be made. controller-runtime first sets a transform, nil if
// it has none, and returns the error.
type failed struct {
	toolscache.SharedIndexInformer
	err error
}

// SetTransform implements cache.SharedInformer.
func (f failed) SetTransform(toolscache.TransformFunc) error { return f.err }

// GetIndexer implements cache.SharedIndexInformer.
func (f failed) GetIndexer() toolscache.Indexer { return nil }

// shardInformer is a shard's informer in the form that controller-runtime uses.
//
// It has synced once its cache is full, although handlers get no events before the shard is owned.
// Until then its handlers count as synced, too: otherwise a source that waits for them would never
// be warm. After that they have synced once they have received what there is.
type shardInformer struct {
	toolscache.SharedIndexInformer
	m       *shardManager
	resync  time.Duration
	full    toolscache.DoneChecker
	indexer namedIndexer
	// selection limits the objects that handlers receive and that this informer finds.
	selection selection

	mu            sync.Mutex
	registrations map[*registration]struct{}
	stopped       bool
}

// registration is a handler of a shardInformer.
type registration struct {
	toolscache.ResourceEventHandlerRegistration
	of *shardInformer
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (r *registration) HasSynced() bool { return toolscache.IsDone(r.HasSyncedChecker()) }

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (r *registration) HasSyncedChecker() toolscache.DoneChecker {
	if !r.of.m.isOwned() {
		return r.of.full
	}
	return r.ResourceEventHandlerRegistration.HasSyncedChecker()
}

// Run implements cache.SharedInformer.
func (i *shardInformer) Run(stopCh <-chan struct{}) {
	i.RunWithContext(wait.ContextForChannel(stopCh))
}

// RunWithContext fills the cache, and sends events to handlers once the shard is owned. The
// informer belongs to the shard and goes on when ctx ends; handlers added here then get nothing
// more.
func (i *shardInformer) RunWithContext(ctx context.Context) {
	factory := i.m.shard.Informers()
	if i.m.isOwned() {
		factory.StartWithContext(context.WithoutCancel(ctx))
	} else if err := factory.Warm(ctx); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).V(2).Info("Could not fill caches", "shard", i.m.shard, "err", err)
	}
	<-ctx.Done()
	i.stop()
}

// stop removes the handlers, and returns when their last calls have returned.
func (i *shardInformer) stop() {
	i.mu.Lock()
	i.stopped = true
	registrations := slices.Collect(maps.Keys(i.registrations))
	i.mu.Unlock()
	for _, r := range registrations {
		// The error only says that it has been removed.
		_ = toolscache.ShutDownEventHandler(i.SharedIndexInformer, r.ResourceEventHandlerRegistration)
	}
}

// handlers returns the handlers that must have received what there is before workers begin.
func (i *shardInformer) handlers() []toolscache.DoneChecker {
	i.mu.Lock()
	defer i.mu.Unlock()
	var checkers []toolscache.DoneChecker
	for r := range i.registrations {
		if !i.stopped {
			checkers = append(checkers, r.ResourceEventHandlerRegistration.HasSyncedChecker())
		}
	}
	return checkers
}

// AddEventHandler implements cache.SharedInformer.
func (i *shardInformer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (i *shardInformer) AddEventHandlerWithResyncPeriod(
	h toolscache.ResourceEventHandler, resync time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{ResyncPeriod: &resync})
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (i *shardInformer) AddEventHandlerWithOptions(
	h toolscache.ResourceEventHandler, o toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	if o.ResyncPeriod == nil {
		o.ResyncPeriod = &i.resync
	}
	if !i.selection.isAll() {
		h = toolscache.FilteringResourceEventHandler{FilterFunc: i.selection.has, Handler: h}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	handle, err := i.SharedIndexInformer.AddEventHandlerWithOptions(h, o)
	if err != nil {
		return nil, err
	}
	r := &registration{ResourceEventHandlerRegistration: handle, of: i}
	i.registrations[r] = struct{}{}
	return r, nil
}

// RemoveEventHandler implements cache.SharedInformer.
func (i *shardInformer) RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error {
	if r, ours := handle.(*registration); ours {
		i.mu.Lock()
		delete(i.registrations, r)
		i.mu.Unlock()
		handle = r.ResourceEventHandlerRegistration
	}
	return i.SharedIndexInformer.RemoveEventHandler(handle)
}

// HasSynced implements cache.SharedInformer.
func (i *shardInformer) HasSynced() bool { return toolscache.IsDone(i.full) }

// HasSyncedChecker implements cache.SharedInformer.
func (i *shardInformer) HasSyncedChecker() toolscache.DoneChecker { return i.full }

// IsStopped implements cache.SharedInformer.
func (i *shardInformer) IsStopped() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.stopped || i.SharedIndexInformer.IsStopped()
}

// SetTransform implements cache.SharedInformer. Options with a transform were refused before.
func (i *shardInformer) SetTransform(toolscache.TransformFunc) error { return nil }

// AddIndexers implements cache.SharedIndexInformer.
func (i *shardInformer) AddIndexers(indexers toolscache.Indexers) error {
	return i.SharedIndexInformer.AddIndexers(i.indexer.named(indexers))
}

// GetIndexer implements cache.SharedIndexInformer.
func (i *shardInformer) GetIndexer() toolscache.Indexer {
	if i.selection.isAll() {
		return i.indexer
	}
	return selectedIndexer{i.indexer, i.selection}
}

// GetStore implements cache.SharedInformer.
func (i *shardInformer) GetStore() toolscache.Store { return i.GetIndexer() }

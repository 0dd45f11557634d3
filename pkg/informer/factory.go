package informer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// namespaces is the one kind that is cluster-scoped and filtered all the same.
var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// Factory is one shard's informers. It implements informers.SharedInformerFactory for the types of
// client-go's clientset and those of [PoolConfig.Resources]. [Factory.Dynamic], [Factory.Metadata]
// and [Factory.Custom] are for any others. Methods may be called concurrently.
type Factory struct {
	pool   *Pool
	within shard.Range
	// scope reports whether a resource that is not built in is namespaced.
	scope ScopeFunc
	// past is what its caches must have seen.
	past past

	mu        sync.Mutex
	informers map[sharedKey]*entry
	shutdown  bool
	forgotten bool
	// running is one for each informer that was started.
	running sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc
}

// ScopeFunc reports whether a resource is namespaced. Built-in resources are not
// asked for.
type ScopeFunc func(schema.GroupVersionResource) (namespaced bool, err error)

// entry is one informer of a factory.
type entry struct {
	cache.SharedIndexInformer
	// given is the informer as controllers have it.
	given    *given
	resource schema.GroupVersionResource
	// key and read are what the informer is and how it reads.
	key  sharedKey
	read reader
	// absence is of the resource; nil for one that is always there.
	absence *absence
	// narrow is the field selector of what the informer holds, empty for all of the resource.
	narrow string
	typ    reflect.Type
	// keep is what the informer keeps, nil for everything.
	keep func(obj any) bool
	// leader is the shared informer that an informer of the factory's own follows at the time; nil
	// for none.
	leader atomic.Pointer[shared]
	// close gives up what the informer holds of the pool, and forget what it holds of objects.
	close  func() error
	forget func()
	// filling tells that the cache is being filled, started that Run was called, which also
	// tells handlers.
	filling, started bool
}

// cache returns the informer that fills the entry's cache.
func (e *entry) cache() *Informer {
	if v, shared := e.SharedIndexInformer.(*view); shared {
		return v.shared.Informer
	}
	return e.SharedIndexInformer.(*Informer)
}

// reads returns the shared informer that holds what the entry's does, in the same version; nil for
// one that reads by itself.
func (e *entry) reads() *shared {
	if v, ok := e.SharedIndexInformer.(*view); ok {
		return v.shared
	}
	return e.leader.Load()
}

// checker reports whether the cache is full and, once the informer has been started, whether its
// handlers have been told so.
func (e *entry) checker() cache.DoneChecker {
	if e.given.hasStarted() {
		return e.given.HasSyncedChecker()
	}
	return e.HasSyncedChecker()
}

// warm fills the cache of an informer that need not be run for that. trust is what then shows that
// it is filled; nil for other informers.
func (e *entry) warm(ctx context.Context) (trust func(ctx context.Context)) {
	if v, shared := e.SharedIndexInformer.(*view); shared {
		v.warm(ctx)
		return v.trust
	}
	return nil
}

// wake lets handlers of an informer that is held be told.
func (e *entry) wake() {
	if own, ok := e.SharedIndexInformer.(*Informer); ok {
		own.resume()
	}
}

var _ informers.SharedInformerFactory = &Factory{}

// NewFactory returns a factory of informers for the part of the cluster that lies
// in r. scope is asked for the scope of resources that are not built in; nil means
// that none will be asked for. unheld is since when, by the pool's clock, nobody whose
// writes count has been able to write, up to now: what the process has listed after that
// is new enough for the factory. Zero means that this is not known.
func (p *Pool) NewFactory(r shard.Range, scope ScopeFunc, unheld time.Time) *Factory {
	if scope == nil {
		scope = func(gvr schema.GroupVersionResource) (bool, error) {
			return false, fmt.Errorf("scope of %v is unknown", gvr)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &Factory{pool: p, within: r, scope: scope, past: past{p.now(), unheld}, informers: map[sharedKey]*entry{}, ctx: ctx, cancel: cancel}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.factories[f] = struct{}{}
	return f
}

// Advance has informers that are asked for from now on sync with what is at least as new as this call,
// and not as the factory. Call it when what was asked for before is about to catch up with an earlier
// holder: what that has written since the factory was made counts for the others as well.
func (f *Factory) Advance() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.past = past{until: f.pool.now()}
}

// InformerFor returns the factory's informer for objects of obj's type, which must
// be a type of client-go's clientset, or of [PoolConfig.Resources]; it panics for others. newFunc
// is not called: its informer would list the world. The informers that client-go's accessors ask
// for differ in nothing but the type.
func (f *Factory) InformerFor(obj runtime.Object, _ internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	if k, ok := f.pool.kinds.byType[reflect.TypeOf(obj)]; ok {
		return f.typed(k)
	}
	// What follows are programming errors. client-go's interface has no way to return them, and an
	// informer that stays empty would hide them.
	r, ok := f.pool.registered[reflect.TypeOf(obj)]
	if !ok {
		panic(fmt.Sprintf("shard informers: %T is neither a type of client-go's clientset "+
			"nor registered in PoolConfig.Resources; call Factory.Custom, Dynamic or Metadata for its resource instead", obj))
	}
	i, err := f.Custom(r)
	if err != nil {
		panic(fmt.Sprintf("shard informers: %T cannot be informed about as registered in PoolConfig.Resources: %v",
			obj, err))
	}
	return i
}

// ForResource implements informers.SharedInformerFactory for every built-in kind, and for the
// resources of [PoolConfig.Resources]. The error says that the resource is none of these.
func (f *Factory) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	if k, ok := f.pool.kinds.byResource[gvr]; ok {
		return genericOf(gvr, f.typed(k)), nil
	}
	for _, r := range f.pool.registered {
		if r.GVR == gvr {
			i, err := f.Custom(r)
			if err != nil {
				return nil, err
			}
			return genericOf(gvr, i), nil
		}
	}
	return nil, fmt.Errorf("no informer found for %v: call Factory.Custom, Dynamic or Metadata instead", gvr)
}

func (f *Factory) typed(k kind) cache.SharedIndexInformer {
	return f.informer(sharedKey{resource: k.Resource}, k.Type, k.Namespaced, f.pool.kinds.typed(k), k.newObject())
}

// metadata returns an informer for the metadata of a resource's objects. Where it follows one of
// whole objects, it holds these.
func (f *Factory) metadata(gvr schema.GroupVersionResource) informers.GenericInformer {
	namespaced, err := f.namespaced(gvr)
	if err != nil {
		// A resource that has gone since it was discovered: its list fails too, and
		// the filter is right for either scope but for Namespace objects.
		namespaced = true
	}
	return f.metadataOf(sharedKey{resource: gvr, metadata: true}, namespaced)
}

func (f *Factory) namespaced(gvr schema.GroupVersionResource) (bool, error) {
	if k, ok := f.pool.kinds.byResource[gvr]; ok {
		return k.Namespaced, nil
	}
	return f.scope(gvr)
}

// informer returns the informer for key, made on first use.
func (f *Factory) informer(key sharedKey, typ reflect.Type, namespaced bool, read reader, example runtime.Object) cache.SharedIndexInformer {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e, ok := f.informers[key]; ok {
		return e.given
	}
	e := &entry{}
	switch {
	case f.shutdown:
		// Who asks is about to stop. It gets an informer that stays empty: nobody
		// would give back one of the pool's.
		e.SharedIndexInformer, e.close, e.forget = newInformer(config{example: example}), func() error { return nil }, func() {}
	case f.within.IsEverything() || !namespaced && key.resource != namespaces:
		v := newView(f.pool.acquire(key, read, example, f.past), f.past)
		e.SharedIndexInformer, e.close, e.forget = v, v.close, v.shared.forget
	case key.resource == namespaces:
		v := newView(f.pool.acquire(key, read, example, f.past), f.past)
		own := f.namespacesIn(v, example, e.leader.Store)
		e.SharedIndexInformer, e.close, e.forget = own, v.close, func() { own.empty(); v.shared.forget() }
		e.keep = f.keepsNamespace
	default:
		own := f.ranged(key, read, example, e.leader.Store)
		e.SharedIndexInformer, e.close, e.forget = own, func() error { return nil }, own.empty
		e.keep = f.keepsObject
	}
	e.typ, e.resource, e.narrow = typ, key.resource, key.narrow
	e.key, e.read, e.absence = key, read, f.pool.absenceOf(key.resource)
	e.given = newGiven(e.SharedIndexInformer)
	f.informers[key] = e
	return e.given
}

// namespacesIn follows all Namespace objects, and keeps those whose name is in the range.
func (f *Factory) namespacesIn(all *view, example runtime.Object, follows func(*shared)) *Informer {
	return newInformer(config{
		example:   example,
		source:    following{pool: f.pool, lead: all.shared, past: f.past, follows: follows}.source(),
		keep:      f.keepsNamespace,
		resync:    f.pool.config.Resync(),
		transform: f.pool.config.Transform,
		held:      true,
	})
}

// ranged has a namespaced resource's objects in the range: from an informer of the process that holds them all, or by reading
// the range.
func (f *Factory) ranged(key sharedKey, read reader, example runtime.Object, follows func(*shared)) *Informer {
	from := following{
		pool: f.pool, keys: append(key.supersets(), key), read: f.reads(key, read, example, f.keepsObject, nil), past: f.past,
		follows: follows,
		// The server that was probed filters, but another one may answer.
		outside: &f.pool.discarded,
	}
	return newInformer(config{
		example:   example,
		source:    from.source(),
		keep:      both(f.keepsObject, key.selects()),
		resync:    f.pool.config.Resync(),
		transform: f.pool.config.Transform,
		shed:      f.pool.sheds(key),
		strict:    key.strict,
		held:      true,
	})
}

// reads reads the range by itself where the API server filters, and together with the other ranges of the process where it does
// not, or where the process reads all of the resource anyway, for slim copies. picks is as in [config].
func (f *Factory) reads(
	key sharedKey, read reader, example runtime.Object, keep func(obj any) bool, picks func() func(obj any) bool,
) source {
	honoured := func(ctx context.Context) bool { return f.pool.prober.honoured(ctx, key, read) }
	return func(ctx context.Context, into *sink) {
		var listing atomic.Bool
		listed := into.listed
		into.listed = func() {
			if listing.Store(false); listed != nil {
				listed()
			}
		}
		for ctx.Err() == nil {
			if !honoured(ctx) || f.pool.carries(key, into) {
				into.lost = f.pool.readTogether(ctx, key, read, &portion{into: into})
				continue
			}
			alone, stop := context.WithCancel(ctx)
			var lost atomic.Bool
			listing.Store(false)
			looked := f.pool.whenCarried(alone, key, into, listing.Load, stop)
			reflected(&rangeListWatch{
				reader:    read,
				selector:  f.within.Selector(),
				honoured:  honoured,
				stop:      func() { lost.Store(true); stop() },
				keep:      keep,
				picks:     picks,
				lists:     func() { listing.Store(true) },
				discarded: &f.pool.discarded,
			}, example, key.resource.String())(alone, into)
			stop()
			looked()
			into.lost = lost.Load()
		}
	}
}

func (f *Factory) keepsObject(obj any) bool { return f.keeps(obj, metav1.Object.GetNamespace) }

func (f *Factory) keepsNamespace(obj any) bool { return f.keeps(obj, metav1.Object.GetName) }

// keeps reports whether an object belongs to the shard, by its namespace or, for a
// Namespace, its name.
func (f *Factory) keeps(obj any, key func(metav1.Object) string) bool {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	accessor, err := meta.Accessor(obj)
	return err == nil && f.within.ContainsNamespace(key(accessor))
}

// Start implements informers.SharedInformerFactory.
func (f *Factory) Start(stopCh <-chan struct{}) { f.StartWithContext(wait.ContextForChannel(stopCh)) }

// StartWithContext starts the informers that have been asked for and do not run
// yet, and tells the handlers of those that were warm what there is. They end with
// ctx, or with Shutdown.
func (f *Factory) StartWithContext(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shutdown {
		return
	}
	for _, e := range f.informers {
		e.wake()
		f.runLocked(ctx, e)
		if await := e.given.start(); await != nil {
			f.goLocked(ctx, await)
		}
	}
}

// Warm fills the caches of the informers that have been asked for, and returns when
// they have synced. It does not wait for those of resources that are not built in and that the API
// server does not have: these are tried again, and fill when it does. No handler is told anything
// before StartWithContext, however long that is, and nothing is kept for them: they then start from the cache as it is. The
// error says that ctx ended before. The caches are kept fresh until Shutdown.
func (f *Factory) Warm(ctx context.Context) error {
	f.mu.Lock()
	if f.shutdown {
		f.mu.Unlock()
		return errStopped
	}
	for _, e := range f.informers {
		e.filling = true
		if trust := e.warm(ctx); trust != nil {
			f.goLocked(context.WithoutCancel(ctx), trust)
		} else {
			f.runLocked(context.WithoutCancel(ctx), e)
		}
	}
	f.mu.Unlock()
	for _, e := range f.filling() {
		if _, err := e.absence.awaitSynced(ctx, e.checker()); err != nil {
			return err
		}
	}
	return nil
}

// runLocked runs an informer, once.
func (f *Factory) runLocked(ctx context.Context, e *entry) {
	if e.started {
		return
	}
	e.filling, e.started = true, true
	// At once, so that ranges which start at the same time wait for it and do not read by themselves.
	e.warm(ctx)
	f.goLocked(ctx, e.RunWithContext)
}

// goLocked calls run, with a context that ends with ctx or the factory, which must not have been shut down.
func (f *Factory) goLocked(ctx context.Context, run func(context.Context)) {
	f.running.Go(func() {
		runCtx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(f.ctx, cancel)()
		run(runCtx)
	})
}

// Shutdown ends all informers of the factory that it does not share, gives back
// those that it does, and returns once nothing of the factory runs any more. It may
// be called more than once. Unlike client-go's, it needs no context to end first.
func (f *Factory) Shutdown() {
	f.mu.Lock()
	f.shutdown = true
	entries := slices.Collect(maps.Values(f.informers))
	f.mu.Unlock()
	f.pool.mu.Lock()
	delete(f.pool.factories, f)
	f.pool.mu.Unlock()
	f.cancel()
	f.running.Wait()
	var errs []error
	for _, e := range entries {
		errs = append(errs, e.close())
	}
	if err := errors.Join(errs...); err != nil {
		klog.Background().Error(err, "Could not remove all handlers of a shard from shared informers")
	}
}

// Forget gives up what the factory's caches hold, after Shutdown. Call it when nothing that reads
// from them can do harm any more: it finds nothing then. Who keeps a lister all the same, as
// upstream's metrics do with those of the first instance in a process, keeps no objects alive. It
// may be called more than once.
func (f *Factory) Forget() {
	f.mu.Lock()
	var entries []*entry
	if f.shutdown && !f.forgotten {
		f.forgotten = true
		entries = slices.Collect(maps.Values(f.informers))
	}
	f.mu.Unlock()
	for _, e := range entries {
		e.forget()
	}
}

// WaitForCacheSync implements informers.SharedInformerFactory.
func (f *Factory) WaitForCacheSync(stopCh <-chan struct{}) map[reflect.Type]bool {
	return f.WaitForCacheSyncWithContext(wait.ContextForChannel(stopCh)).Synced
}

// WaitForCacheSyncWithContext waits until all informers that are started or being filled have
// synced, metadata informers included, or ctx ends. The handlers of those that are started have
// been told what there is then.
func (f *Factory) WaitForCacheSyncWithContext(ctx context.Context) cache.SyncResult {
	entries := f.filling()
	checkers := make([]cache.DoneChecker, 0, len(entries))
	for _, e := range entries {
		checkers = append(checkers, e.checker())
	}
	result := cache.SyncResult{Synced: map[reflect.Type]bool{}}
	if !cache.WaitFor(ctx, "", checkers...) {
		result.Err = context.Cause(ctx)
	}
	for _, e := range entries {
		if e.typ != nil {
			result.Synced[e.typ] = cache.IsDone(e.checker())
		}
	}
	return result
}

// HasSynced reports whether every informer that is started or being filled has synced.
func (f *Factory) HasSynced() bool {
	for _, e := range f.filling() {
		if !cache.IsDone(e.checker()) {
			return false
		}
	}
	return true
}

func (f *Factory) filling() []*entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	filling := make([]*entry, 0, len(f.informers))
	for _, e := range f.informers {
		if e.filling {
			filling = append(filling, e)
		}
	}
	return filling
}

// Objects returns how many objects the factory's caches hold, by resource; shared
// ones are not counted.
func (f *Factory) Objects() map[schema.GroupVersionResource]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	objects := map[schema.GroupVersionResource]int{}
	for key, e := range f.informers {
		if own, ok := e.SharedIndexInformer.(*Informer); ok {
			objects[key.resource] += len(own.indexer.ListKeys())
		}
	}
	return objects
}

// Weights returns how many objects the factory's caches hold, by namespace; shared ones are not counted, and what is cached
// in several forms, such as whole and by its metadata, counts once. It is nil once the factory has
// been shut down.
func (f *Factory) Weights() map[string]int64 {
	weights := f.weigh()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shutdown {
		return nil // Its caches may have been emptied meanwhile.
	}
	return weights
}

func (f *Factory) weigh() map[string]int64 {
	f.mu.Lock()
	own := map[schema.GroupVersionResource][]cache.Indexer{}
	for key, e := range f.informers {
		if i, ok := e.SharedIndexInformer.(*Informer); ok {
			own[key.resource] = append(own[key.resource], i.indexer)
		}
	}
	f.mu.Unlock()
	weights := map[string]int64{}
	for _, forms := range own {
		for namespace, n := range countOnce(forms) {
			weights[namespace] += n
		}
	}
	return weights
}

// countOnce returns how many objects of one resource there are by namespace, by the form that has
// most: others hold a part, or have not been filled.
func countOnce(forms []cache.Indexer) map[string]int64 {
	counts := map[string]int64{}
	for _, indexer := range forms {
		for _, namespace := range indexer.ListIndexFuncValues(cache.NamespaceIndex) {
			keys, err := indexer.IndexKeys(cache.NamespaceIndex, namespace)
			if err == nil && namespace != "" {
				counts[namespace] = max(counts[namespace], int64(len(keys)))
			}
		}
	}
	return counts
}

// InformerName implements informers.SharedInformerFactory. Shard informers have no
// name: client-go wants names to be unique in a process, and shards come and go.
func (f *Factory) InformerName() *cache.InformerName { return nil }

// generic is an informer with the lister that fits it.
type generic struct {
	informer cache.SharedIndexInformer
	lister   func(cache.Indexer) cache.GenericLister
}

func (g *generic) Informer() cache.SharedIndexInformer { return g.informer }
func (g *generic) Lister() cache.GenericLister         { return g.lister(g.informer.GetIndexer()) }

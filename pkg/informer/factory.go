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

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/listwatch"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/store"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// optionalPatience is how much longer than for other caches [Factory.AwaitFilled] waits for
// optional ones.
const optionalPatience = 5 * time.Second

// namespaces is the only cluster-scoped kind that is filtered.
var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// Factory is one shard's informers. It implements informers.SharedInformerFactory for the types of
// client-go's clientset and those of [PoolConfig.Resources]. [Factory.Dynamic], [Factory.Metadata]
// and [Factory.Custom] are for any others. Methods may be called concurrently.
type Factory struct {
	pool   *Pool
	within shard.Range
	// only is set for the only range of a ring.
	only bool
	// scope reports whether a resource that is not built in is namespaced.
	scope ScopeFunc
	// past is the moment before which the factory's caches must have seen every write.
	past moment

	mu        sync.Mutex
	informers map[sharedKey]*entry
	shutdown  bool
	forgotten bool
	// running counts the informers that were started.
	running sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc
}

// ScopeFunc reports whether a resource is namespaced. It is not called for built-in resources.
type ScopeFunc func(schema.GroupVersionResource) (namespaced bool, err error)

// entry is one informer of a factory.
type entry struct {
	cache.SharedIndexInformer
	// given is the informer as controllers see it.
	given    *given
	resource schema.GroupVersionResource
	// key names the informer, and read is how it reads.
	key     sharedKey
	read    listwatch.Reader
	absence *absence
	// optional says that the controllers that need the cache wait for it, and others need not.
	optional atomic.Bool
	// narrow is the field selector of what the informer holds; empty for the whole resource.
	narrow string
	typ    reflect.Type
	// namespaced is set for namespaced kinds, and for Namespaces.
	namespaced bool
	// keep decides which objects the informer keeps; nil keeps everything.
	keep func(obj any) bool
	// leader is the shared informer that this informer follows at the moment; nil for none.
	leader atomic.Pointer[shared]
	// close gives the pool's informer back, and forget gives up the objects.
	close  func() error
	forget func()
	// filling says that the cache is being filled, started that Run was called, which also sends
	// events to handlers.
	filling, started bool
}

// givenUp reports whether the cache is one that [Factory.AwaitFilled] does not wait for, and is
// still not full.
func (e *entry) givenUp() bool { return e.optional.Load() && !e.cache().HasSynced() }

// cache returns the informer that fills the entry's cache.
func (e *entry) cache() *store.Informer {
	if v, shared := e.SharedIndexInformer.(*view); shared {
		return v.shared.Informer
	}
	return e.SharedIndexInformer.(*store.Informer)
}

// reads returns the shared informer that holds the same objects at the same version; nil for an
// informer that reads by itself.
func (e *entry) reads() *shared {
	if v, ok := e.SharedIndexInformer.(*view); ok {
		return v.shared
	}
	return e.leader.Load()
}

// checker returns what is done once the cache is full and, if the informer was started, its
// handlers have received what there is.
func (e *entry) checker() cache.DoneChecker {
	if e.given.hasStarted() {
		return e.given.HasSyncedChecker()
	}
	return e.HasSyncedChecker()
}

// warm fills the cache of an informer that need not run for that. trust then shows that the cache
// is fresh; nil for other informers.
func (e *entry) warm(ctx context.Context) (trust func(ctx context.Context)) {
	if v, shared := e.SharedIndexInformer.(*view); shared {
		v.warm(ctx)
		return v.trust
	}
	return nil
}

// wake lets a held informer send events to its handlers.
func (e *entry) wake() {
	if own, ok := e.SharedIndexInformer.(*store.Informer); ok {
		own.Resume()
	}
}

var _ informers.SharedInformerFactory = &Factory{}

// NewFactory returns a factory of informers for the part of the cluster that lies in r. It calls
// scope for resources that are not built in; nil means that nobody will ask for any.
func (p *Pool) NewFactory(r shard.Range, scope ScopeFunc) *Factory {
	if scope == nil {
		scope = func(gvr schema.GroupVersionResource) (bool, error) {
			return false, fmt.Errorf("scope of %v is unknown", gvr)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &Factory{pool: p, within: r, scope: scope, past: p.now(), informers: map[sharedKey]*entry{}, ctx: ctx, cancel: cancel}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.factories[f] = struct{}{}
	return f
}

// OnlyRange says that the factory, if it is of everything, is for the only range of a ring. It
// shares its caches, as a group does, but they count as its own: otherwise the ring would seem to
// be empty, and would never be split. Call it before asking for informers.
func (f *Factory) OnlyRange() { f.only = f.within.IsEverything() }

// counted returns the cache of an entry that counts as the factory's own; nil for others.
func (f *Factory) counted(e *entry) cache.Indexer {
	if _, own := e.SharedIndexInformer.(*store.Informer); own || f.only && e.namespaced {
		return e.cache().GetIndexer()
	}
	return nil
}

// advance makes informers that are asked for from now on sync only with a state at least as new as
// this call, instead of the factory's creation: what an earlier holder has written since then
// counts for them as well. Controllers that follow discovery ask for most of their informers when
// they run.
func (f *Factory) advance() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.past = f.pool.now()
}

// InformerFor returns the factory's informer for objects of obj's type, which must be a type of
// client-go's clientset or of [PoolConfig.Resources]; it panics for others. It does not call
// newFunc, whose informer would list everything. The informers that client-go's accessors ask for
// differ only in the type.
func (f *Factory) InformerFor(obj runtime.Object, _ internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	if k, ok := f.pool.kinds.ByType[reflect.TypeOf(obj)]; ok {
		return f.typed(k)
	}
	// Anything else is a programming error. client-go's interface has no way to return it, and an
	// informer that stays empty would hide it.
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
// resources of [PoolConfig.Resources]. The error says that the resource is neither.
func (f *Factory) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	if k, ok := f.pool.kinds.ByResource[gvr]; ok {
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

func (f *Factory) typed(k listwatch.Kind) cache.SharedIndexInformer {
	return f.informer(sharedKey{resource: k.Resource}, k.Type, k.Namespaced, f.pool.reads(k), k.NewObject())
}

// metadata returns an informer for the metadata of a resource's objects. Where it follows an
// informer of whole objects, it holds these.
func (f *Factory) metadata(gvr schema.GroupVersionResource) informers.GenericInformer {
	namespaced, err := f.namespaced(gvr)
	if err != nil {
		// The resource has gone since it was discovered. Its list fails too, and the filter is
		// right for either scope, except for Namespace objects.
		namespaced = true
	}
	return f.metadataOf(sharedKey{resource: gvr, metadata: true}, namespaced)
}

// setOptional says whether those who wait for all caches need not wait for that of key. It applies
// only to resources that are not built in.
func (f *Factory) setOptional(key sharedKey, optional bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, builtIn := f.pool.kinds.ByResource[key.resource]
	if e, there := f.informers[key]; there && !builtIn {
		e.optional.Store(optional)
	}
}

func (f *Factory) namespaced(gvr schema.GroupVersionResource) (bool, error) {
	if k, ok := f.pool.kinds.ByResource[gvr]; ok {
		return k.Namespaced, nil
	}
	return f.scope(gvr)
}

// informer returns the informer for key, made on first use.
func (f *Factory) informer(key sharedKey, typ reflect.Type, namespaced bool, read listwatch.Reader, example runtime.Object) cache.SharedIndexInformer {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e, ok := f.informers[key]; ok {
		return e.given
	}
	e := &entry{}
	switch {
	case f.shutdown:
		// The caller is about to stop. It gets an informer that stays empty: nobody would give back
		// one of the pool's.
		e.SharedIndexInformer, e.close, e.forget = store.New(store.Config{Example: example}), func() error { return nil }, func() {}
	case f.within.IsEverything() || !namespaced && key.resource != namespaces:
		v := newView(f.pool.acquire(key, read, example, f.past), f.past)
		e.SharedIndexInformer, e.close, e.forget = v, v.close, v.shared.forget
	case key.resource == namespaces:
		v := newView(f.pool.acquire(key, read, example, f.past), f.past)
		own := f.namespacesIn(v, example, e.leader.Store)
		e.SharedIndexInformer, e.close, e.forget = own, v.close, func() { own.Empty(); v.shared.forget() }
		e.keep = f.keepsNamespace
	default:
		own := f.ranged(key, read, example, e.leader.Store)
		e.SharedIndexInformer, e.close, e.forget = own, func() error { return nil }, own.Empty
		e.keep = f.keepsObject
	}
	e.typ, e.resource, e.narrow = typ, key.resource, key.narrow
	e.namespaced = namespaced || key.resource == namespaces
	e.key, e.read, e.absence = key, read, f.pool.absenceOf(key.resource)
	e.given = f.newGiven(e)
	f.informers[key] = e
	return e.given
}

// namespacesIn follows all Namespace objects, and keeps those whose name is in the range.
func (f *Factory) namespacesIn(all *view, example runtime.Object, follows func(*shared)) *store.Informer {
	return store.New(store.Config{
		Example:   example,
		Source:    following{pool: f.pool, lead: all.shared, past: f.past, follows: follows}.source(),
		Keep:      f.keepsNamespace,
		Resync:    f.pool.config.Resync(),
		Transform: f.pool.config.Transform,
		Held:      true,
	})
}

// ranged holds a namespaced resource's objects in the range: from an informer of the process that
// holds all objects, or by reading the range.
func (f *Factory) ranged(key sharedKey, read listwatch.Reader, example runtime.Object, follows func(*shared)) *store.Informer {
	keys, within := append(key.supersets(), key), f.wholeWithin(key)
	if !within.IsEverything() {
		keys = append(keys, sharedKey{resource: key.resource, slim: true})
	}
	from := following{
		pool: f.pool, keys: keys, read: f.reads(key, read, example, f.keepsObject, nil), past: f.past, follows: follows, within: within,
		// The server that was probed filters, but another one may answer.
		outside: &f.pool.discarded,
	}
	return store.New(store.Config{
		Example:   example,
		Source:    from.source(),
		Keep:      both(f.keepsObject, key.selects()),
		Resync:    f.pool.config.Resync(),
		Transform: f.pool.config.Transform,
		Shed:      f.pool.sheds(key),
		Strict:    key.strict,
		Held:      true,
	})
}

// wholeWithin returns the range whose whole objects may be found in an informer of slim copies.
func (f *Factory) wholeWithin(key sharedKey) shard.Range {
	if f.pool.config.Slim[key.resource] == nil || key != (sharedKey{resource: key.resource}) {
		return shard.Everything()
	}
	return f.within
}

// reads reads the range by itself if the API server filters, and together with the other ranges of
// the process if it does not. picks is as in [store.Config].
func (f *Factory) reads(
	key sharedKey, read listwatch.Reader, example runtime.Object, keep func(obj any) bool, picks func() func(obj any) bool,
) store.Source {
	honoured := func(ctx context.Context) bool { return f.pool.prober.Honoured(ctx, key.probed(), read) }
	return func(ctx context.Context, into *store.Sink) {
		for ctx.Err() == nil {
			if !honoured(ctx) {
				into.SetLost(f.pool.readTogether(ctx, key, read, &portion{into: into}))
				continue
			}
			alone, stop := context.WithCancel(ctx)
			var lost atomic.Bool
			reflected(&listwatch.Ranged{
				Reader:    read,
				Selector:  f.within.Selector(),
				Honoured:  honoured,
				Stop:      func(about bool) { lost.Store(about); stop() },
				Keep:      keep,
				Picks:     picks,
				Discarded: &f.pool.discarded,
			}, example, key.resource.String())(alone, into)
			stop()
			into.SetLost(lost.Load())
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

// StartWithContext starts the informers that have been asked for and do not run yet, and sends what
// there is to the handlers of warm ones. They end with ctx, or with Shutdown.
func (f *Factory) StartWithContext(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shutdown {
		return
	}
	for _, e := range f.informers {
		f.startLocked(ctx, e)
	}
}

// begin starts one informer, unless it runs, and returns when ctx or the factory has ended.
func (f *Factory) begin(ctx context.Context, e *entry) {
	f.mu.Lock()
	again := f.shutdown || e.given.hasStarted()
	if !again {
		f.startLocked(ctx, e)
	}
	f.mu.Unlock()
	if again {
		klog.FromContext(ctx).Info("An informer is not started, as it has been before, or its factory has ended", "resource", e.resource)
		return
	}
	select {
	case <-ctx.Done():
	case <-f.ctx.Done():
	}
}

// startLocked runs an informer, and lets it send events to its handlers.
func (f *Factory) startLocked(ctx context.Context, e *entry) {
	e.wake()
	f.runLocked(ctx, e)
	if await := e.given.start(); await != nil {
		f.goLocked(ctx, await)
	}
}

// Warm fills the caches of the informers that have been asked for, and returns when they have
// synced, except those that [Factory.AwaitFilled] does not wait for. Handlers get no events before
// StartWithContext, however long that is, and none are kept for them: they then start from the
// cache as it is. The error says that ctx ended first. The caches stay fresh until Shutdown.
func (f *Factory) Warm(ctx context.Context) error {
	f.mu.Lock()
	if f.shutdown {
		f.mu.Unlock()
		return store.ErrStopped
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
	return f.AwaitFilled(ctx)
}

// AwaitFilled returns when the informers that are started or being filled have synced. By then the
// handlers of the started ones have received what there is. It does not wait for resources that the
// API server does not have, such as built-in ones that are turned off. Informers of
// [Factory.ObjectOrMetadata] for resources that are not built in have optionalPatience more than
// the others: it may be impossible to list them, as with a conversion webhook that does not answer.
// All of these keep trying, and the controllers that need them must wait for them. The error is
// ctx's cause.
func (f *Factory) AwaitFilled(ctx context.Context) error {
	var optional []*entry
	for _, e := range f.filling() {
		if e.optional.Load() {
			optional = append(optional, e)
		} else if _, err := e.absence.awaitSynced(ctx, e.checker()); err != nil {
			return err
		}
	}
	patience, cancel := context.WithTimeout(ctx, optionalPatience)
	defer cancel()
	for _, e := range optional {
		if _, err := e.absence.awaitSynced(patience, e.checker()); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			klog.FromContext(ctx).Info("Going on without a full cache of a resource, which may be impossible to list",
				"resource", e.resource.GroupResource(), "version", e.resource.Version)
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
	// At once, so that ranges that start at the same time wait for this reading instead of reading
	// by themselves.
	e.warm(ctx)
	f.goLocked(ctx, e.RunWithContext)
}

// goLocked calls run with a context that ends with ctx or the factory, which must not have been
// shut down.
func (f *Factory) goLocked(ctx context.Context, run func(context.Context)) {
	f.running.Go(func() {
		runCtx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(f.ctx, cancel)()
		run(runCtx)
	})
}

// Shutdown ends all informers that the factory does not share, gives back the shared ones, and
// returns once nothing of the factory runs any more. It may be called more than once. Unlike
// client-go's, it does not need a context to end first.
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

// Forget empties the factory's caches, after Shutdown. Call it when code that still reads from them
// can do no harm: it finds nothing then. A lister that somebody keeps, as upstream's metrics keep
// those of the first instance in a process, then keeps no objects alive. It may be called more than
// once.
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
// synced, metadata informers included, or ctx ends. By then the handlers of the started ones have
// received what there is.
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

// Objects returns how many objects the factory's caches hold, by resource, without shared caches;
// but see [Factory.OnlyRange].
func (f *Factory) Objects() map[schema.GroupVersionResource]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	objects := map[schema.GroupVersionResource]int{}
	for key, e := range f.informers {
		if own := f.counted(e); own != nil {
			objects[key.resource] += len(own.ListKeys())
		}
	}
	return objects
}

// Weights returns how many objects the factory's caches hold, by namespace, without shared caches;
// but see [Factory.OnlyRange]. A Namespace counts as an object in itself. What is cached in several
// forms, such as whole and as metadata, counts once. It is nil once the factory has been shut down.
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
		if i := f.counted(e); i != nil {
			own[key.resource] = append(own[key.resource], i)
		}
	}
	f.mu.Unlock()
	weights := map[string]int64{}
	for resource, forms := range own {
		for namespace, n := range countOnce(forms) {
			weights[namespace] += n
		}
		if resource == namespaces {
			for _, namespace := range forms[0].ListKeys() {
				weights[namespace]++
			}
		}
	}
	return weights
}

// countOnce returns how many objects of one resource there are by namespace, by the form that has
// most: the others hold a part, or are not filled yet.
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

// InformerName implements informers.SharedInformerFactory. Shard informers have no name: client-go
// wants names to be unique in a process, and shards come and go.
func (f *Factory) InformerName() *cache.InformerName { return nil }

// generic is an informer with the lister that fits it.
type generic struct {
	informer cache.SharedIndexInformer
	lister   func(cache.Indexer) cache.GenericLister
}

func (g *generic) Informer() cache.SharedIndexInformer { return g.informer }
func (g *generic) Lister() cache.GenericLister         { return g.lister(g.informer.GetIndexer()) }

package informer

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/listwatch"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/store"
)

// Picking returns o for a controller that goes through all resources and needs only a few objects
// of the namespaced ones: those for which pick returns true. It caches only these. It still reads
// the metadata of all objects, and shares that reading with the ranges and groups of the process
// that read metadata or whole objects, too. Call it on a factory of everything.
//
// A picked object stays until it is deleted, whatever pick says of it later: handlers receive a
// deletion only when there is one. pick is called under locks of the informers. It must not block,
// nor keep or change the object.
func (o ObjectOrMetadata) Picking(pick func(obj metav1.Object) bool) ObjectOrMetadata {
	o.pick = pick
	return o
}

// picked returns an informer for what pick picks of a namespaced resource, and for all of another
// one.
func (f *Factory) picked(gvr schema.GroupVersionResource, pick func(metav1.Object) bool) informers.GenericInformer {
	if namespaced, err := f.namespaced(gvr); err == nil && !namespaced {
		return f.metadata(gvr)
	}
	read := f.pool.readsMetadata(gvr)
	return genericOf(gvr, f.pickedFrom(gvr, read, pick))
}

// pickedFrom returns the informer for what pick picks of a resource, made on first use.
func (f *Factory) pickedFrom(gvr schema.GroupVersionResource, read listwatch.Reader, pick func(metav1.Object) bool) cache.SharedIndexInformer {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := sharedKey{resource: gvr, metadata: true, picked: true}
	e, ok := f.informers[key]
	if !ok {
		e = f.newPicked(key, read, pick)
		e.resource, e.key, e.read, e.absence = gvr, key, read, f.pool.absenceOf(gvr)
		e.given = f.newGiven(e)
		f.informers[key] = e
	}
	return e.given
}

func (f *Factory) newPicked(key sharedKey, read listwatch.Reader, pick func(metav1.Object) bool) *entry {
	example := &metav1.PartialObjectMetadata{}
	if f.shutdown {
		return &entry{SharedIndexInformer: store.New(store.Config{Example: example}), close: func() error { return nil }, forget: func() {}}
	}
	e := &entry{}
	var own *store.Informer
	keep := func(obj any) bool { return picks(own.GetIndexer(), pick, obj) }
	listed := func() func(any) bool { return remembering(keep) }
	from := following{
		pool: f.pool, keys: key.supersets(), read: f.reads(key.unpicked(), read, example, keep, listed), past: f.past,
		follows: e.leader.Store,
	}
	own = store.New(store.Config{
		Example:   example,
		Source:    from.source(),
		Keep:      keep,
		Picks:     listed,
		Resync:    f.pool.config.Resync(),
		Transform: f.pool.config.Transform,
		Shed:      f.pool.sheds(key),
		Held:      true,
	})
	e.SharedIndexInformer, e.keep, e.close, e.forget = own, keep, func() error { return nil }, own.Empty
	return e
}

// remembering returns keep for one list. If the list comes as a watch, objects can change before it
// is complete and stored: it lets through all changes to what has been gathered.
func remembering(keep func(any) bool) func(obj any) bool {
	gathered := map[types.UID]struct{}{}
	return func(obj any) bool {
		accessor, err := meta.Accessor(obj)
		if err != nil {
			return false
		}
		if _, before := gathered[accessor.GetUID()]; before {
			return true
		}
		if keep(obj) {
			gathered[accessor.GetUID()] = struct{}{}
			return true
		}
		return false
	}
}

// picks reports whether an object is picked now, or was before.
func picks(cached cache.Indexer, pick func(metav1.Object) bool, obj any) bool {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return false
	}
	if pick(accessor) {
		return true
	}
	old, there, err := cached.Get(obj)
	if err != nil || !there {
		return false
	}
	before, err := meta.Accessor(old)
	return err == nil && before.GetUID() == accessor.GetUID()
}

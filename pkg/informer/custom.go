package informer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/listwatch"
)

// unstructuredType is the type of the objects of [Factory.Dynamic].
var unstructuredType = reflect.TypeFor[*unstructured.Unstructured]()

// Resource is a resource whose objects have a Go type that client-go's clientset lacks, and a way
// to read them.
type Resource struct {
	// GVR names the resource. Required.
	GVR schema.GroupVersionResource
	// Scope is [meta.RESTScopeNameNamespace] or [meta.RESTScopeNameRoot]. Empty means: ask the
	// factory's [ScopeFunc]. Required in [PoolConfig.Resources].
	Scope meta.RESTScopeName
	// Object is an example of the type, a pointer. Only its type counts, and the kind of an
	// unstructured object. Required.
	Object runtime.Object
	// ListerWatcher reads all objects of the resource, in all namespaces, from the API server that
	// the pool's clients read. Other shards read through it, too, for longer than the factory
	// lives, so the client of a single shard will not do: it is refused once the shard has gone. It
	// must pass the options on unchanged, or shards read more than they keep, and must not add
	// selectors: the cache is shared with all who ask for the same resource and type. Required.
	ListerWatcher cache.ListerWatcher
}

// validate returns an error that names the field at fault.
func (r Resource) validate() error {
	switch {
	case r.GVR.Version == "" || r.GVR.Resource == "":
		return fmt.Errorf("field GVR is %q: must have a version and a resource", r.GVR)
	case r.Object == nil || reflect.TypeOf(r.Object).Kind() != reflect.Pointer:
		return fmt.Errorf("field Object of %v is %T: must be a pointer to an object", r.GVR, r.Object)
	case r.ListerWatcher == nil:
		return fmt.Errorf("field ListerWatcher of %v is missing", r.GVR)
	case r.Scope != "" && r.Scope != meta.RESTScopeNameNamespace && r.Scope != meta.RESTScopeNameRoot:
		return fmt.Errorf("field Scope of %v is %q: must be %q, %q or empty",
			r.GVR, r.Scope, meta.RESTScopeNameNamespace, meta.RESTScopeNameRoot)
	}
	return nil
}

// registered returns the resources of a PoolConfig by type.
func registered(resources []Resource, built *listwatch.Kinds) (map[reflect.Type]Resource, error) {
	byType := make(map[reflect.Type]Resource, len(resources))
	for _, r := range resources {
		if err := r.validate(); err != nil {
			return nil, err
		}
		typ := reflect.TypeOf(r.Object)
		_, twice := byType[typ]
		_, builtIn := built.ByType[typ]
		switch {
		case r.Scope == "":
			return nil, fmt.Errorf("field Scope of %v is missing", r.GVR)
		case twice || builtIn || isGeneric(typ):
			return nil, fmt.Errorf("field Object of %v is %T: must be a type that stands for one resource only",
				r.GVR, r.Object)
		}
		byType[typ] = r
	}
	return byType, nil
}

// isGeneric reports whether objects of any resource may have the type.
func isGeneric(typ reflect.Type) bool {
	return typ == unstructuredType || typ == reflect.TypeFor[*metav1.PartialObjectMetadata]()
}

// Dynamic returns the factory's informer for *unstructured.Unstructured objects of any resource,
// built in or not. It follows and shares only informers of unstructured objects. The error says
// that the pool has no Dynamic client, or that the resource's scope is unknown: without it nobody
// can say whether objects belong to the range. A resource that the API server does not have, yet or
// any more, is not an error: see the package comment.
func (f *Factory) Dynamic(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	client := f.pool.config.Dynamic
	if client == nil {
		return nil, fmt.Errorf("informer of %v: the pool has no Dynamic client", gvr)
	}
	namespaced, err := f.scopeOf(gvr, "")
	if err != nil {
		return nil, err
	}
	key := sharedKey{resource: gvr, object: unstructuredType, root: f.isRoot(gvr, namespaced)}
	listsOnly := watchlist.DoesClientNotSupportWatchListSemantics(client)
	read := f.pool.observed(gvr, listwatch.Unstructured(client.Resource(gvr)), listsOnly)
	return genericOf(gvr, f.informer(key, nil, namespaced, read, &unstructured.Unstructured{})), nil
}

// Metadata returns the factory's informer for the metadata of any resource's objects, built in or
// not. Handlers and listers always get *metav1.PartialObjectMetadata, even while the informer
// follows one of whole objects: it then makes metadata of those as they come. The error says that
// the resource's scope is unknown, as with [Factory.Dynamic].
func (f *Factory) Metadata(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	namespaced, err := f.scopeOf(gvr, "")
	if err != nil {
		return nil, err
	}
	_, builtIn := f.pool.kinds.ByResource[gvr]
	key := sharedKey{resource: gvr, metadata: true, strict: builtIn, root: f.isRoot(gvr, namespaced)}
	i := f.metadataOf(key, namespaced)
	f.setOptional(key, false)
	return i, nil
}

// Custom returns the factory's informer for typed objects of any resource, such as a type in a
// scheme of the caller's own. All who ask the pool for the same resource and type share one cache,
// or read together, with the ListerWatcher of one of them, which must not select. For a type of
// client-go's clientset, Custom returns the same informer as InformerFor. The error names the field
// of r that is wrong, or says that the resource's scope is unknown or differs.
func (f *Factory) Custom(r Resource) (cache.SharedIndexInformer, error) {
	if err := r.validate(); err != nil {
		return nil, fmt.Errorf("custom informer: %w", err)
	}
	namespaced, err := f.scopeOf(r.GVR, r.Scope)
	if err != nil {
		return nil, err
	}
	typ := reflect.TypeOf(r.Object)
	if k, ok := f.pool.kinds.ByType[typ]; ok && k.Resource == r.GVR {
		return f.typed(k), nil
	}
	key := sharedKey{resource: r.GVR, object: typ, root: f.isRoot(r.GVR, namespaced)}
	read := f.pool.observed(r.GVR, custom{cache.ToListerWatcherWithContext(r.ListerWatcher)},
		watchlist.DoesClientNotSupportWatchListSemantics(r.ListerWatcher))
	if isGeneric(typ) {
		typ = nil // WaitForCacheSync could not distinguish them
	}
	return f.informer(key, typ, namespaced, read, r.Object), nil
}

// scopeOf returns whether a resource is namespaced, from the table of built-in kinds or else from
// the factory's ScopeFunc. A scope that the caller gives must agree with these; it is believed
// where they do not know.
func (f *Factory) scopeOf(gvr schema.GroupVersionResource, said meta.RESTScopeName) (namespaced bool, err error) {
	namespaced, err = f.namespaced(gvr)
	claims := said == meta.RESTScopeNameNamespace
	switch {
	case err != nil && said != "":
		return claims, nil
	case err != nil:
		return false, fmt.Errorf("informer of %v: it is not known whether the resource is namespaced: %w", gvr, err)
	case said != "" && claims != namespaced:
		return false, fmt.Errorf("informer of %v: Scope is %q, but the resource is namespaced: %t", gvr, said, namespaced)
	}
	return namespaced, nil
}

// isRoot reports whether informers of a resource refuse objects that have a namespace. The scope of
// a built-in resource is certain, and its informers need not look.
func (f *Factory) isRoot(gvr schema.GroupVersionResource, namespaced bool) bool {
	_, builtIn := f.pool.kinds.ByResource[gvr]
	return !builtIn && !namespaced
}

// metadataOf returns an informer for metadata.
func (f *Factory) metadataOf(key sharedKey, namespaced bool) informers.GenericInformer {
	read := f.pool.readsMetadata(key.resource)
	return genericOf(key.resource, f.informer(key, nil, namespaced, read, &metav1.PartialObjectMetadata{}))
}

// readsMetadata returns a reader of the metadata of a resource's objects.
func (p *Pool) readsMetadata(gvr schema.GroupVersionResource) listwatch.Reader {
	return p.observed(gvr, listwatch.Metadata(p.config.Metadata.Resource(gvr)), false)
}

// reads returns a reader of a built-in kind's objects.
func (p *Pool) reads(k listwatch.Kind) listwatch.Reader {
	return p.observed(k.Resource, p.kinds.Reader(k), false)
}

// genericOf returns an informer with a lister of whatever it holds.
func genericOf(gvr schema.GroupVersionResource, i cache.SharedIndexInformer) informers.GenericInformer {
	return &generic{informer: i, lister: func(i cache.Indexer) cache.GenericLister {
		return cache.NewGenericLister(i, gvr.GroupResource())
	}}
}

// errNoStreams makes a Reflector ask for a list that is not a watch.
var errNoStreams = errors.New("the client knows no lists in the form of watches")

// observedResource notes whether the API server has the resource, and does not ask for one that is
// known to be absent.
type observedResource struct {
	listwatch.Reader
	resource schema.GroupVersionResource
	absence  *absence
	// listsOnly says that the client, a fake, does not know lists in the form of watches.
	listsOnly bool
	now       func() time.Time
}

// observed returns read for an informer of the resource that somebody wants, and records absence.
func (p *Pool) observed(gvr schema.GroupVersionResource, read listwatch.Reader, listsOnly bool) listwatch.Reader {
	a := p.absenceOf(gvr)
	a.expect()
	return observedResource{Reader: read, resource: gvr, absence: a, listsOnly: listsOnly, now: p.config.Clock.Now}
}

// List implements listwatch.Reader.
func (r observedResource) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if err := r.absence.ask(r.now()); err != nil {
		return nil, err
	}
	list, err := r.Reader.List(ctx, options)
	r.note(ctx, err)
	return list, err
}

// Watch implements listwatch.Reader.
func (r observedResource) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if r.listsOnly && listwatch.Streams(options) {
		return nil, errNoStreams
	}
	if err := r.absence.ask(r.now()); err != nil {
		return nil, err
	}
	w, err := r.Reader.Watch(ctx, options)
	if err == nil && listwatch.Streams(options) {
		r.absence.begun()
	} else {
		r.note(ctx, err)
	}
	return w, err
}

// note records the answer to a request. A request that its reader has given up says nothing.
func (r observedResource) note(ctx context.Context, err error) {
	if err != nil && ctx.Err() != nil {
		r.absence.expect()
		return
	}
	if r.absence.note(err, r.now()) {
		klog.FromContext(ctx).Info("Could not read a resource, trying again", "resource", r.resource.GroupResource(), "version", r.resource.Version, "err", err)
	}
}

// custom reads through a caller's ListerWatcher.
type custom struct {
	from cache.ListerWatcherWithContext
}

// List implements listwatch.Reader.
func (c custom) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return c.from.ListWithContext(ctx, options)
}

// Watch implements listwatch.Reader.
func (c custom) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return c.from.WatchWithContext(ctx, options)
}

// FilterWatch returns a watch of what take makes of the objects of another one, without those for
// which take returns false. Bookmarks and errors pass unchanged. Unlike apimachinery's
// watch.Filter, it leaves no goroutine behind when it is stopped.
func FilterWatch(w watch.Interface, take func(obj any) (taken any, ok bool)) watch.Interface {
	return listwatch.FilterWatch(w, take, nil, false)
}

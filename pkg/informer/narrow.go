package informer

import (
	"context"
	"fmt"
	"reflect"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/tools/cache"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/listwatch"
)

// Narrowed is a factory for a controller that reads only a part of some kinds, given by field
// selectors. It caches these parts apart from the rest of the kinds, and the rest does not reach
// the process. It implements informers.SharedInformerFactory; everything else is the factory's own.
type Narrowed struct {
	*Factory
	selectors map[schema.GroupVersionResource]string
}

// Narrowed returns the factory narrowed by field selectors. Only uses of one kind with the same
// selector share an informer. The error says which selector cannot be used: only kinds of the core
// group other than Namespaces can be narrowed, and only by the fields metadata.name and
// metadata.namespace, and a Secret's type. These never change in an object's life, so an object
// never leaves the part.
func (f *Factory) Narrowed(selectors map[schema.GroupVersionResource]string) (*Narrowed, error) {
	n := &Narrowed{Factory: f, selectors: make(map[schema.GroupVersionResource]string, len(selectors))}
	for gvr, text := range selectors {
		k, ok := f.pool.kinds.ByResource[gvr]
		if !ok || gvr.Group != "" || gvr == namespaces {
			return nil, fmt.Errorf("narrowing %v: only kinds of the core group can be, other than Namespaces", gvr)
		}
		selector, err := fields.ParseSelector(text)
		if err != nil || selector.Empty() {
			return nil, fmt.Errorf("narrowing %v by %q: must be a field selector that is not empty: %w", gvr, text, err)
		}
		known := fieldsOf(k.NewObject())
		for _, r := range selector.Requirements() {
			if !known.Has(r.Field) {
				return nil, fmt.Errorf("narrowing %v by %q: field %q is none of %v", gvr, text, r.Field, known)
			}
		}
		n.selectors[gvr] = selector.String()
	}
	return n, nil
}

// InformerFor implements informers.SharedInformerFactory.
func (n *Narrowed) InformerFor(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	k := n.pool.kinds.ByType[reflect.TypeOf(obj)]
	if narrow, ok := n.selectors[k.Resource]; ok {
		return n.part(k, narrow)
	}
	return n.Factory.InformerFor(obj, newFunc)
}

// ForResource implements informers.SharedInformerFactory.
func (n *Narrowed) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	narrow, ok := n.selectors[gvr]
	if !ok {
		return n.Factory.ForResource(gvr)
	}
	return &generic{informer: n.part(n.pool.kinds.ByResource[gvr], narrow), lister: func(i cache.Indexer) cache.GenericLister {
		return cache.NewGenericLister(i, gvr.GroupResource())
	}}, nil
}

// Core implements informers.SharedInformerFactory.
func (n *Narrowed) Core() core.Interface { return core.New(n, "", nil) }

func (n *Narrowed) part(k listwatch.Kind, narrow string) cache.SharedIndexInformer {
	read := part{Reader: n.pool.reads(k), selector: narrow}
	return n.informer(sharedKey{resource: k.Resource, narrow: narrow}, k.Type, k.Namespaced, read, k.NewObject())
}

// part reads the objects that a field selector names.
type part struct {
	listwatch.Reader
	selector string
}

// List implements listwatch.Reader.
func (p part) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	options.FieldSelector = p.selector
	return p.Reader.List(ctx, options)
}

// Watch implements listwatch.Reader.
func (p part) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.FieldSelector = p.selector
	return p.Reader.Watch(ctx, options)
}

// selects returns the filter for what the server sends to an informer of this key; nil keeps
// everything. The server was asked for the same: the filter is for a server that does not know the
// field, and for a resource whose scope has changed.
func (k sharedKey) selects() func(obj any) bool {
	if k.root {
		return hasNoNamespace
	}
	if k.narrow == "" {
		return nil
	}
	selector := fields.ParseSelectorOrDie(k.narrow) // Narrowed has checked it.
	return func(obj any) bool {
		if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		return selector.Matches(fieldsOf(obj))
	}
}

// hasNoNamespace reports whether an object lies in no namespace.
func hasNoNamespace(obj any) bool {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	accessor, err := meta.Accessor(obj)
	return err == nil && accessor.GetNamespace() == ""
}

// both keeps what each of two filters keeps; nil keeps everything.
func both(a, b func(any) bool) func(any) bool {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	default:
		return func(obj any) bool { return a(obj) && b(obj) }
	}
}

// fieldsOf returns the fields that select parts.
func fieldsOf(obj any) fields.Set {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil
	}
	set := fields.Set{"metadata.name": accessor.GetName(), "metadata.namespace": accessor.GetNamespace()}
	if secret, ok := obj.(*v1.Secret); ok {
		set["type"] = string(secret.Type)
	}
	return set
}

package informer

import (
	"context"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/tools/cache"
)

// Slimmed is a factory for a controller that reads little of each object of some resources. The
// controller gets slim copies, made by [PoolConfig.Slim], or the whole objects if the process
// caches them. It implements informers.SharedInformerFactory; everything else is the factory's own.
type Slimmed struct {
	*Factory
	resources map[schema.GroupVersionResource]bool
}

// Slimmed returns the factory with slim copies of the resources. A range's own informers, of
// namespaced resources, still hold whole objects: others of the range read them. The error names a
// resource for which [PoolConfig.Slim] has no function.
func (f *Factory) Slimmed(resources ...schema.GroupVersionResource) (*Slimmed, error) {
	s := &Slimmed{Factory: f, resources: make(map[schema.GroupVersionResource]bool, len(resources))}
	for _, gvr := range resources {
		if f.pool.config.Slim[gvr] == nil || f.pool.kinds.byResource[gvr].Type == nil || gvr.Group != "" {
			return nil, fmt.Errorf("slim copies of %v: there are none", gvr)
		}
		s.resources[gvr] = true
	}
	return s, nil
}

// InformerFor implements informers.SharedInformerFactory.
func (s *Slimmed) InformerFor(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	if k := s.pool.kinds.byType[reflect.TypeOf(obj)]; s.resources[k.Resource] {
		return s.slim(k)
	}
	return s.Factory.InformerFor(obj, newFunc)
}

// ForResource implements informers.SharedInformerFactory.
func (s *Slimmed) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	if !s.resources[gvr] {
		return s.Factory.ForResource(gvr)
	}
	return &generic{informer: s.slim(s.pool.kinds.byResource[gvr]), lister: func(i cache.Indexer) cache.GenericLister {
		return cache.NewGenericLister(i, gvr.GroupResource())
	}}, nil
}

// Core implements informers.SharedInformerFactory.
func (s *Slimmed) Core() core.Interface { return core.New(s, "", nil) }

func (s *Slimmed) slim(k kind) cache.SharedIndexInformer {
	if k.Namespaced && !s.within.IsEverything() {
		return s.typed(k)
	}
	return s.informer(sharedKey{resource: k.Resource, slim: true}, k.Type, k.Namespaced, s.pool.kinds.typed(k), k.newObject())
}

// slimming makes slim copies of what a list has as it comes. Other events pass: the sink decides.
func (s *shared) slimming(lw cache.ListerWatcher) cache.ListerWatcher {
	from := cache.ToListerWatcherWithContext(lw)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			take, err := s.beginList(ctx, options.Continue == "")
			if err != nil {
				return nil, err
			}
			list, err := from.ListWithContext(ctx, options)
			if err != nil {
				return nil, err
			}
			return list, filterList(list, take, nil)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if !streams(options) {
				return from.WatchWithContext(ctx, options)
			}
			take, err := s.beginList(ctx, true)
			if err != nil {
				return nil, err
			}
			w, err := from.WatchWithContext(ctx, options)
			if err != nil {
				return nil, err
			}
			return newFilteredWatch(w, take, nil, true), nil
		},
	}
}

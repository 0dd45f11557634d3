package informer

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

// refreshAtOnce is how many resources are listed at a time to see whether their caches are fresh.
const refreshAtOnce = 8

// Refresh returns once every cache of the factory that is being filled has seen all changes that were made before the
// call: it lists the metadata of each resource as it is now, and waits until the cache holds everything listed, in that
// version or a later one, and nothing else that is older. It is for a cache of whose past nothing is known, such as that
// of a standby; it costs a list of metadata, where filling the cache anew costs a list of whole objects. The error says
// which resource could not be listed, or which cache was not fresh when ctx ended.
func (f *Factory) Refresh(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	slots := make(chan struct{}, refreshAtOnce)
	for _, e := range f.filling() {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := f.refresh(ctx, e); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

func (f *Factory) refresh(ctx context.Context, e *entry) error {
	var options metav1.ListOptions
	_, shared := e.SharedIndexInformer.(*view)
	if !shared && e.resource != namespaces && f.pool.prober.honoured(ctx, e.resource) {
		options.ShardSelector = f.within.Selector()
	}
	list, err := f.pool.config.Metadata.Resource(e.resource).List(ctx, options)
	if err != nil {
		return fmt.Errorf("listing %s to see whether its cache is fresh: %w", e.resource.GroupResource(), err)
	}
	listed := make(map[types.UID]string, len(list.Items))
	for i := range list.Items {
		if obj := &list.Items[i]; e.keep == nil || e.keep(obj) {
			listed[obj.UID] = obj.ResourceVersion
		}
	}
	err = wait.PollUntilContextCancel(ctx, catchUpPeriod, true, func(context.Context) (bool, error) {
		return reached(e.LastSyncResourceVersion(), list.ResourceVersion) || holds(e.GetStore().List(), listed), nil
	})
	if err != nil {
		return fmt.Errorf("the cache of %s has not seen all that was there at version %s: %w", e.resource.GroupResource(), list.ResourceVersion, err)
	}
	return nil
}

// holds tells whether a cache holds what is listed, by UID and version, and nothing else. A cache that has come as far as
// the list by its own version need not be asked: this is for resources in which nothing happens.
func holds(cached []any, listed map[types.UID]string) bool {
	for _, obj := range cached {
		accessor, err := meta.Accessor(obj)
		if err != nil {
			return false
		}
		version, there := listed[accessor.GetUID()]
		if !there || !reached(accessor.GetResourceVersion(), version) {
			return false
		}
	}
	return len(cached) == len(listed)
}

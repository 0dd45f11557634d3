package informer

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// reflected reads from the API server through client-go's Reflector.
func reflected(lw cache.ListerWatcher, example runtime.Object, description string) source {
	return func(ctx context.Context, into *sink) {
		cache.NewReflectorWithOptions(lw, example, into, cache.ReflectorOptions{
			Name:            "shard-informer",
			TypeDescription: description,
		}).RunWithContext(ctx)
	}
}

// derived reads from another informer of this process. It has synced once every
// object that the parent held has passed, and is as far as the parent was then. The parent's resync is none of its
// handlers': they have periods of their own.
func derived(parent cache.SharedIndexInformer) source {
	return func(ctx context.Context, into *sink) {
		logger := klog.FromContext(ctx)
		note := func(err error) {
			if err != nil {
				logger.Error(err, "Could not store an object of a derived informer")
			}
		}
		select {
		case <-parent.HasSyncedChecker().Done():
		case <-ctx.Done():
			return
		}
		// What the handler is told of as already there is at least as new as this. The objects' own versions say less: that
		// others are gone, none of them tells.
		known := parent.LastSyncResourceVersion()
		handle, err := parent.AddEventHandlerWithOptions(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { note(into.Add(obj)) },
			UpdateFunc: func(_, obj any) { note(into.Update(obj)) },
			DeleteFunc: func(obj any) { note(into.Delete(obj)) },
		}, cache.HandlerOptions{ResyncPeriod: ptr.To(time.Duration(0))})
		if err != nil {
			// Only a stopped parent refuses; then this informer is about to stop too.
			logger.Error(err, "Could not derive an informer")
			<-ctx.Done()
			return
		}
		select {
		case <-handle.HasSyncedChecker().Done():
			into.reached(known)
			into.synced()
			<-ctx.Done()
		case <-ctx.Done():
		}
		note(cache.ShutDownEventHandler(parent, handle))
	}
}

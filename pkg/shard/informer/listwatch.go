package informer

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// reader lists and watches one resource in all namespaces. The methods set
// neither options nor filters of their own.
type reader interface {
	List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// typedResource reads typed objects.
type typedResource struct {
	client rest.Interface
	kind   kind
}

func (r typedResource) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	into := r.kind.newList()
	err := r.client.Get().Resource(r.kind.Resource.Resource).
		VersionedParams(&options, scheme.ParameterCodec).
		Timeout(timeout(options)).Do(ctx).Into(into)
	return into, err
}

func (r typedResource) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	return r.client.Get().Resource(r.kind.Resource.Resource).
		VersionedParams(&options, scheme.ParameterCodec).
		Timeout(timeout(options)).Watch(ctx)
}

func timeout(options metav1.ListOptions) time.Duration {
	if options.TimeoutSeconds == nil {
		return 0
	}
	return time.Duration(*options.TimeoutSeconds) * time.Second
}

// metadataResource reads object metadata only.
type metadataResource struct{ metadata.ResourceInterface }

func (r metadataResource) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return r.ResourceInterface.List(ctx, options)
}

// rangeListWatch lists and watches one shard's part of a resource: with the
// server's help where it gives it, and dropping the rest before it is gathered.
type rangeListWatch struct {
	reader
	selector string
	// honoured tells whether the server filters by selector.
	honoured func(ctx context.Context) bool
	keep     func(obj any) bool
	// discarded counts objects and events that the client dropped.
	discarded *atomic.Int64
}

var (
	_ cache.ListerWatcherWithContext = &rangeListWatch{}
)

// ListWithContext implements cache.ListerWithContext.
func (lw *rangeListWatch) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if lw.honoured(ctx) {
		options.ShardSelector = lw.selector
	}
	list, err := lw.reader.List(ctx, current(options))
	if err != nil {
		return nil, err
	}
	return list, lw.filterList(list)
}

// current makes of a list that may be as old as the server's cache happens to be one of the present state: a shard's new
// holder must see what the last one wrote, which may have asked another server.
func current(options metav1.ListOptions) metav1.ListOptions {
	if options.ResourceVersion == "0" {
		options.ResourceVersion = ""
	}
	return options
}

// filterList keeps list's metadata, resource version and continue token included.
func (lw *rangeListWatch) filterList(list runtime.Object) error {
	var kept []runtime.Object
	dropped := int64(0)
	err := meta.EachListItem(list, func(obj runtime.Object) error {
		if lw.keep(obj) {
			kept = append(kept, obj)
		} else {
			dropped++
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("filtering a list: %w", err)
	}
	if dropped == 0 {
		return nil
	}
	lw.discarded.Add(dropped)
	return meta.SetList(list, kept)
}

// WatchWithContext implements cache.WatcherWithContext.
func (lw *rangeListWatch) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	honoured := lw.honoured(ctx)
	if honoured {
		options.ShardSelector = lw.selector
	}
	w, err := lw.reader.Watch(ctx, options)
	if err != nil || honoured {
		return w, err
	}
	return newFilteredWatch(w, lw.keep, lw.discarded), nil
}

// List implements cache.Lister.
func (lw *rangeListWatch) List(options metav1.ListOptions) (runtime.Object, error) {
	return lw.ListWithContext(context.Background(), options)
}

// Watch implements cache.Watcher.
func (lw *rangeListWatch) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return lw.WatchWithContext(context.Background(), options)
}

// filteredWatch drops object events that are not for us as they arrive. Bookmarks
// and errors pass, or a streaming list would never end.
//
// apimachinery's watch.Filter is not used: its goroutine blocks for ever when the
// reader stops while an event is on its way.
type filteredWatch struct {
	incoming watch.Interface
	result   chan watch.Event
	stop     context.CancelFunc
}

func newFilteredWatch(incoming watch.Interface, keep func(any) bool, discarded *atomic.Int64) *filteredWatch {
	ctx, cancel := context.WithCancel(context.Background())
	w := &filteredWatch{incoming: incoming, result: make(chan watch.Event), stop: cancel}
	go w.run(ctx, keep, discarded)
	return w
}

func (w *filteredWatch) run(ctx context.Context, keep func(any) bool, discarded *atomic.Int64) {
	defer close(w.result)
	for event := range w.incoming.ResultChan() {
		switch event.Type {
		case watch.Added, watch.Modified, watch.Deleted:
			if !keep(event.Object) {
				discarded.Add(1)
				continue
			}
		}
		select {
		case w.result <- event:
		case <-ctx.Done():
			// Stop has been called: nobody reads any more. Let the source end.
			for range w.incoming.ResultChan() {
			}
			return
		}
	}
}

// ResultChan implements watch.Interface.
func (w *filteredWatch) ResultChan() <-chan watch.Event { return w.result }

// Stop implements watch.Interface.
func (w *filteredWatch) Stop() {
	w.incoming.Stop()
	w.stop()
}

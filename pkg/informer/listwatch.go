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
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// reader lists and watches one resource in all namespaces. The methods set neither options nor
// filters of their own.
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

// dynamicResource reads unstructured objects.
type dynamicResource struct{ dynamic.ResourceInterface }

func (r dynamicResource) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return r.ResourceInterface.List(ctx, options)
}

// rangeListWatch lists and watches one shard's part of a resource with the server's help. If the
// server does not filter, it drops the rest before it is gathered.
type rangeListWatch struct {
	reader
	selector string
	// honoured reports whether the server filters by selector.
	honoured func(ctx context.Context) bool
	// stop ends the reading. It is called when everything would have to be listed without the
	// server's help; ranges read together then.
	stop func()
	keep func(obj any) bool
	// picks is for an informer that picks from all objects; see config.
	picks func() func(obj any) bool
	// discarded counts objects and events that the client dropped and the server could have left
	// out.
	discarded *atomic.Int64
}

var (
	_ cache.ListerWatcherWithContext = &rangeListWatch{}
)

// ListWithContext implements cache.ListerWithContext.
func (lw *rangeListWatch) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if lw.honoured(ctx) {
		options.ShardSelector = lw.selector
	} else if options.Continue == "" {
		return nil, lw.giveUp(ctx)
	}
	list, err := lw.reader.List(ctx, current(options))
	if err != nil {
		return nil, err
	}
	if lw.picks != nil {
		return list, filterList(list, only(lw.picks()), nil)
	}
	return list, filterList(list, only(lw.keep), lw.discarded)
}

// giveUp ends the reading, and returns the error of its context.
func (lw *rangeListWatch) giveUp(ctx context.Context) error {
	if ctx.Err() == nil {
		lw.stop()
	}
	<-ctx.Done()
	return ctx.Err()
}

// current turns a list that may be as old as the server's cache into a list of the current state: a
// shard's new holder must see what the last one wrote, which may have used another server.
func current(options metav1.ListOptions) metav1.ListOptions {
	if options.ResourceVersion == "0" {
		options.ResourceVersion = ""
	}
	return options
}

// taking returns what becomes of an object as it arrives, and whether it is for us at all. It may
// be called concurrently.
type taking func(obj any) (taken any, ok bool)

// only takes what keep keeps, unchanged.
func only(keep func(any) bool) taking { return func(obj any) (any, bool) { return obj, keep(obj) } }

// filterList keeps the list's metadata, including resource version and continue token. discarded
// counts what is dropped; nil counts nothing.
func filterList(list runtime.Object, take taking, discarded *atomic.Int64) error {
	var kept []runtime.Object
	dropped, changed := int64(0), false
	err := meta.EachListItem(list, func(obj runtime.Object) error {
		taken, ok := take(obj)
		if !ok {
			dropped++
			return nil
		}
		changed = changed || taken != any(obj)
		kept = append(kept, taken.(runtime.Object))
		return nil
	})
	if err != nil {
		return fmt.Errorf("filtering a list: %w", err)
	}
	if dropped == 0 && !changed {
		return nil
	}
	if discarded != nil {
		discarded.Add(dropped)
	}
	return meta.SetList(list, kept)
}

// WatchWithContext implements cache.WatcherWithContext.
func (lw *rangeListWatch) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	honoured := lw.honoured(ctx)
	if honoured {
		options.ShardSelector = lw.selector
	} else if streams(options) {
		return nil, lw.giveUp(ctx)
	}
	w, err := lw.reader.Watch(ctx, options)
	switch {
	case err == nil && lw.picks != nil && streams(options):
		return newFilteredWatch(w, only(lw.picks()), nil, true), nil
	case err != nil || honoured || lw.picks != nil: // the store picks single events
		return w, err
	}
	return newFilteredWatch(w, only(lw.keep), lw.discarded, false), nil
}

// List implements cache.Lister.
func (lw *rangeListWatch) List(options metav1.ListOptions) (runtime.Object, error) {
	return lw.ListWithContext(context.Background(), options)
}

// Watch implements cache.Watcher.
func (lw *rangeListWatch) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return lw.WatchWithContext(context.Background(), options)
}

// streams reports whether a watch is also a list.
func streams(options metav1.ListOptions) bool {
	return options.SendInitialEvents != nil && *options.SendInitialEvents
}

// filteredWatch takes object events as they arrive, or only those of the list that a watch begins
// with, and drops those that are not for us. Bookmarks and errors pass, or a streaming list would
// never end.
//
// apimachinery's watch.Filter is not used: its goroutine blocks for ever when the reader stops
// while an event is on its way.
type filteredWatch struct {
	incoming watch.Interface
	result   chan watch.Event
	stop     context.CancelFunc
}

// FilterWatch returns a watch of what take makes of the objects of another one, without those for
// which take returns false. Bookmarks and errors pass unchanged. Unlike apimachinery's
// watch.Filter, it leaves no goroutine behind when it is stopped.
func FilterWatch(w watch.Interface, take func(obj any) (taken any, ok bool)) watch.Interface {
	return newFilteredWatch(w, take, nil, false)
}

// newFilteredWatch begins a filteredWatch. discarded counts what it drops; nil counts nothing.
// listOnly says that everything after the list passes unchanged.
func newFilteredWatch(incoming watch.Interface, take taking, discarded *atomic.Int64, listOnly bool) *filteredWatch {
	ctx, cancel := context.WithCancel(context.Background())
	w := &filteredWatch{incoming: incoming, result: make(chan watch.Event), stop: cancel}
	go w.run(ctx, take, discarded, listOnly)
	return w
}

func (w *filteredWatch) run(ctx context.Context, take taking, discarded *atomic.Int64, listOnly bool) {
	defer close(w.result)
	listed := false
	for event := range w.incoming.ResultChan() {
		switch event.Type {
		case watch.Added, watch.Modified, watch.Deleted:
			if listOnly && listed {
				break
			}
			taken, ok := take(event.Object)
			if !ok {
				if discarded != nil {
					discarded.Add(1)
				}
				continue
			}
			event.Object = taken.(runtime.Object)
		case watch.Bookmark:
			listed = listed || endsList(event.Object)
		}
		select {
		case w.result <- event:
		case <-ctx.Done():
			// After Stop nobody reads any more. Let the source end.
			for range w.incoming.ResultChan() {
			}
			return
		}
	}
}

// endsList reports whether a bookmark ends the list that a watch began with.
func endsList(bookmark runtime.Object) bool {
	accessor, err := meta.Accessor(bookmark)
	return err == nil && accessor.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// ResultChan implements watch.Interface.
func (w *filteredWatch) ResultChan() <-chan watch.Event { return w.result }

// Stop implements watch.Interface.
func (w *filteredWatch) Stop() {
	w.incoming.Stop()
	w.stop()
}

package listwatch

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

// Reader lists and watches one resource in all namespaces. The methods set neither options nor
// filters of their own.
type Reader interface {
	List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// typedResource reads typed objects.
type typedResource struct {
	client rest.Interface
	kind   Kind
}

// List implements Reader.
func (r typedResource) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	into := r.kind.newList()
	err := r.client.Get().Resource(r.kind.Resource.Resource).
		VersionedParams(&options, scheme.ParameterCodec).
		Timeout(timeout(options)).Do(ctx).Into(into)
	return into, err
}

// Watch implements Reader.
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

// Metadata returns what reads object metadata only.
func Metadata(from metadata.ResourceInterface) Reader { return metadataResource{from} }

// Unstructured returns what reads unstructured objects.
func Unstructured(from dynamic.ResourceInterface) Reader { return dynamicResource{from} }

// metadataResource reads object metadata only.
type metadataResource struct{ metadata.ResourceInterface }

// List implements Reader.
func (r metadataResource) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return r.ResourceInterface.List(ctx, options)
}

// dynamicResource reads unstructured objects.
type dynamicResource struct{ dynamic.ResourceInterface }

// List implements Reader.
func (r dynamicResource) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return r.ResourceInterface.List(ctx, options)
}

// Ranged lists and watches one shard's part of a resource with the server's help. When the server
// does not filter any more, it ends.
type Ranged struct {
	Reader
	// Selector is the range's shardSelector.
	Selector string
	// Honoured reports whether the server filters by selector.
	Honoured func(ctx context.Context) bool
	// Stop ends the reading. It is called when everything would have to be read without the
	// server's help; ranges read together then. lost says that it was about to list.
	Stop func(lost bool)
	// Keep decides which objects are in the range.
	Keep func(obj any) bool
	// Picks is for an informer that picks from all objects: it returns the filter of one list, or of
	// a page of one. Nil for any other.
	Picks func() func(obj any) bool
	// Discarded counts objects and events that the client dropped and the server could have left
	// out.
	Discarded *atomic.Int64
}

var _ cache.ListerWatcherWithContext = &Ranged{}

// ListWithContext implements cache.ListerWithContext.
func (lw *Ranged) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if lw.Honoured(ctx) {
		options.ShardSelector = lw.Selector
	} else if options.Continue == "" {
		return nil, lw.giveUp(ctx, true)
	}
	list, err := lw.Reader.List(ctx, Current(options))
	if err != nil {
		return nil, err
	}
	if lw.Picks != nil {
		return list, FilterList(list, Only(lw.Picks()), nil)
	}
	return list, FilterList(list, Only(lw.Keep), lw.Discarded)
}

// giveUp ends the reading, and returns the error of its context.
func (lw *Ranged) giveUp(ctx context.Context, lost bool) error {
	if ctx.Err() == nil {
		lw.Stop(lost)
	}
	<-ctx.Done()
	return ctx.Err()
}

// Current turns a list that may be as old as the server's cache into a list of the current state: a
// shard's new holder must see what the last one wrote, which may have used another server.
//
// A list that must not be older than a version comes whole, as in stock informers. With a limit the
// server would return exactly that version, and a Reflector whose watch the server has forgotten
// would list the same old state again and again, until etcd is compacted. A Reflector asks for
// pages then because its first list came in pages, which a list of the current state does.
func Current(options metav1.ListOptions) metav1.ListOptions {
	switch {
	case options.ResourceVersion == "0":
		options.ResourceVersion = ""
	case options.ResourceVersion != "" && options.ResourceVersionMatch == "" && options.Continue == "":
		options.Limit = 0
	}
	return options
}

// Taking returns what becomes of an object as it arrives, and whether it is for us at all. It may
// be called concurrently.
type Taking func(obj any) (taken any, ok bool)

// Only takes what keep keeps, unchanged.
func Only(keep func(any) bool) Taking { return func(obj any) (any, bool) { return obj, keep(obj) } }

// FilterList keeps the list's metadata, including resource version and continue token. discarded
// counts what is dropped; nil counts nothing.
func FilterList(list runtime.Object, take Taking, discarded *atomic.Int64) error {
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
func (lw *Ranged) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if !lw.Honoured(ctx) {
		return nil, lw.giveUp(ctx, Streams(options))
	}
	options.ShardSelector = lw.Selector
	w, err := lw.Reader.Watch(ctx, options)
	if err != nil || lw.Picks == nil || !Streams(options) {
		return w, err // the store filters and picks single events
	}
	return FilterWatch(w, Only(lw.Picks()), nil, true), nil
}

// List implements cache.Lister.
func (lw *Ranged) List(options metav1.ListOptions) (runtime.Object, error) {
	return lw.ListWithContext(context.Background(), options)
}

// Watch implements cache.Watcher.
func (lw *Ranged) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return lw.WatchWithContext(context.Background(), options)
}

// Streams reports whether a watch is also a list.
func Streams(options metav1.ListOptions) bool {
	return options.SendInitialEvents != nil && *options.SendInitialEvents
}

// filtered takes object events as they arrive, or only those of the list that a watch begins
// with, and drops those that are not for us. Bookmarks and errors pass, or a streaming list would
// never end.
//
// apimachinery's watch.Filter is not used: its goroutine blocks for ever when the reader stops
// while an event is on its way.
type filtered struct {
	incoming watch.Interface
	result   chan watch.Event
	stop     context.CancelFunc
}

// FilterWatch returns a watch of what take makes of the objects of another one, without those for
// which take returns false. Bookmarks and errors pass unchanged. discarded counts what it drops; nil
// counts nothing. listOnly says that everything after the list passes unchanged.
func FilterWatch(incoming watch.Interface, take Taking, discarded *atomic.Int64, listOnly bool) watch.Interface {
	ctx, cancel := context.WithCancel(context.Background())
	w := &filtered{incoming: incoming, result: make(chan watch.Event), stop: cancel}
	go w.run(ctx, take, discarded, listOnly)
	return w
}

func (w *filtered) run(ctx context.Context, take Taking, discarded *atomic.Int64, listOnly bool) {
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
func (w *filtered) ResultChan() <-chan watch.Event { return w.result }

// Stop implements watch.Interface.
func (w *filtered) Stop() {
	w.incoming.Stop()
	w.stop()
}

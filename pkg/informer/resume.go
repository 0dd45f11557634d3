package informer

import (
	"context"
	"errors"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// store is where a Reflector puts what it reads.
type store interface {
	cache.TransformingStore
	cache.ReflectorBookmarkStore
}

// reflection reads from the API server through client-go's Reflector.
type reflection struct {
	lw      cache.ListerWatcher
	example runtime.Object
	// name and description are for logs.
	name, description string
}

// run fills into until ctx ends. If from is not empty, into holds the objects at that version: run
// watches from there and lists nothing, unless the server does not know that version any more.
func (r reflection) run(ctx context.Context, into store, from string) {
	lw := r.lw
	if from != "" {
		lw, into = resuming(cache.ToListerWatcherWithContext(lw), from), &resumed{store: into}
	}
	reflector := cache.NewReflectorWithOptions(lw, r.example, into, cache.ReflectorOptions{
		Name: r.name, TypeDescription: r.description, Clock: ending{ctx: ctx},
	})
	if from != "" {
		// The first time without the Reflector's pause: a list that turns out to be needed is
		// needed at once.
		if err := reflector.ListAndWatchWithContext(ctx); err != nil && ctx.Err() == nil {
			cache.DefaultWatchErrorHandler(ctx, reflector, err)
		}
	}
	if ctx.Err() == nil {
		reflector.RunWithContext(ctx)
	}
}

// errResumes makes a Reflector ask for a list that is not a watch.
var errResumes = errors.New("there is nothing to list: the store is the list")

// resuming answers the first list by itself, with only the version from, so that a Reflector's
// first watch begins there. It refuses a list in the form of a watch first, so that the Reflector
// asks for it as a list.
func resuming(lw cache.ListerWatcherWithContext, from string) *cache.ListWatch {
	var listed atomic.Bool
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			if listed.CompareAndSwap(false, true) {
				return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: from}}, nil
			}
			return lw.ListWithContext(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if streams(options) && !listed.Load() {
				return nil, errResumes
			}
			return lw.WatchWithContext(ctx, options)
		},
	}
}

// resumed is a store that already holds what the first list stands for.
type resumed struct {
	store
	listed bool
}

// Replace implements cache.ReflectorStore.
func (r *resumed) Replace(list []any, version string) error {
	if !r.listed {
		r.listed = true
		return nil
	}
	return r.store.Replace(list, version)
}

// place returns the version from which a source can continue: the store's. It is empty if the
// source must list: before the informer has synced, and when the server has said that it does not
// know that version any more.
func (s *sink) place() string {
	s.i.mu.Lock()
	defer s.i.mu.Unlock()
	if s.lost || !s.i.HasSynced() || s.i.lastRV == "0" { // which is any version
		return ""
	}
	return s.i.lastRV
}

// shed reduces the whole objects that an informer of metadata or slim copies received while it
// followed to what the informer keeps.
func (s *sink) shed() {
	if s.i.shed == nil {
		return
	}
	s.i.mu.Lock()
	defer s.i.mu.Unlock()
	if s.i.copies != nil {
		s.i.copies.isListing, s.i.copies.isFollowing = false, false
		s.i.slimLocked(func(any) bool { return true })
		return
	}
	list := s.i.indexer.List()
	for n, obj := range list {
		list[n] = s.i.shed(obj)
	}
	into := &sink{i: s.i, stored: true}
	if err := into.replaceLocked(list, s.i.lastRV); err != nil {
		utilruntime.HandleError(err)
	}
}

// sheds returns what reduces a whole object to what an informer of key keeps; nil for all of it.
func (p *Pool) sheds(key sharedKey) func(obj any) any {
	switch {
	case key.metadata:
		return asMetadata
	case key.slim:
		return p.config.Slim[key.resource]
	default:
		return nil
	}
}

func asMetadata(obj any) any {
	if _, is := obj.(*metav1.PartialObjectMetadata); is {
		return obj
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return obj
	}
	return meta.AsPartialObjectMetadata(accessor)
}

package listwatch

import (
	"context"
	"errors"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Store is where a Reflector puts what it reads.
type Store interface {
	cache.TransformingStore
	cache.ReflectorBookmarkStore
}

// Reflection reads from the API server through client-go's Reflector.
type Reflection struct {
	From cache.ListerWatcher
	// Example is an object of the resource.
	Example runtime.Object
	// Name and Description are for logs.
	Name, Description string
}

// Run fills into until ctx ends. If from is not empty, into holds the objects at that version: Run
// watches from there, and lists only if that fails.
func (r Reflection) Run(ctx context.Context, into Store, from string) {
	lw := r.From
	if from != "" {
		lw, into = resuming(cache.ToListerWatcherWithContext(lw), from), &resumed{Store: into}
	}
	reflector := cache.NewReflectorWithOptions(lw, r.Example, into, cache.ReflectorOptions{
		Name: r.Name, TypeDescription: r.Description, Clock: ending{ctx: ctx},
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
			if Streams(options) && !listed.Load() {
				return nil, errResumes
			}
			return lw.WatchWithContext(ctx, options)
		},
	}
}

// resumed is a store that already holds what the first list stands for.
type resumed struct {
	Store
	listed bool
}

// Replace implements cache.ReflectorStore.
func (r *resumed) Replace(list []any, version string) error {
	if !r.listed {
		r.listed = true
		return nil
	}
	return r.Store.Replace(list, version)
}

package informer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
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

// slims reads the whole resource for an informer of slim copies, together with the ranges that read
// it, too.
func (s *shared) slims(read reader, example runtime.Object) source {
	if k, known := s.pool.kinds.byResource[s.key.resource]; known && !k.Namespaced {
		return reflected(slimming(s.everything(read), s.pool.config.Slim[s.key.resource]), example, s.key.resource.String())
	}
	whole := sharedKey{resource: s.key.resource}
	return func(ctx context.Context, into *sink) {
		for ctx.Err() == nil {
			into.lost = s.pool.readTogether(ctx, whole, read, &portion{
				into: into, slim: s.pool.config.Slim[s.key.resource], asked: s.noteAsked, listed: into.listed,
			})
		}
	}
}

// slimming makes slim copies of what lw sends as it comes.
func slimming(lw cache.ListerWatcher, slim func(any) any) cache.ListerWatcher {
	from := cache.ToListerWatcherWithContext(lw)
	take := func(obj any) (any, bool) { return slim(obj), true }
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := from.ListWithContext(ctx, options)
			if err != nil {
				return nil, err
			}
			return list, filterList(list, take, nil)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := from.WatchWithContext(ctx, options)
			if err != nil {
				return nil, err
			}
			return newFilteredWatch(w, take, nil, false), nil
		},
	}
}

// carries reports whether the process reads a whole resource, for slim copies, in a way that a
// range's informer can join without another list of everything.
func (p *Pool) carries(key sharedKey, into *sink) bool {
	p.mu.Lock()
	f := p.feeds[key]
	p.mu.Unlock()
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	resumes := into.place() != ""
	for _, r := range slices.Backward(f.readings) {
		switch {
		case resumes && r.carriesLocked() && cache.IsDone(r):
			return true
		case !resumes && !r.resumes:
			return !r.began && r.carriesLocked() // the newest one, which admits it
		}
	}
	return false
}

// whenCarried calls found, which must not block, once into has synced and could join what the
// process reads of the whole resource, unless ctx ends first. It waits while lists returns true,
// that is, while into is being listed: the server may not know into's version any more, and
// continuing from it would list everything. The caller calls the returned function after ctx has
// ended; nothing is called after that has returned.
func (p *Pool) whenCarried(ctx context.Context, key sharedKey, into *sink, lists func() bool, found func()) (ended func()) {
	var looking sync.WaitGroup
	keys := []sharedKey{{resource: key.resource, slim: true}}
	if key.metadata || key.narrow != "" || key.object != nil {
		return func() {}
	}
	stop := p.whenRun(keys, func() {
		looking.Go(func() {
			if p.awaitCarried(ctx, keys, key, into, lists) {
				found()
			}
		})
	})
	return func() {
		stop()
		looking.Wait()
	}
}

func (p *Pool) awaitCarried(ctx context.Context, keys []sharedKey, key sharedKey, into *sink, lists func() bool) bool {
	if !cache.WaitFor(ctx, "", done{into.i}) {
		return false
	}
	for backoff := lookAgain(); lists() || !p.carries(key, into); {
		if p.lead(keys) == nil {
			return false
		}
		select {
		case <-time.After(backoff.Step()):
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// carries reports whether somebody needs the whole resource.
func (f *feed) carries() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.readings, (*reading).carriesLocked)
}

func (r *reading) carriesLocked() bool {
	for p := range r.portions {
		if p.slim != nil {
			return true
		}
	}
	return false
}

// reconsider makes the ranges part if the server filters and nobody needs the whole resource any
// more.
func (f *feed) reconsider() {
	if f.pool.prober.last(f.key) == ServerSide && !f.carries() {
		f.part()
	}
}

// formLocked returns an object that was read as a portion stores it: the same object if a range has
// stored it, or is expected, and a slim copy otherwise.
func (f *feed) formLocked(p *portion, obj any) any {
	if p.slim == nil {
		return obj
	}
	for r := range f.portionsLocked(false) {
		if !r.into.keeps(obj) {
			continue
		}
		if stored, exists, err := r.into.i.indexer.Get(obj); err == nil && exists && sameVersion(stored, obj) {
			return stored
		}
	}
	if inAny(p.whole, obj) {
		return obj
	}
	return p.slim(obj)
}

// shareLocked replaces slim copies of an object by the object itself, which a range has stored.
func (f *feed) shareLocked(obj any) error {
	var errs []error
	for p := range f.portionsLocked(true) {
		errs = append(errs, p.into.exchange(obj))
	}
	return errors.Join(errs...)
}

// shareAllLocked does so for everything that a range has stored.
func (f *feed) shareAllLocked(r *portion) {
	for p := range f.portionsLocked(true) {
		f.exchangeLocked(p, r)
	}
}

// exchangeLocked makes p, which holds slim copies, hold what it would store now of everything that
// from has stored.
func (f *feed) exchangeLocked(p, from *portion) {
	for _, obj := range from.into.i.indexer.List() {
		if err := p.into.exchange(f.formLocked(p, obj)); err != nil {
			utilruntime.HandleError(err)
		}
	}
}

// portionsLocked iterates over the ranges, or over the portions with slim copies of everything.
func (f *feed) portionsLocked(slim bool) func(yield func(*portion) bool) {
	return func(yield func(*portion) bool) {
		for _, r := range f.readings {
			for p := range r.portions {
				if (p.slim != nil) == slim && !yield(p) {
					return
				}
			}
		}
	}
}

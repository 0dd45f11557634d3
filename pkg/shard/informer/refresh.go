package informer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

const (
	// refreshAtOnce is how many resources are listed at a time to see whether their caches are fresh.
	refreshAtOnce = 8
	// refreshPeriod is how soon it is looked again whether a cache is, at first. A watch event takes a few milliseconds.
	refreshPeriod = 2 * time.Millisecond
	// pageSize is how many objects are listed at a time.
	pageSize = 1000
)

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
	options := metav1.ListOptions{FieldSelector: e.narrow}
	_, shared := e.SharedIndexInformer.(*view)
	if !shared && e.resource != namespaces && f.pool.prober.honoured(ctx, e.resource) {
		options.ShardSelector = f.within.Selector()
	}
	present, err := f.pool.look(ctx, e.resource, options, e.keep, pageSize)
	if err != nil {
		return err
	}
	if err := present.listRest(ctx, e); err != nil {
		return err
	}
	if err := present.seenBy(ctx, e); err != nil {
		return fmt.Errorf("the cache of %s has not seen all that was there at version %s: %w", e.resource.GroupResource(), present.version, err)
	}
	return nil
}

// present is what a resource had when it was looked at. Its metadata is listed page by page, and of each page only UIDs and
// versions are kept: the metadata of all Pods of a large cluster would be most of what a process needs at its peak.
type present struct {
	content
	version string
	// list lists the next page, of at most so many objects.
	list func(ctx context.Context, limit int64) error
	// more is where the next page begins; empty once all of it has been listed.
	more string
}

// whole reports whether all of it has been listed.
func (p *present) whole() bool { return p.more == "" }

// look lists the first page of the metadata of what keep lets through; nil for everything.
func (p *Pool) look(ctx context.Context, gvr schema.GroupVersionResource, options metav1.ListOptions, keep func(any) bool, limit int64) (*present, error) {
	l := &present{content: content{}}
	l.list = func(ctx context.Context, limit int64) error {
		options.Limit, options.Continue = limit, l.more
		list, err := p.config.Metadata.Resource(gvr).List(ctx, options)
		if err != nil {
			return fmt.Errorf("listing %s to see whether its cache is fresh: %w", gvr.GroupResource(), err)
		}
		l.version, l.more = list.ResourceVersion, list.Continue
		for i := range list.Items {
			if obj := &list.Items[i]; keep == nil || keep(obj) {
				l.content[obj.UID] = obj.ResourceVersion
			}
		}
		return nil
	}
	return l, l.list(ctx, limit)
}

// listRest lists the other pages, until the cache has come as far as the list by its own version: then they do not matter.
func (p *present) listRest(ctx context.Context, cached cached) error {
	for !p.whole() && !reached(cached.LastSyncResourceVersion(), p.version) {
		if err := p.list(ctx, pageSize); err != nil {
			return err
		}
	}
	return nil
}

// seenBy returns nil once the cache has come as far as the list by its own version, or holds what was listed. The error says
// that ctx ended before.
func (p *present) seenBy(ctx context.Context, cached cached) error {
	backoff := wait.Backoff{Duration: refreshPeriod, Factor: 1.5, Steps: 10, Cap: 25 * refreshPeriod}
	for {
		if reached(cached.LastSyncResourceVersion(), p.version) || p.whole() && p.content.heldBy(cached.GetStore().List()) {
			return nil
		}
		select {
		case <-time.After(backoff.Step()):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// cached is what is held against the present.
type cached interface {
	LastSyncResourceVersion() string
	GetStore() cache.Store
}

// content is what is listed: versions by UID.
type content map[types.UID]string

// heldBy tells whether a cache holds what is listed and nothing else. A cache that has come as far as the list by its own
// version need not be asked: this is for resources in which nothing happens.
func (listed content) heldBy(cached []any) bool {
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

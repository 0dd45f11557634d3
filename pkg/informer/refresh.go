package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

const (
	// refreshAtOnce is how many resources are listed at a time to see whether their caches are
	// fresh.
	refreshAtOnce = 8
	// refreshPeriod is the first pause before checking a cache again. A watch event takes a few
	// milliseconds.
	refreshPeriod = 2 * time.Millisecond
	// pageSize is how many objects are listed at a time.
	pageSize = 1000
	// fewObjects is how many objects after the first page are listed. If more remain, a watch looks
	// for changes. It takes a second longer; the metadata of this many Pods is two megabytes.
	fewObjects = 400
	// changesTimeout is the timeout of a watch for changes. API servers send a bookmark two seconds
	// before a watch times out, and none to a shorter watch. changesPatience is how long it may
	// take in all.
	changesTimeout  = 3 * time.Second
	changesPatience = 4 * time.Second
)

// Refresh returns once every cache of the factory that is being filled has seen all changes that
// were made before the call. Use it for a cache whose past is unknown, such as a standby's. It asks
// the API server what there is, for each resource. For a cache that the process shares, and those
// that follow it, it asks once for all callers that come at one time. See the type present in this
// package for the cost of an answer and what it relies on. A shared cache that stays behind lists
// again. A resource that is not built in and that the API server does not have has no objects:
// Refresh skips its cache if that was never filled, and otherwise it must be empty. The error says
// which resource could not be listed, or which cache was not fresh when ctx ended.
func (f *Factory) Refresh(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	slots, first := make(chan struct{}, refreshAtOnce), make(chan error, 1)
	until := f.pool.now()
	for _, e := range f.filling() {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := f.refresh(ctx, e, until); err != nil {
				select {
				case first <- err:
				default: // it may have failed because ctx has ended
				}
				cancel()
			}
		})
	}
	all.Wait()
	close(first)
	return <-first
}

// refresh returns once the cache of e has seen all changes made before until.
func (f *Factory) refresh(ctx context.Context, e *entry, until moment) error {
	absent, err := e.absence.awaitSynced(ctx, done{e.cache()})
	switch {
	case err != nil:
		return fmt.Errorf("the cache of %s has not been filled: %w", e.resource.GroupResource(), err)
	case absent:
		return nil
	}
	for {
		from := e.reads()
		if from == nil {
			return f.refreshAlone(ctx, e)
		}
		err := from.awaitFresh(ctx, until)
		switch {
		case err == nil && e.reads() == from && abreast(e.cache(), from.Informer):
			return nil
		case ctx.Err() != nil || err != nil && e.cache() == from.Informer:
			return fmt.Errorf("the cache of %s has not been found to be of the present: %w",
				e.resource.GroupResource(), cmp.Or(err, context.Cause(ctx)))
		}
		select { // It is about to go over to another informer, or to read by itself.
		case <-time.After(refreshPeriod):
		case <-ctx.Done():
		}
	}
}

// refreshAlone does so for a cache that reads by itself, or together with other ranges.
func (f *Factory) refreshAlone(ctx context.Context, e *entry) error {
	options := metav1.ListOptions{FieldSelector: e.narrow}
	if e.resource != namespaces && f.pool.prober.honoured(ctx, e.key, e.read) {
		options.ShardSelector = f.within.Selector()
	}
	return f.pool.upToDate(ctx, comparison{resource: e.resource, options: options, keep: e.keep, cached: e})
}

// comparison compares one cache with what there is.
type comparison struct {
	resource schema.GroupVersionResource
	// options and keep describe the part of the list that the cache holds; a nil keep keeps
	// everything.
	options  metav1.ListOptions
	keep     func(any) bool
	cached   cached
	patience comparisonPatience
}

// comparisonPatience bounds the steps of a comparison: the first page, the further requests, and
// the wait for the cache. 0 means as long as the caller has.
type comparisonPatience struct{ look, complete, seen time.Duration }

// sharedPatience is for the caches that the process shares, for which many wait at once.
var sharedPatience = comparisonPatience{look: freshPatience, complete: listPatience, seen: freshPatience}

var (
	// errBehind says that a cache did not reach, in time, the state at the beginning of a
	// comparison.
	errBehind = errors.New("has not seen all that is there")
	// errGone says that a cache holds objects of a resource that the API server does not have.
	// Listing it again would not help.
	errGone = errors.New("holds objects of a resource that the API server does not have")
)

// upToDate returns nil once the cache, which must have synced, has seen everything that was written
// before the call. The error is errBehind or errGone, with the error of the context that ended, or
// says that the API server has not answered.
func (p *Pool) upToDate(ctx context.Context, c comparison) error {
	first, cancel := bounded(ctx, c.patience.look)
	defer cancel()
	present, err := p.look(first, c.resource, c.options, c.keep, firstLimit(c.cached))
	if err != nil {
		return err
	}
	rest, cancel := bounded(ctx, c.patience.complete)
	defer cancel()
	if err := present.complete(rest, c.cached); err != nil {
		return err
	}
	last, cancel := bounded(ctx, c.patience.seen)
	defer cancel()
	switch err := present.seenBy(last, c.cached); {
	case err == nil:
		return nil
	case present.gone:
		return fmt.Errorf("the cache of %s %w: %w", c.resource.GroupResource(), errGone, err)
	default:
		return fmt.Errorf("the cache of %s, at version %q, %w at version %q: %w",
			c.resource.GroupResource(), c.cached.LastSyncResourceVersion(), errBehind, present.version, err)
	}
}

// firstLimit is how many objects the first page has. Of a kind that is too large to be listed whole,
// only the version matters.
func firstLimit(cached cached) int64 {
	if len(cached.GetStore().ListKeys()) > firstPage+fewObjects {
		return 1
	}
	return firstPage
}

// fewRemain reports whether the objects that the first page lacks are few. The server does not say
// how many there are if it filters; then the cache's own number has to do.
func (p *present) fewRemain() bool {
	if p.remaining != nil {
		return *p.remaining <= fewObjects
	}
	return p.first == firstPage
}

// bounded returns ctx, bounded by patience unless that is 0.
func bounded(ctx context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	if patience == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, patience)
}

// present is the state of a resource when it was looked at. A cache has seen all of it when it has
// reached a high enough version, or holds exactly what was listed.
//
// # What it relies on
//
//   - A list without a resource version is current, and so is its first page: it has everything
//     written before the request, and its version is at least that of each such write.
//   - A watch from a version receives all changes after it, in order. A bookmark says that
//     everything up to its version has been sent.
//   - A cache at a version has received all changes up to it.
//   - A resource that is not built in, and that an API server says it does not have, has no
//     objects.
//
// So a cache that has reached the version of the list has seen everything. The cache of a quiet
// resource does not reach it: versions count the writes to all resources, and the cache's own
// bookmarks come a minute apart. Then all of the resource is listed, if it is small. Otherwise a
// short watch from the cache's version finds the last change before the list's version: it ends
// with a bookmark, which the server sends two seconds before the timeout. The bookmark must have
// reached the list's version, since another server, or a slow one, may have answered. If the watch
// does not answer, everything is listed after all.
//
// # What it costs
//
// One page of the metadata of 100 objects, or of one if the cache holds many. If that is not all and
// the cache does not pass, another page of a few hundred, or a watch of one to two seconds for the
// metadata of what has changed. Metadata includes the managed fields, which are most of a Pod: a
// list of all would be two thirds as large as the Pods. Lists come page by page, and only UIDs and
// versions of each page are kept.
type present struct {
	content
	// gone says that the API server does not have the resource: there is nothing.
	gone bool
	// version is that of the list. enough is the version that a cache must have reached: the same,
	// or that of the last change before.
	version, enough string
	// first is the limit of the first page, see firstLimit.
	first int64
	// list lists the next page, with at most limit objects.
	list func(ctx context.Context, limit int64) error
	// watch watches the same objects from a version on.
	watch func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
	// more is where the next page begins; empty once everything has been listed. remaining is how
	// many objects those pages have, if the server says; nil if it does not.
	more      string
	remaining *int64
}

// whole reports whether everything has been listed.
func (p *present) whole() bool { return p.more == "" }

// look lists the first page of the metadata of what keep lets through; nil for everything.
func (p *Pool) look(
	ctx context.Context, gvr schema.GroupVersionResource, options metav1.ListOptions, keep func(any) bool, limit int64,
) (*present, error) {
	l := &present{content: content{}, first: limit}
	l.list = func(ctx context.Context, limit int64) error {
		options.Limit, options.Continue = limit, l.more
		list, err := p.config.Metadata.Resource(gvr).List(ctx, options)
		if apierrors.IsNotFound(err) && p.absenceOf(gvr) != nil {
			l.gone, l.content, l.more = true, content{}, ""
			return nil
		}
		if err != nil {
			return fmt.Errorf("listing %s to see whether its cache is fresh: %w", gvr.GroupResource(), err)
		}
		l.version, l.more, l.remaining = list.ResourceVersion, list.Continue, list.RemainingItemCount
		l.enough = l.version
		for i := range list.Items {
			if obj := &list.Items[i]; keep == nil || keep(obj) {
				l.content[obj.UID] = obj.ResourceVersion
			}
		}
		return nil
	}
	l.watch = func(ctx context.Context, from metav1.ListOptions) (watch.Interface, error) {
		from.FieldSelector, from.ShardSelector = options.FieldSelector, options.ShardSelector
		return p.config.Metadata.Resource(gvr).Watch(ctx, from)
	}
	return l, l.list(ctx, limit)
}

// complete finds out enough to decide whether the cache, which must have synced, has seen
// everything.
func (p *present) complete(ctx context.Context, cached cached) error {
	if p.whole() || p.seenWithin(ctx, passPatience, cached) {
		return nil
	}
	if p.fewRemain() {
		if err := p.list(ctx, fewObjects); err != nil {
			return err
		}
	}
	if p.whole() || p.reachedBy(cached) || p.watchChanges(ctx, cached.LastSyncResourceVersion()) {
		return nil
	}
	return p.listRest(ctx, cached)
}

// watchChanges looks for the last change before the version of the list, with a watch from a
// cache's version. It reports whether it has found it.
func (p *present) watchChanges(ctx context.Context, from string) bool {
	if !reached(from, "1") {
		return false // From there, a watch would begin with all objects.
	}
	ctx, cancel := context.WithTimeout(ctx, changesPatience)
	defer cancel()
	w, err := p.watch(ctx, metav1.ListOptions{
		ResourceVersion: from, AllowWatchBookmarks: true, TimeoutSeconds: ptr.To(int64(changesTimeout / time.Second)),
	})
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Could not watch what has changed, listing all of it", "err", err)
		return false
	}
	defer w.Stop()
	last := from
	for {
		select {
		case event, open := <-w.ResultChan():
			if !open || event.Type == watch.Error {
				return false
			}
			version := resourceVersion(event.Object)
			if !reached(version, from) {
				return false // It cannot be compared, and proves nothing.
			}
			switch passes := reached(version, p.version); {
			case event.Type == watch.Bookmark && !passes:
				return false // The server is behind.
			case event.Type != watch.Bookmark && (!passes || version == p.version):
				last = version
			}
			if reached(version, p.version) {
				p.enough = last
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// listRest lists the other pages, until the cache reaches the version of the list by itself: then
// they do not matter.
func (p *present) listRest(ctx context.Context, cached cached) error {
	for !p.whole() && !p.reachedBy(cached) {
		if err := p.list(ctx, pageSize); err != nil {
			return err
		}
	}
	return nil
}

// seenBy returns nil once the cache has reached the version it needs by itself, or holds what was
// listed. The error says that ctx ended first.
func (p *present) seenBy(ctx context.Context, cached cached) error {
	backoff := wait.Backoff{Duration: refreshPeriod, Factor: 1.5, Steps: 10, Cap: 25 * refreshPeriod}
	for {
		if p.reachedBy(cached) || p.whole() && p.content.heldBy(cached.GetStore().List()) {
			return nil
		}
		select {
		case <-time.After(backoff.Step()):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// seenWithin reports whether seenBy returns nil within a time.
func (p *present) seenWithin(ctx context.Context, patience time.Duration, cached cached) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return p.seenBy(ctx, cached) == nil
}

func (p *present) reachedBy(cached cached) bool {
	return !p.gone && reached(cached.LastSyncResourceVersion(), p.enough)
}

// cached is what is compared with the present.
type cached interface {
	LastSyncResourceVersion() string
	GetStore() cache.Store
}

// content is what was listed: versions by UID.
type content map[types.UID]string

// heldBy reports whether a cache holds exactly what was listed. It need not be called for a cache
// that has reached the version of the list by itself: it is for resources in which nothing happens.
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

package present

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// PageSize is how many objects are listed at a time if all are.
const PageSize = 1000

const (
	// firstPage is how many objects the first request lists: enough to list most kinds whole.
	firstPage = 100
	// fewObjects is how many objects after the first page are listed. If more remain, a watch looks
	// for changes. It takes a second longer; the metadata of this many Pods is two megabytes.
	fewObjects = 400
	// passPatience is how long the cache of a busy resource may take to pass the current version,
	// before all of the resource is listed.
	passPatience = 50 * time.Millisecond
	// lookAgain is the first pause before looking at a cache again. A watch event takes a few
	// milliseconds.
	lookAgain = 2 * time.Millisecond
	// changesTimeout is the timeout of a watch for changes. API servers send a bookmark two seconds
	// before a watch times out, and none to a shorter watch. changesPatience is how long it may
	// take in all.
	changesTimeout  = 3 * time.Second
	changesPatience = 4 * time.Second
)

var (
	// ErrBehind says that a cache did not reach, in time, the state at the beginning of a
	// comparison.
	ErrBehind = errors.New("has not seen all that is there")
	// ErrGone says that a cache holds objects of a resource that the API server does not have.
	// Listing it again would not help.
	ErrGone = errors.New("holds objects of a resource that the API server does not have")
)

// Cached is what is compared with the present. client-go's shared informers satisfy it.
type Cached interface {
	LastSyncResourceVersion() string
	GetStore() cache.Store
}

// Comparison compares one cache with what there is.
type Comparison struct {
	// Client reads the metadata of objects.
	Client metadata.Interface
	// Resource is what the cache holds. If the API server lacks it, there are no objects.
	Resource schema.GroupVersionResource
	// FieldSelector, ShardSelector and Keep describe the part of the resource that the cache holds;
	// a nil Keep keeps everything.
	FieldSelector, ShardSelector string
	Keep                         func(obj any) bool
	// Cached must have synced.
	Cached   Cached
	Patience Patience
}

// Patience bounds the steps of a comparison: the first page, the further requests, and the wait for
// the cache. 0 means as long as the caller has.
type Patience struct{ Look, Complete, Seen time.Duration }

// UpToDate returns nil once the cache has seen everything that was written before the call. The
// error is ErrBehind or ErrGone, with the cause of the end of the context, or says that the API
// server has not answered.
func (c Comparison) UpToDate(ctx context.Context) error {
	first, cancel := bounded(ctx, c.Patience.Look)
	defer cancel()
	s, err := c.look(first)
	if err != nil {
		return err
	}
	rest, cancel := bounded(ctx, c.Patience.Complete)
	defer cancel()
	if err := s.complete(rest); err != nil {
		return err
	}
	last, cancel := bounded(ctx, c.Patience.Seen)
	defer cancel()
	switch err := s.seen(last); {
	case err == nil:
		return nil
	case s.gone:
		return fmt.Errorf("the cache of %s %w: %w", c.Resource.GroupResource(), ErrGone, err)
	default:
		return fmt.Errorf("the cache of %s, at version %q, %w at version %q: %w",
			c.Resource.GroupResource(), c.Cached.LastSyncResourceVersion(), ErrBehind, s.version, err)
	}
}

// bounded returns ctx, bounded by patience unless that is 0.
func bounded(ctx context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	if patience == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, patience)
}

// state is what is known of the resource since it was looked at.
type state struct {
	Comparison
	// listed has the versions of what was listed, by UID.
	listed content
	// gone says that the API server does not have the resource: there is nothing.
	gone bool
	// version is that of the list. enough is the version that the cache must have reached: the
	// same, or that of the last change before.
	version, enough string
	// first is the limit of the first page.
	first int64
	// more is where the next page begins; empty once everything has been listed. remaining is how
	// many objects those pages have, if the server says; nil if it does not.
	more      string
	remaining *int64
}

// look lists the first page. Of a kind that is too large to be listed whole, only the version
// matters.
func (c Comparison) look(ctx context.Context) (*state, error) {
	s := &state{Comparison: c, listed: content{}, first: firstPage}
	if len(c.Cached.GetStore().ListKeys()) > firstPage+fewObjects {
		s.first = 1
	}
	return s, s.list(ctx, s.first)
}

// list lists the next page, with at most limit objects.
func (s *state) list(ctx context.Context, limit int64) error {
	list, err := s.Client.Resource(s.Resource).List(ctx, metav1.ListOptions{
		FieldSelector: s.FieldSelector, ShardSelector: s.ShardSelector, Limit: limit, Continue: s.more,
	})
	if apierrors.IsNotFound(err) {
		s.gone, s.listed, s.more = true, content{}, ""
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing %s to see whether its cache is fresh: %w", s.Resource.GroupResource(), err)
	}
	s.version, s.more, s.remaining = list.ResourceVersion, list.Continue, list.RemainingItemCount
	s.enough = s.version
	for i := range list.Items {
		if obj := &list.Items[i]; s.Keep == nil || s.Keep(obj) {
			s.listed[obj.UID] = obj.ResourceVersion
		}
	}
	return nil
}

// isWhole reports whether everything has been listed.
func (s *state) isWhole() bool { return s.more == "" }

// complete finds out enough to decide whether the cache has seen everything.
func (s *state) complete(ctx context.Context) error {
	if s.isWhole() || s.seenWithin(ctx, passPatience) {
		return nil
	}
	if s.fewRemain() {
		if err := s.list(ctx, fewObjects); err != nil {
			return err
		}
	}
	if s.isWhole() || s.isReached() || s.watchChanges(ctx) {
		return nil
	}
	// Once the cache has reached the version of the list by itself, the other pages do not matter.
	for !s.isWhole() && !s.isReached() {
		if err := s.list(ctx, PageSize); err != nil {
			return err
		}
	}
	return nil
}

// fewRemain reports whether the objects that the first page lacks are few. The server does not say
// how many there are if it filters; then the cache's own number has to do.
func (s *state) fewRemain() bool {
	if s.remaining != nil {
		return *s.remaining <= fewObjects
	}
	return s.first == firstPage
}

// watchChanges looks for the last change before the version of the list, with a watch from the
// cache's version. It reports whether it has found it.
func (s *state) watchChanges(ctx context.Context) bool {
	from := s.Cached.LastSyncResourceVersion()
	if !Reached(from, "1") {
		return false // From there, a watch would begin with all objects.
	}
	ctx, cancel := context.WithTimeout(ctx, changesPatience)
	defer cancel()
	w, err := s.Client.Resource(s.Resource).Watch(ctx, metav1.ListOptions{
		FieldSelector: s.FieldSelector, ShardSelector: s.ShardSelector,
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
			version := VersionOf(event.Object)
			if !Reached(version, from) {
				return false // It cannot be compared, and proves nothing.
			}
			switch passes := Reached(version, s.version); {
			case event.Type == watch.Bookmark && !passes:
				return false // The server is behind.
			case event.Type != watch.Bookmark && (!passes || version == s.version):
				last = version
			}
			if Reached(version, s.version) {
				s.enough = last
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// seen returns nil once the cache has reached the version it needs by itself, or holds what was
// listed. The error is the cause of ctx's end.
func (s *state) seen(ctx context.Context) error {
	backoff := wait.Backoff{Duration: lookAgain, Factor: 1.5, Steps: 10, Cap: 25 * lookAgain}
	for {
		if s.isReached() || s.isWhole() && s.listed.isHeldBy(s.Cached.GetStore().List()) {
			return nil
		}
		select {
		case <-time.After(backoff.Step()):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// seenWithin reports whether seen returns nil within a time.
func (s *state) seenWithin(ctx context.Context, patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.seen(ctx) == nil
}

func (s *state) isReached() bool {
	return !s.gone && Reached(s.Cached.LastSyncResourceVersion(), s.enough)
}

// content is what was listed: versions by UID.
type content map[types.UID]string

// isHeldBy reports whether a cache holds exactly what was listed. It need not be called for a cache
// that has reached the version of the list by itself: it is for resources in which nothing happens.
func (listed content) isHeldBy(cached []any) bool {
	for _, obj := range cached {
		accessor, err := meta.Accessor(obj)
		if err != nil {
			return false
		}
		version, there := listed[accessor.GetUID()]
		if !there || !Reached(accessor.GetResourceVersion(), version) {
			return false
		}
	}
	return len(cached) == len(listed)
}

// Reached reports whether a cache at version has seen the write whose answer had the version mark.
// An empty mark is always reached. Versions that cannot be compared have not been.
func Reached(version, mark string) bool {
	if mark == "" {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(version, mark)
	return err == nil && order >= 0
}

// VersionOf returns the resource version of an object; empty if it is none.
func VersionOf(obj any) string {
	if accessor, err := meta.Accessor(obj); err == nil {
		return accessor.GetResourceVersion()
	}
	return ""
}

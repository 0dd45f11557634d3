package present

import (
	gocmp "cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// manyObjects lists the metadata of many objects, page by page; those from index old on have an
// older version.
type manyObjects struct {
	metadata.Interface
	metadata.Getter
	objects, lists int
	limits         []int64 // of the lists
	// version is the version of lists; 9 if empty.
	version string
	// counts says that lists report how many objects remain.
	counts bool
	// events are the events of a watch, which then hangs or ends; nil for none.
	events  []watch.Event
	hangs   bool
	watched []metav1.ListOptions
}

func (p *manyObjects) Resource(schema.GroupVersionResource) metadata.Getter { return p }

// Watch sends the events, and then ends or hangs.
func (p *manyObjects) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	p.watched = append(p.watched, o)
	if p.events == nil {
		return nil, errors.New("no watches")
	}
	w := watch.NewFakeWithChanSize(len(p.events), false)
	for _, e := range p.events {
		w.Action(e.Type, e.Object)
	}
	if !p.hangs {
		w.Stop()
	}
	return w, nil
}

func (p *manyObjects) List(_ context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	p.lists++
	p.limits = append(p.limits, o.Limit)
	from := 0
	if o.Continue != "" {
		if _, err := fmt.Sscan(o.Continue, &from); err != nil {
			return nil, err
		}
	}
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: gocmp.Or(p.version, "9")}}
	end := min(p.objects, from+int(o.Limit))
	for i := from; i < end; i++ {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(i)), ResourceVersion: "7"}})
	}
	if end < p.objects {
		list.Continue = fmt.Sprint(end)
		if p.counts {
			list.RemainingItemCount = ptr.To(int64(p.objects - end))
		}
	}
	return list, nil
}

// held is a cache at version 8, and at 9 once a number of pages have been listed; 0 for never.
type held struct {
	cache.Store
	server *manyObjects
	passes int
}

func (h *held) LastSyncResourceVersion() string {
	if h.passes > 0 && h.server.lists >= h.passes {
		return "9"
	}
	return "8"
}

func (h *held) GetStore() cache.Store { return h.Store }

// TestPresentIsListedByPages checks that objects on every page count, and that no more pages are
// requested once the cache has passed the list.
func TestPresentIsListedByPages(t *testing.T) {
	const objects = 3*PageSize + 1
	for name, test := range map[string]struct {
		without int // index of an object that the cache lacks; -1 for none
		passes  int
		lists   int
		seen    bool
	}{
		"all are held":                  {without: -1, lists: 4, seen: true},
		"one of the first is not":       {without: 0, lists: 4},
		"one of the last is not":        {without: objects - 1, lists: 4},
		"it passes after two pages":     {without: objects - 1, passes: 2, lists: 2, seen: true},
		"it has passed the list before": {without: 0, passes: 1, lists: 1, seen: true},
	} {
		t.Run(name, func(t *testing.T) {
			server := &manyObjects{objects: objects}
			h := &held{Store: cache.NewStore(cache.MetaNamespaceKeyFunc), server: server, passes: test.passes}
			for i := range objects {
				if i == test.without {
					continue
				}
				name := fmt.Sprint(i)
				if err := h.Add(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "7"}}); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			s, err := Comparison{Client: server, Resource: configMaps, Cached: h}.look(ctx)
			if err == nil {
				err = s.complete(ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			if seen := s.seen(ctx) == nil; seen != test.seen || server.lists != test.lists {
				t.Errorf("seen: %t after %d lists, want %t after %d", seen, server.lists, test.seen, test.lists)
			}
		})
	}
}

// TestWhatHasChangedIsWatched checks that a watch from the cache's version finds the last change,
// if many objects remain to be listed and the server has proved that it sent all changes. Otherwise
// everything is listed.
func TestWhatHasChangedIsWatched(t *testing.T) {
	event := func(kind watch.EventType, version string) watch.Event {
		return watch.Event{Type: kind, Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}}
	}
	gone := apierrors.NewResourceExpired("too old").Status()
	for name, test := range map[string]struct {
		at      string // the cache's version; the list is at 90
		then    string // the version it reaches meanwhile
		counts  bool
		objects int
		holds   int // objects in the cache
		first   int // the limit of the first page; firstPage if 0
		events  []watch.Event
		hangs   bool
		lists   int
		watches int
		seen    bool
		within  time.Duration
	}{
		"nothing has changed":                      {at: "80", counts: true, events: []watch.Event{event(watch.Bookmark, "90")}, lists: 1, watches: 1, seen: true},
		"nothing has changed, by a later bookmark": {at: "80", counts: true, events: []watch.Event{event(watch.Bookmark, "95")}, lists: 1, watches: 1, seen: true},
		"it does not tell how many remain":         {at: "80", events: []watch.Event{event(watch.Bookmark, "90")}, lists: 2, watches: 1, seen: true},
		"it does not tell, and the cache has many": {
			at: "80", holds: firstPage + fewObjects + 1, events: []watch.Event{event(watch.Bookmark, "90")}, lists: 1, watches: 1, first: 1, seen: true,
		},
		"few remain": {at: "80", counts: true, objects: firstPage + fewObjects, events: []watch.Event{event(watch.Bookmark, "90")}, lists: 2},
		"one more than few remain": {
			at: "80", counts: true, objects: firstPage + fewObjects + 1, events: []watch.Event{event(watch.Bookmark, "90")}, lists: 1, watches: 1, seen: true,
		},
		"the cache has missed a change": {
			at: "80", counts: true, events: []watch.Event{event(watch.Modified, "85"), event(watch.Bookmark, "90")}, lists: 1, watches: 1,
		},
		"the cache has missed the last of two": {
			at: "80", then: "84", counts: true, lists: 1, watches: 1,
			events: []watch.Event{event(watch.Added, "84"), event(watch.Deleted, "85"), event(watch.Bookmark, "90")},
		},
		"the cache has come to the last of two": {
			at: "80", then: "85", counts: true, lists: 1, watches: 1, seen: true,
			events: []watch.Event{event(watch.Added, "84"), event(watch.Deleted, "85"), event(watch.Bookmark, "90")},
		},
		"the last change is the list's": {at: "80", counts: true, hangs: true, events: []watch.Event{event(watch.Modified, "90")}, lists: 1, watches: 1},
		"a later change says that this is all": {
			at: "80", then: "85", counts: true, hangs: true, lists: 1, watches: 1, seen: true,
			events: []watch.Event{event(watch.Modified, "85"), event(watch.Modified, "91")},
		},
		"the server is behind":          {at: "80", counts: true, hangs: true, events: []watch.Event{event(watch.Bookmark, "89")}, lists: 4, watches: 1},
		"the watch ends":                {at: "80", counts: true, events: []watch.Event{}, lists: 4, watches: 1},
		"the watch ends after a change": {at: "80", then: "85", counts: true, events: []watch.Event{event(watch.Modified, "85")}, lists: 4, watches: 1},
		"the version is too old":        {at: "80", counts: true, events: []watch.Event{{Type: watch.Error, Object: &gone}}, lists: 4, watches: 1},
		"there are no watches":          {at: "80", counts: true, lists: 4, watches: 1},
		"the watch says nothing":        {at: "80", counts: true, hangs: true, events: []watch.Event{}, lists: 4, watches: 1, within: changesPatience},
		"the cache has no version":      {at: "0", counts: true, events: []watch.Event{event(watch.Bookmark, "90")}, lists: 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if test.objects == 0 {
					test.objects = firstPage + 2*PageSize + 1
				}
				server := &manyObjects{objects: test.objects, version: "90", counts: test.counts, events: test.events, hangs: test.hangs}
				at := &atVersion{Store: cache.NewStore(cache.MetaNamespaceKeyFunc), version: test.at}
				for i := range test.holds {
					if err := at.Add(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}}); err != nil {
						t.Fatal(err)
					}
				}
				began := time.Now()
				s, err := Comparison{Client: server, Resource: configMaps, FieldSelector: "f", ShardSelector: "s", Cached: at}.look(t.Context())
				if err == nil {
					err = s.complete(t.Context())
				}
				if took := time.Since(began); err != nil || took != passPatience+test.within {
					t.Errorf("complete after %v, %v, want %v", took, err, passPatience+test.within)
				}
				if test.then != "" {
					at.version = test.then
				}
				if seen := s.seenWithin(t.Context(), time.Second); seen != test.seen {
					t.Errorf("the cache has seen all: %t, want %t", seen, test.seen)
				}
				if want := gocmp.Or(test.first, firstPage); server.limits[0] != int64(want) {
					t.Errorf("the first page has %d objects, want %d", server.limits[0], want)
				}
				if server.lists != test.lists || len(server.watched) != test.watches {
					t.Errorf("%d lists and %d watches, want %d and %d", server.lists, len(server.watched), test.lists, test.watches)
				}
				want := metav1.ListOptions{
					ResourceVersion: test.at, AllowWatchBookmarks: true, TimeoutSeconds: ptr.To[int64](3), FieldSelector: "f", ShardSelector: "s",
				}
				for _, o := range server.watched {
					if diff := cmp.Diff(want, o); diff != "" {
						t.Error(diff)
					}
				}
			})
		})
	}
}

// atVersion is an empty cache at a version.
type atVersion struct {
	cache.Store
	version string
}

func (a *atVersion) LastSyncResourceVersion() string { return a.version }
func (a *atVersion) GetStore() cache.Store           { return a.Store }

package informer

import (
	gocmp "cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Namespaces in the lower and in the upper half of the keyspace.
func namesInHalves(t *testing.T) (low, high string) {
	t.Helper()
	ranges, err := shard.EqualRanges(2)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "web", "data", "orders"} {
		if ranges[0].ContainsNamespace(name) {
			low = name
		} else {
			high = name
		}
	}
	return low, high
}

func newConfigMap(namespace, name string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)}}
}

// TestWarmTellsNobody fills the caches of a shard before it runs, lets objects come and go, and
// then starts it. Its handlers receive each existing object once, and every change after that.
func TestWarmTellsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := namesInHalves(t)
		maps, nodeList, spaces := newFakeResource(t), newFakeResource(t), newFakeResource(t)
		maps.Add(newConfigMap(mine, "one"))
		maps.Add(newConfigMap(mine, "two"))
		nodeList.Add(newNode("one"))
		spaces.Add(newNamespace(mine))
		low, _ := halves(t, newTestPool(t, &apiServer{}, clock.RealClock{}, time.Hour))
		var told, toldNodes, toldSpaces recorder
		mapInformer := low.reading(configMaps, maps, &v1.ConfigMap{})
		handle := mustAdd(t, mapInformer, &told)
		mustAdd(t, low.reading(nodes, nodeList, &v1.Node{}), &toldNodes)
		mustAdd(t, low.reading(namespaces, spaces, &v1.Namespace{}), &toldSpaces)

		if err := low.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !low.HasSynced() || len(mapInformer.GetStore().List()) != 2 || handle.HasSynced() {
			t.Errorf("warm: synced %t with %d objects, handler synced %t; want true, 2, false", low.HasSynced(), len(mapInformer.GetStore().List()), handle.HasSynced())
		}
		maps.Add(newConfigMap(mine, "three"))
		maps.Delete(newConfigMap(mine, "one"))
		time.Sleep(5 * time.Hour) // virtual: resyncs would be due
		checkCalls(t, "a handler of a warm shard", &told)
		checkCalls(t, "its handler of nodes", &toldNodes)
		checkCalls(t, "its handler of Namespaces", &toldSpaces)

		low.StartWithContext(t.Context())
		checkCalls(t, "the handler of the started shard", &told, "add "+mine+"/three@3 initial=true", "add "+mine+"/two@2 initial=true")
		checkCalls(t, "its handler of nodes", &toldNodes, "add /one@1 initial=true")
		checkCalls(t, "its handler of Namespaces", &toldSpaces, "add /"+mine+"@1 initial=true")
		if !handle.HasSynced() {
			t.Error("the handler has not synced though it was told everything")
		}
		maps.Add(newConfigMap(mine, "four"))
		checkCalls(t, "the handler of the started shard", &told, "add "+mine+"/four@5 initial=false")
		late := &recorder{}
		mustAdd(t, mapInformer, late)
		synctest.Wait()
		if n := len(late.take()); n != 3 {
			t.Errorf("a handler that came late was told %d things, want 3", n)
		}
	})
}

// TestWarmThatIsGivenUp ends a warm shard that never starts, and one whose caches cannot be filled.
func TestWarmThatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		maps := newFakeResource(t)
		pool := newTestPool(t, &apiServer{}, clock.RealClock{}, 0)
		low, high := halves(t, pool)
		mustAdd(t, low.reading(configMaps, maps, &v1.ConfigMap{}), &recorder{})
		mustAdd(t, low.reading(nodes, newFakeResource(t), &v1.Node{}), &recorder{})
		if err := low.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		low.Shutdown()
		checkShared(t, pool)
		if err := low.Warm(t.Context()); err == nil {
			t.Error("a shard that has ended was warmed")
		}

		maps.down.Store(true)
		mustAdd(t, high.reading(configMaps, maps, &v1.ConfigMap{}), &recorder{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := high.Warm(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("warming without a server: %v, want %v", err, context.DeadlineExceeded)
		}
	})
}

// TestCatchUp has a warm cache wait for a write that it has not seen, and for a deletion.
func TestCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := namesInHalves(t)
		maps := newFakeResource(t)
		maps.Add(newConfigMap(mine, "one"))
		low, _ := halves(t, newTestPool(t, &apiServer{}, clock.RealClock{}, 0))
		low.reading(configMaps, maps, &v1.ConfigMap{})
		if err := low.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		resource := configMaps.GroupResource()
		catchUp := func(m Mark) (time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			began := time.Now()
			err := low.CatchUp(ctx, map[schema.GroupResource]Mark{resource: m, {Resource: "unknown"}: {Version: "99"}})
			return time.Since(began), err
		}
		for name, m := range map[string]Mark{"nothing": {}, "what it has": {Version: "1"}, "a deletion of another": {Gone: []types.UID{"uid-x"}}} {
			if took, err := catchUp(m); err != nil || took != 0 {
				t.Errorf("%s: %v after %v", name, err, took)
			}
		}
		for name, m := range map[string]Mark{
			"a later write": {Version: "2"}, "a version with more digits": {Version: "10"}, "nonsense": {Version: "x"}, "a deletion": {Gone: []types.UID{"uid-one"}},
		} {
			if took, err := catchUp(m); !errors.Is(err, context.DeadlineExceeded) || took != 10*time.Second {
				t.Errorf("%s was seen: %v after %v", name, err, took)
			}
		}
		time.AfterFunc(time.Second, func() { maps.Delete(newConfigMap(mine, "one")) })
		if took, err := catchUp(Mark{Version: "2", Gone: []types.UID{"uid-one"}}); err != nil || took < time.Second || took > 2*time.Second {
			t.Errorf("a deletion that comes after a second: %v after %v", err, took)
		}
	})
}

// TestSee waits for versions of a range's own informer, of a shared one, and of a resource that is
// not cached.
func TestSee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := namesInHalves(t)
		maps, nodeList := newFakeResource(t), newFakeResource(t)
		maps.Add(newConfigMap(mine, "one"))
		nodeList.Add(newNode("one"))
		low, _ := halves(t, newTestPool(t, &apiServer{}, clock.RealClock{}, 0))
		low.reading(configMaps, maps, &v1.ConfigMap{})
		low.reading(nodes, nodeList, &v1.Node{})
		low.readingPart(tokens, newFakeResource(t))
		if err := low.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		see := func(resource schema.GroupVersionResource, version string) (time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			began := time.Now()
			err := low.See(ctx, resource.GroupResource(), version)
			return time.Since(began), err
		}
		for _, resource := range []schema.GroupVersionResource{configMaps, nodes, secrets, berths} {
			if took, err := see(resource, "1"); err != nil || took != 0 {
				t.Errorf("what the cache of %s has, or there is none of all: %v after %v", resource.Resource, err, took)
			}
		}
		for resource, write := range map[schema.GroupVersionResource]func(){
			configMaps: func() { maps.Modify(newConfigMap(mine, "one")) }, nodes: func() { nodeList.Modify(newNode("one")) },
		} {
			if took, err := see(resource, "2"); !errors.Is(err, context.DeadlineExceeded) || took != 10*time.Second {
				t.Errorf("%s: a write that there was not: %v after %v", resource.Resource, err, took)
			}
			time.AfterFunc(time.Second, write)
			if took, err := see(resource, "2"); err != nil || took != time.Second {
				t.Errorf("%s: a write after a second was seen with %v after %v", resource.Resource, err, took)
			}
		}
		if unseen := low.pool.Unseen(); unseen != 2 {
			t.Errorf("%d updates are counted as unseen, want those 2", unseen)
		}
	})
}

// TestCatchUpWithADeletedNamespace starts after the newest Namespace has been deleted: the others
// are older than the deletion.
func TestCatchUpWithADeletedNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, other := namesInHalves(t)
		spaces := newFakeResource(t)
		spaces.Add(newNamespace(mine))
		spaces.Add(newNamespace(other))
		gone := newNamespace("gone")
		spaces.Add(gone)
		spaces.Delete(gone) // version 4
		low, high := halves(t, newTestPool(t, &apiServer{}, clock.RealClock{}, 0))
		for _, f := range []*Factory{low, high} { // the second one finds the informer of the first running
			f.reading(namespaces, spaces, &v1.Namespace{})
			if err := f.Warm(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			began := time.Now()
			if err := f.CatchUp(ctx, map[schema.GroupResource]Mark{namespaces.GroupResource(): {Version: "4"}}); err != nil || time.Since(began) > time.Second {
				t.Errorf("what was deleted before: %v after %v", err, time.Since(began))
			}
			if err := f.CatchUp(ctx, map[schema.GroupResource]Mark{namespaces.GroupResource(): {Version: "5"}}); err == nil {
				t.Error("a write that there was not was seen")
			}
		}
	})
}

// TestListsAreOfThePresent checks that no list leaves it to the server how old its answer may be.
func TestListsAreOfThePresent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		maps, nodeList := newFakeResource(t), newFakeResource(t)
		maps.Add(newConfigMap("n", "one"))
		nodeList.Add(newNode("one"))
		low, _ := halves(t, newTestPool(t, &apiServer{}, clock.RealClock{}, 0))
		low.reading(configMaps, maps, &v1.ConfigMap{})
		low.reading(nodes, nodeList, &v1.Node{})
		if err := low.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, r := range []*fakeResource{maps, nodeList} {
			r.mu.Lock()
			options := slices.Clone(r.options)
			r.mu.Unlock()
			if len(options) == 0 || slices.ContainsFunc(options, func(o metav1.ListOptions) bool { return o.ResourceVersion == "0" }) {
				t.Errorf("requests with the options %+v, want none with version 0", options)
			}
		}
	})
}

// TestRefresh refreshes a warm cache whose past is unknown.
func TestRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, others := namesInHalves(t)
		item := func(namespace, name, version string) metav1.PartialObjectMetadata {
			return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name), ResourceVersion: version}}
		}
		maps, server := newFakeResource(t), &apiServer{}
		maps.Add(newConfigMap(mine, "one"))
		low, _ := halves(t, newTestPool(t, server, clock.RealClock{}, 0))
		low.reading(configMaps, maps, &v1.ConfigMap{})
		if err := low.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		refresh := func(items ...metav1.PartialObjectMetadata) (time.Duration, error) {
			server.set(func(s *apiServer) { s.items, s.fixed = items, true })
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			began := time.Now()
			err := low.Refresh(ctx)
			return time.Since(began), err
		}
		if took, err := refresh(item(mine, "one", "1"), item(others, "not-mine", "5")); err != nil || took != 0 {
			t.Errorf("a cache that has all: %v after %v", err, took)
		}
		for name, items := range map[string][]metav1.PartialObjectMetadata{
			"has not seen a change":   {item(mine, "one", "3")},
			"has not seen a creation": {item(mine, "one", "1"), item(mine, "two", "2")},
			"has not seen a deletion": {},
		} {
			if took, err := refresh(items...); !errors.Is(err, context.DeadlineExceeded) || took != 10*time.Second {
				t.Errorf("a cache that %s is called fresh: %v after %v", name, err, took)
			}
		}
		time.AfterFunc(time.Second, func() { maps.Add(newConfigMap(mine, "two")) })
		if took, err := refresh(item(mine, "one", "1"), item(mine, "two", "2")); err != nil || took < time.Second || took > 2*time.Second {
			t.Errorf("a creation that comes after a second: %v after %v", err, took)
		}
		for _, name := range []string{"three", "four", "five", "six", "seven"} {
			maps.Add(newConfigMap(mine, name))
		}
		synctest.Wait()
		if took, err := refresh(item(mine, "of-the-past", "4")); err != nil || took != 0 {
			t.Errorf("a cache that is newer than the list: %v after %v", err, took)
		}
		server.set(func(s *apiServer) { s.fails = 403 })
		if _, err := refresh(); err == nil {
			t.Error("what could not be listed is called fresh")
		}
	})
}

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
	const objects = 3*pageSize + 1
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
			pool := &Pool{config: PoolConfig{Metadata: server}}
			present, err := pool.look(ctx, configMaps, metav1.ListOptions{}, nil, firstLimit(h))
			if err == nil {
				err = present.complete(ctx, h)
			}
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			if seen := present.seenBy(ctx, h) == nil; seen != test.seen || server.lists != test.lists {
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
					test.objects = firstPage + 2*pageSize + 1
				}
				server := &manyObjects{objects: test.objects, version: "90", counts: test.counts, events: test.events, hangs: test.hangs}
				at := &atVersion{Store: cache.NewStore(cache.MetaNamespaceKeyFunc), version: test.at}
				for i := range test.holds {
					if err := at.Add(configMap("a", fmt.Sprint(i))); err != nil {
						t.Fatal(err)
					}
				}
				pool := &Pool{config: PoolConfig{Metadata: server}}
				began := time.Now()
				present, err := pool.look(t.Context(), configMaps, metav1.ListOptions{FieldSelector: "f", ShardSelector: "s"}, nil, firstLimit(at))
				if err == nil {
					err = present.complete(t.Context(), at)
				}
				if took := time.Since(began); err != nil || took != passPatience+test.within {
					t.Errorf("complete after %v, %v, want %v", took, err, passPatience+test.within)
				}
				if test.then != "" {
					at.version = test.then
				}
				if seen := present.seenWithin(t.Context(), time.Second, at); seen != test.seen {
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

// TestRefreshTogether checks that concurrent calls about caches that hold the same, or follow each
// other, share one check, or a second one if the first had begun before the call.
func TestRefreshTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		low, _ := namesInHalves(t)
		resource, server := newFakeResource(t), &apiServer{takes: time.Millisecond}
		resource.Add(newConfigMap(low, "one"))
		pool := newTestPool(t, server, clock.RealClock{}, 0)
		var all []*Factory
		for range 3 {
			group := pool.NewFactory(shard.Everything(), nil)
			group.reading(configMaps, resource, &v1.ConfigMap{})
			all = append(all, group)
		}
		lowRange, highRange := halves(t, pool)
		for _, f := range []*Factory{lowRange, highRange} {
			f.reading(configMaps, resource, &v1.ConfigMap{})
			all = append(all, f)
		}
		for _, f := range all {
			t.Cleanup(f.Shutdown)
			if err := f.Warm(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		server.requests()
		refresh := func() {
			var asking sync.WaitGroup
			for _, f := range all {
				asking.Go(func() {
					if err := f.Refresh(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			asking.Wait()
		}
		refresh()
		if limited, full := server.lists(); limited < 1 || limited > 2 || full != 0 {
			t.Errorf("%d pages and %d lists for %d that asked at one time, want 1 or 2 pages", limited, full, len(all))
		}
		refresh()
		if limited, _ := server.lists(); limited < 1 {
			t.Error("who asked later was answered by what had been seen before")
		}
	})
}

// TestRefreshOfAStalledCache checks that a stalled shared cache lists again, and that a range which
// follows it sees the result.
func TestRefreshOfAStalledCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := namesInHalves(t)
		resource := newFakeResource(t)
		pool := newTestPool(t, &apiServer{takes: time.Millisecond}, clock.RealClock{}, 0)
		whole(t, pool, configMaps, deafResource{resource})
		low, _ := halves(t, pool)
		i := low.reading(configMaps, deafResource{resource}, &v1.ConfigMap{})
		if err := low.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		checkFollowed(t, pool, configMaps, 1)
		serve(pool, configMaps, resource)
		resource.Add(newConfigMap(mine, "one"))
		began := time.Now()
		err := low.Refresh(t.Context())
		if n, took := len(i.GetStore().List()), time.Since(began); err != nil || n != 1 || took > freshPatience+time.Second {
			t.Errorf("has seen %d objects of 1 after %v, %v", n, took, err)
		}
	})
}

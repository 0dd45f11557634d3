package informer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
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
		var told, toldNodes, toldSpaces informertest.Recorder
		mapInformer := low.reading(configMaps, maps, &v1.ConfigMap{})
		handle := informertest.MustAdd(t, mapInformer, &told)
		informertest.MustAdd(t, low.reading(nodes, nodeList, &v1.Node{}), &toldNodes)
		informertest.MustAdd(t, low.reading(namespaces, spaces, &v1.Namespace{}), &toldSpaces)

		if err := low.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !low.HasSynced() || len(mapInformer.GetStore().List()) != 2 || handle.HasSynced() {
			t.Errorf("warm: synced %t with %d objects, handler synced %t; want true, 2, false", low.HasSynced(), len(mapInformer.GetStore().List()), handle.HasSynced())
		}
		maps.Add(newConfigMap(mine, "three"))
		maps.Delete(newConfigMap(mine, "one"))
		time.Sleep(5 * time.Hour) // virtual: resyncs would be due
		informertest.CheckCalls(t, "a handler of a warm shard", &told)
		informertest.CheckCalls(t, "its handler of nodes", &toldNodes)
		informertest.CheckCalls(t, "its handler of Namespaces", &toldSpaces)

		low.StartWithContext(t.Context())
		informertest.CheckCalls(t, "the handler of the started shard", &told, "add "+mine+"/three@3 initial=true", "add "+mine+"/two@2 initial=true")
		informertest.CheckCalls(t, "its handler of nodes", &toldNodes, "add /one@1 initial=true")
		informertest.CheckCalls(t, "its handler of Namespaces", &toldSpaces, "add /"+mine+"@1 initial=true")
		if !handle.HasSynced() {
			t.Error("the handler has not synced though it was told everything")
		}
		maps.Add(newConfigMap(mine, "four"))
		informertest.CheckCalls(t, "the handler of the started shard", &told, "add "+mine+"/four@5 initial=false")
		late := &informertest.Recorder{}
		informertest.MustAdd(t, mapInformer, late)
		synctest.Wait()
		if n := len(late.Take()); n != 3 {
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
		informertest.MustAdd(t, low.reading(configMaps, maps, &v1.ConfigMap{}), &informertest.Recorder{})
		informertest.MustAdd(t, low.reading(nodes, newFakeResource(t), &v1.Node{}), &informertest.Recorder{})
		if err := low.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		low.Shutdown()
		checkShared(t, pool)
		if err := low.Warm(t.Context()); err == nil {
			t.Error("a shard that has ended was warmed")
		}

		maps.Down.Store(true)
		informertest.MustAdd(t, high.reading(configMaps, maps, &v1.ConfigMap{}), &informertest.Recorder{})
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
		for name, m := range map[string]Mark{"nothing": {}, "what it has": {Version: "1"}, "a deletion of another": {Gone: []types.UID{"uid-x"}, Deleted: []types.UID{"uid-y"}}} {
			if took, err := catchUp(m); err != nil || took != 0 {
				t.Errorf("%s: %v after %v", name, err, took)
			}
		}
		for name, m := range map[string]Mark{
			"a later write": {Version: "2"}, "a version with more digits": {Version: "10"}, "nonsense": {Version: "x"}, "a deletion": {Gone: []types.UID{"uid-one"}},
			"the deletion of a collection": {Deleted: []types.UID{"uid-one"}},
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

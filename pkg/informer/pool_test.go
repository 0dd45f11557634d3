package informer

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/listwatch"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Every test here runs in a bubble of virtual time, which fails the test if a goroutine is left at
// its end.

func checkShared(t *testing.T, p *Pool, want ...schema.GroupVersionResource) {
	t.Helper()
	byName := cmpopts.SortSlices(func(a, b schema.GroupVersionResource) bool { return a.String() < b.String() })
	if diff := cmp.Diff(want, p.Resources(), cmpopts.EquateEmpty(), byName); diff != "" {
		t.Errorf("shared informers (-want +got):\n%s", diff)
	}
}

func all(any) bool { return true }

func TestSharedInformerLivesAsLongAsItsUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := newFakeResource(t)
		resource.Add(newNode("one"))
		pool := newTestPool(t, &apiServer{}, clock.RealClock{}, 0)
		low, high := halves(t, pool)
		first, second := low.reading(nodes, resource, &v1.Node{}), high.reading(nodes, resource, &v1.Node{})
		low.StartWithContext(t.Context())
		high.StartWithContext(t.Context())
		synctest.Wait()
		if n := resource.requests(); n != 2 {
			t.Errorf("two shards made %d requests for the same nodes, want a list and a watch", n)
		}
		checkShared(t, pool, nodes)

		low.Shutdown()
		checkShared(t, pool, nodes)
		if !first.IsStopped() || second.IsStopped() {
			t.Errorf("stopped: %t of the shard that ended, %t of the other; want true, false", first.IsStopped(), second.IsStopped())
		}
		resource.Add(newNode("two"))
		synctest.Wait()
		if diff := cmp.Diff([]string{"/one@1", "/two@2"}, contents(second, all)); diff != "" {
			t.Errorf("the other shard's cache (-want +got):\n%s", diff)
		}

		high.Shutdown()
		checkShared(t, pool)
		again := pool.NewFactory(shard.Everything(), nil)
		defer again.Shutdown()
		third := again.reading(nodes, resource, &v1.Node{})
		again.StartWithContext(t.Context())
		synctest.Wait()
		if diff := cmp.Diff([]string{"/one@1", "/two@2"}, contents(third, all)); diff != "" {
			t.Errorf("a later shard's cache (-want +got):\n%s", diff)
		}
	})
}

// TestStartContextOfOneShard ends the start context of one of two shards, the one that happened to
// start the shared informer.
func TestStartContextOfOneShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := newFakeResource(t)
		low, high := halves(t, newTestPool(t, &apiServer{}, clock.RealClock{}, 0))
		low.reading(nodes, resource, &v1.Node{})
		other := high.reading(nodes, resource, &v1.Node{})
		ctx, cancel := context.WithCancel(t.Context())
		low.StartWithContext(ctx)
		synctest.Wait()
		high.StartWithContext(t.Context())
		cancel()
		synctest.Wait()
		resource.Add(newNode("one"))
		synctest.Wait()
		if diff := cmp.Diff([]string{"/one@1"}, contents(other, all)); diff != "" {
			t.Errorf("the other shard's cache (-want +got):\n%s", diff)
		}
	})
}

func TestHandlersGoWithTheirShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := newFakeResource(t)
		low, high := halves(t, newTestPool(t, &apiServer{}, clock.RealClock{}, 0))
		var gone, removed, stays informertest.Recorder
		ending := low.reading(nodes, resource, &v1.Node{})
		informertest.MustAdd(t, ending, &gone)
		handle := informertest.MustAdd(t, high.reading(nodes, resource, &v1.Node{}), &removed)
		informertest.MustAdd(t, high.reading(nodes, resource, &v1.Node{}), &stays)
		low.StartWithContext(t.Context())
		high.StartWithContext(t.Context())
		synctest.Wait()
		resource.Add(newNode("one"))
		informertest.CheckCalls(t, "the first shard's handler", &gone, "add /one@1 initial=false")
		informertest.CheckCalls(t, "the second shard's handler", &stays, "add /one@1 initial=false")
		removed.Take()

		low.Shutdown()
		if err := high.reading(nodes, resource, &v1.Node{}).RemoveEventHandler(handle); err != nil {
			t.Error(err)
		}
		resource.Add(newNode("two"))
		informertest.CheckCalls(t, "the first shard's handler", &gone)
		informertest.CheckCalls(t, "a removed handler", &removed)
		informertest.CheckCalls(t, "the second shard's handler", &stays, "add /two@2 initial=false")
		shared := high.reading(nodes, resource, &v1.Node{}).(*view).shared
		if n := shared.Handlers(); n != 1 {
			t.Errorf("shared informer has %d handlers, want the one that stays", n)
		}
		if _, err := ending.AddEventHandler(&gone); err == nil {
			t.Error("a shard that has ended took a handler")
		}
	})
}

func TestShutdownWaitsForTheLastCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := newFakeResource(t)
		resource.Add(newNode("one"))
		low, high := halves(t, newTestPool(t, &apiServer{}, clock.RealClock{}, 0))
		block := make(chan struct{})
		informertest.MustAdd(t, low.reading(nodes, resource, &v1.Node{}), cache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-block }})
		high.reading(nodes, resource, &v1.Node{})
		low.StartWithContext(t.Context())
		synctest.Wait()
		ended := make(chan struct{})
		go func() { defer close(ended); low.Shutdown() }()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("Shutdown returned while a handler on a shared informer was at work")
		default:
		}
		close(block)
		<-ended
	})
}

// TestIndexesOfASecondInstance has two instances of a controller add the same index to a shared
// informer, the second one when the informer is full and running.
func TestIndexesOfASecondInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := newFakeResource(t)
		resource.Add(newNode("one"))
		low, high := halves(t, newTestPool(t, &apiServer{}, clock.RealClock{}, 0))
		first, second := low.reading(nodes, resource, &v1.Node{}), high.reading(nodes, resource, &v1.Node{})
		index := func(name string) cache.Indexers {
			return cache.Indexers{name: func(any) ([]string, error) { return []string{"all"}, nil }}
		}
		check := func(i cache.SharedIndexInformer, name string) {
			t.Helper()
			objects, err := i.GetIndexer().ByIndex(name, "all")
			if err != nil || len(objects) != 1 {
				t.Errorf("index %s has %d objects, error %v; want 1, none", name, len(objects), err)
			}
		}
		if err := first.AddIndexers(index("early")); err != nil {
			t.Error(err)
		}
		low.StartWithContext(t.Context())
		high.StartWithContext(t.Context())
		synctest.Wait()
		for _, i := range []cache.SharedIndexInformer{second, first} {
			if err := i.AddIndexers(index("early")); err != nil {
				t.Errorf("the same index was refused: %v", err)
			}
			if err := i.GetIndexer().AddIndexers(index("late")); err != nil {
				t.Errorf("an index was refused: %v", err)
			}
			check(i, "early")
			check(i, "late")
		}
		low.Shutdown()
		check(second, "early")
		if err := first.AddIndexers(index("too late")); err == nil {
			t.Error("a shard that has ended took an index")
		}
	})
}

func TestShutdownOfWhatWasNeverStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newTestPool(t, &apiServer{}, clock.RealClock{}, time.Minute)
		low, high := halves(t, pool)
		for _, f := range []*Factory{low, high, pool.NewFactory(shard.Everything(), nil)} {
			informertest.MustAdd(t, f.reading(nodes, newFakeResource(t), &v1.Node{}), &informertest.Recorder{})
			informertest.MustAdd(t, f.reading(namespaces, newFakeResource(t), &v1.Namespace{}), &informertest.Recorder{})
			informertest.MustAdd(t, f.reading(configMaps, newFakeResource(t), &v1.ConfigMap{}), &informertest.Recorder{})
			defer f.Shutdown()
		}
		low.Shutdown()
		low.Shutdown()
		low.StartWithContext(t.Context())
		if low.HasSynced() != true || len(low.filling()) != 0 {
			t.Errorf("%d informers were started after Shutdown", len(low.filling()))
		}
		high.Shutdown()
		resources := pool.Resources()
		if len(resources) != 3 || slices.Contains(resources, berths) {
			t.Errorf("shared informers: %v, want the three of the shard that has not ended", resources)
		}
	})
}

// TestAskedForAfterShutdown asks a factory that has ended for one more informer, as a controller
// may do that goes through all resources while it stops.
func TestAskedForAfterShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := newFakeResource(t)
		pool := newTestPool(t, &apiServer{}, clock.RealClock{}, 0)
		low, high := halves(t, pool)
		low.Shutdown()
		informertest.MustAdd(t, low.reading(nodes, resource, &v1.Node{}), &informertest.Recorder{})
		informertest.MustAdd(t, low.reading(namespaces, resource, &v1.Namespace{}), &informertest.Recorder{})
		low.StartWithContext(t.Context())
		checkShared(t, pool)
		high.reading(nodes, resource, &v1.Node{})
		low.Shutdown()
		checkShared(t, pool, nodes)
	})
}

func TestNamespacesAreDerived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := newFakeResource(t)
		for _, name := range []string{"alpha", "beta", "gamma"} {
			resource.Add(newNamespace(name))
		}
		pool := newTestPool(t, &apiServer{}, clock.RealClock{}, 0)
		low, high := halves(t, pool)
		inLow, inHigh := low.reading(namespaces, resource, &v1.Namespace{}), high.reading(namespaces, resource, &v1.Namespace{})
		var told informertest.Recorder
		informertest.MustAdd(t, inLow, &told)
		low.StartWithContext(t.Context())
		high.StartWithContext(t.Context())
		informertest.CheckCalls(t, "the low shard", &told, "add /beta@2 initial=true", "add /gamma@3 initial=true")
		if !inLow.HasSynced() || !inHigh.HasSynced() {
			t.Errorf("synced: %t, %t", inLow.HasSynced(), inHigh.HasSynced())
		}
		if n := resource.requests(); n != 2 {
			t.Errorf("two shards made %d requests for namespaces, want a list and a watch", n)
		}

		resource.Add(newNamespace("delta"))
		resource.Modify(newNamespace("beta"))
		resource.Modify(newNamespace("alpha"))
		resource.Delete(newNamespace("gamma"))
		informertest.CheckCalls(t, "the low shard", &told, "update /beta@2 -> /beta@5", "add /delta@4 initial=false", "delete /gamma@7")

		// Changes while the server cannot be reached show only in a list.
		resource.Cut(true)
		resource.Delete(newNamespace("beta"))
		resource.Delete(newNamespace("alpha"))
		resource.Add(newNamespace("bow"))
		resource.Cut(false)
		time.Sleep(time.Minute)
		informertest.CheckCalls(t, "the low shard", &told, "missed /beta@5 beta", "add /bow@10 initial=false")
		if diff := cmp.Diff([]string{"/bow@10", "/delta@4"}, contents(inLow, all)); diff != "" {
			t.Errorf("the low shard's cache (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string(nil), contents(inHigh, all)); diff != "" {
			t.Errorf("the high shard's cache (-want +got):\n%s", diff)
		}

		low.Shutdown()
		checkShared(t, pool, namespaces)
		resource.Add(newNamespace("stern"))
		informertest.CheckCalls(t, "the shard that has ended", &told)
		high.Shutdown()
		checkShared(t, pool)
	})
}

// TestDerivedInformerResyncsOnItsOwn checks that a handler without a resync period receives no
// repetitions, although the process's Namespace informer has a period.
func TestDerivedInformerResyncsOnItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := newFakeResource(t)
		resource.Add(newNamespace("beta"))
		low, _ := halves(t, newTestPool(t, &apiServer{}, clock.RealClock{}, 10*time.Second))
		i := low.reading(namespaces, resource, &v1.Namespace{})
		never, often := informertest.Recorder{Repetitions: true}, informertest.Recorder{Repetitions: true}
		if _, err := i.AddEventHandlerWithOptions(&never, cache.HandlerOptions{ResyncPeriod: ptr.To(time.Duration(0))}); err != nil {
			t.Fatal(err)
		}
		informertest.MustAdd(t, i, &often)
		low.StartWithContext(t.Context())
		time.Sleep(25 * time.Second)
		informertest.CheckCalls(t, "a handler without resync", &never, "add /beta@1 initial=true")
		informertest.CheckCalls(t, "a handler with the default resync", &often,
			"add /beta@1 initial=true", "update /beta@1 -> /beta@1", "update /beta@1 -> /beta@1")
	})
}

// TestShardsPartitionANamespacedKind reads from a server that sends everything, whatever the probe
// has found.
func TestShardsPartitionANamespacedKind(t *testing.T) {
	for _, probed := range []listwatch.Mode{listwatch.ServerSide, listwatch.ClientSide} {
		t.Run(string(probed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { partitionANamespacedKind(t, &apiServer{shards: probed == listwatch.ServerSide}) })
		})
	}
}

func partitionANamespacedKind(t *testing.T, probed *apiServer) {
	resource := newFakeResource(t)
	for _, name := range []string{"alpha", "beta", "gamma"} {
		resource.Add(informertest.ConfigMap(name, "1"))
	}
	pool := newTestPool(t, probed, clock.RealClock{}, 0)
	low, high := halves(t, pool)
	inLow, inHigh := low.reading(configMaps, resource, &v1.ConfigMap{}), high.reading(configMaps, resource, &v1.ConfigMap{})
	low.StartWithContext(t.Context())
	high.StartWithContext(t.Context())
	time.Sleep(time.Second) // virtual: longer than ranges that read together wait for each other
	synctest.Wait()
	resource.Add(informertest.ConfigMap("delta", "1"))
	resource.Delete(informertest.ConfigMap("beta", "1"))
	synctest.Wait()
	if diff := cmp.Diff([]string{"delta/1@4", "gamma/1@3"}, contents(inLow, all)); diff != "" {
		t.Errorf("the low shard's cache (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"alpha/1@1"}, contents(inHigh, all)); diff != "" {
		t.Errorf("the high shard's cache (-want +got):\n%s", diff)
	}
	checkShared(t, pool)
	if got := low.Objects()[configMaps]; got != 2 {
		t.Errorf("Objects() says %d, want 2", got)
	}
	// Three objects and two events: when each range reads alone, each of them is outside one of the
	// two ranges.
	want := map[listwatch.Mode]int64{listwatch.ServerSide: 5, listwatch.ClientSide: 0}[pool.Modes()[configMaps]]
	if got := pool.Discarded(); got != want {
		t.Errorf("discarded %d objects and events, want %d", got, want)
	}
}

// TestOnlyRangeWeighs has a ring with one range, which shares its caches with a group. They count as
// the range's, because a ring that seems to be empty is never split.
func TestOnlyRangeWeighs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := newFakeResource(t)
		for _, name := range []string{"alpha", "beta", "gamma"} {
			resource.Add(informertest.ConfigMap(name, "1"))
		}
		pool := newTestPool(t, &apiServer{}, clock.RealClock{}, 0)
		group, only := pool.NewFactory(shard.Everything(), nil), pool.NewFactory(shard.Everything(), nil)
		only.OnlyRange()
		for _, f := range []*Factory{group, only} {
			defer f.Shutdown()
			f.reading(configMaps, resource, &v1.ConfigMap{})
			f.StartWithContext(t.Context())
		}
		time.Sleep(time.Second) // virtual
		synctest.Wait()
		if got := only.Weights(); !maps.Equal(got, map[string]int64{"alpha": 1, "beta": 1, "gamma": 1}) || only.Objects()[configMaps] != 3 {
			t.Errorf("the only range weighs %v, and has %d objects, want 3 namespaces with one each", got, only.Objects()[configMaps])
		}
		if got := group.Weights(); len(got) > 0 || group.Objects()[configMaps] != 0 {
			t.Errorf("the group weighs %v, and has %d objects of its own, want nothing", got, group.Objects()[configMaps])
		}
		load, _ := only.Load()
		if len(load.Namespaces) != 3 || load.Namespaces["alpha"] == 0 || load.Shared != 0 {
			t.Errorf("the only range takes %+v, want something in each namespace", load)
		}
		sum := load.Namespaces["alpha"] + load.Namespaces["beta"] + load.Namespaces["gamma"]
		if beside, _ := group.Load(); max(beside.Shared-sum, sum-beside.Shared) > 3 || pool.Load() != 0 {
			t.Errorf("the group takes %d bytes, and nobody %d, want %d, as if each had the cache alone, and 0", beside.Shared, pool.Load(), sum)
		}
	})
}

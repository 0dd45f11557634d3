package informer

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
)

// TestHandlersWaitForTheirShard builds a shard while the informer that it shares is full and
// running. Its controllers' handlers must receive nothing before the start, because their
// constructors may not have finished.
func TestHandlersWaitForTheirShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := newFakeResource(t)
		resource.Add(newNode("one"))
		low, high := halves(t, newTestPool(t, &apiServer{}, clock.RealClock{}, 0))
		low.reading(nodes, resource, &v1.Node{})
		low.StartWithContext(t.Context())
		synctest.Wait()

		var early informertest.Recorder
		handle := informertest.MustAdd(t, high.reading(nodes, resource, &v1.Node{}), &early)
		resource.Add(newNode("two"))
		informertest.CheckCalls(t, "a handler of a shard that is being built", &early)
		if handle.HasSynced() {
			t.Error("a handler that was told nothing has synced")
		}

		high.StartWithContext(t.Context())
		informertest.CheckCalls(t, "the handler of the started shard", &early, "add /one@1 initial=true", "add /two@2 initial=true")
		if !handle.HasSynced() {
			t.Error("the handler has not synced though it was told everything")
		}
	})
}

// TestGivenUpShardHearsNothing shuts down a shard that was never started.
func TestGivenUpShardHearsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := newFakeResource(t)
		resource.Add(newNode("one"))
		low, high := halves(t, newTestPool(t, &apiServer{}, clock.RealClock{}, 0))
		low.reading(nodes, resource, &v1.Node{})
		low.StartWithContext(t.Context())
		synctest.Wait()
		var never informertest.Recorder
		informertest.MustAdd(t, high.reading(nodes, resource, &v1.Node{}), &never)
		high.Shutdown()
		informertest.CheckCalls(t, "a handler of a shard that was given up", &never)
	})
}

// TestIndexersOfAViewAreACopy has one shard read the indexes while another adds some, as
// constructors of several groups do.
func TestIndexersOfAViewAreACopy(t *testing.T) {
	low, high := halves(t, newTestPool(t, &apiServer{}, clock.RealClock{}, 0))
	reader := low.reading(nodes, newFakeResource(t), &v1.Node{}).GetIndexer()
	writer := high.reading(nodes, newFakeResource(t), &v1.Node{})
	add := func(name string) {
		if err := writer.AddIndexers(cache.Indexers{name: cache.MetaNamespaceIndexFunc}); err != nil {
			t.Error(err)
		}
	}

	before := reader.GetIndexers()
	add("first")
	if _, changed := before["first"]; changed {
		t.Fatal("what a shard looks at changes when another shard adds an index: a concurrent map read and map write")
	}
	if _, known := reader.GetIndexers()["first"]; !known {
		t.Error("an index that another shard added is not known")
	}

	var both sync.WaitGroup
	both.Go(func() {
		for n := range 200 {
			add(fmt.Sprintf("index-%d", n))
		}
	})
	both.Go(func() {
		for range 200 {
			for name := range reader.GetIndexers() {
				_ = name
			}
		}
	})
	both.Wait()
}

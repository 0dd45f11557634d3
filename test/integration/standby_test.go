package integration

import (
	"context"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/controllers"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
)

// TestStandbyIsCheap measures the cost of a standby of an idle shard: everything except workers and
// queues that fill. It also measures the steps of a handoff on a real API server: building, filling
// caches, and comparing them with the current state.
func TestStandbyIsCheap(t *testing.T) {
	const (
		more          = 7
		maxGoroutines = 500
		maxHeap       = 5 << 20
	)
	c, _ := newConfig(t)
	process, err := controllers.NewProcess(c, controllers.NewEndpoints())
	if err != nil {
		t.Fatal(err)
	}
	var namespaced []controllers.Spec
	for _, s := range specs(t, more+1) {
		if s.ID.Ring == catalogue.NamespacesRing {
			namespaced = append(namespaced, s)
		}
	}
	stand := func(s controllers.Spec) *controllers.Instance {
		began := time.Now()
		i, err := process.Build(context.WithoutCancel(t.Context()), s)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(i.Close)
		built := time.Now()
		if err := i.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		warm := time.Now()
		if err := i.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: built in %v, filled in %v, compared with the current state in %v", s.ID,
			built.Sub(began).Round(time.Millisecond), warm.Sub(built).Round(time.Millisecond), time.Since(warm).Round(time.Millisecond))
		return i
	}
	stand(namespaced[0])
	goroutines, heap := settled(t), liveHeap()
	for _, s := range namespaced[1:] {
		stand(s)
	}
	goroutines, heap = (settled(t)-goroutines)/more, (liveHeap()-heap)/more
	t.Logf("an idle standby costs %d goroutines and %.2f MB of heap", goroutines, float64(heap)/(1<<20))
	if goroutines > maxGoroutines || heap > maxHeap {
		t.Errorf("an idle standby costs %d goroutines and %d bytes of heap, want at most %d and %d", goroutines, heap, maxGoroutines, maxHeap)
	}
}

package queues

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"

	k8smetrics "k8s.io/component-base/metrics"
)

// buckets are fine around 100 ms, where users begin to notice.
var buckets = []float64{.001, .0025, .005, .01, .025, .05, .075, .1, .15, .25, .5, 1, 2.5, 5, 10, 30, 60}

var (
	waited = k8smetrics.NewHistogramVec(&k8smetrics.HistogramOpts{
		Name: "flotilla_shard_queue_duration_seconds", StabilityLevel: k8smetrics.ALPHA, Buckets: buckets,
		Help: "How long items stay in the workqueues of all controllers of the shard before they are processed.",
	}, []string{"ring", "shard"})

	worked = k8smetrics.NewHistogramVec(&k8smetrics.HistogramOpts{
		Name: "flotilla_shard_reconcile_duration_seconds", StabilityLevel: k8smetrics.ALPHA, Buckets: buckets,
		Help: "How long the controllers of the shard take to process an item of their workqueues.",
	}, []string{"ring", "shard"})
)

// Group is the queues of one instance of a shard's controllers. Its methods are safe for concurrent
// use.
type Group struct {
	waited, worked k8smetrics.ObserverMetric

	mu    sync.Mutex
	parts []part
}

// part is a queue's contribution to a gauge that it shares with others.
type part interface {
	// drop takes it out, for good.
	drop()
}

// NewGroup returns a group without queues. An empty ring stands for a process that is not sharded:
// its queues have only upstream's series.
func NewGroup(ring, shard string) *Group {
	registerShards()
	if ring == "" {
		return &Group{waited: none{}, worked: none{}}
	}
	return &Group{waited: waited.WithLabelValues(ring, shard), worked: worked.WithLabelValues(ring, shard)}
}

// Do calls f. Queues that f makes, on this goroutine, belong to the group.
func (g *Group) Do(f func()) {
	id := goroutine()
	groups.set(id, g)
	defer groups.clear(id)
	f()
}

// Close removes the rest of the group's queues from the gauges that they share with other shards.
// Call it once the controllers have returned: from then on the queues do not count.
func (g *Group) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.parts {
		p.drop()
	}
	g.parts = nil
}

// Settle returns once every item that the group's queue of this name held when Settle was called,
// waiting or being processed, has been processed. A single worker must process the queue, in the
// order in which items came. The error says that the group has no such queue, or is the cause of
// ctx's end.
func (g *Group) Settle(ctx context.Context, name string) error {
	w := works.get(name, g)
	if w == nil {
		return fmt.Errorf("no workqueue %q was made within the group", name)
	}
	select {
	case <-w.settled():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (g *Group) add(p part) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.parts = append(g.parts, p)
}

// Forget removes the series of a shard that this process has nothing to do with any more.
func Forget(ring, shard string) {
	labels := map[string]string{"ring": ring, "shard": shard}
	waited.Delete(labels)
	worked.Delete(labels)
}

// groups has the group of each goroutine that is within Do. It goes by goroutines instead of
// building instances one after the other under a lock: constructors ask the API server for its
// resources, and one that has to wait must not delay the other shards, nor get the queues that
// somebody else makes meanwhile.
var groups = byGoroutine{of: map[uint64]*Group{}}

type byGoroutine struct {
	mu sync.RWMutex
	of map[uint64]*Group
}

func (r *byGoroutine) set(goroutine uint64, g *Group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of[goroutine] = g
}

func (r *byGoroutine) clear(goroutine uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, goroutine)
}

// current returns the group of the calling goroutine; nil if it is not within Do.
func (r *byGoroutine) current() *Group {
	id := goroutine()
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.of[id]
}

// goroutine returns the number of the calling goroutine, from the first line of its stack:
// "goroutine 18 [running]:". The HTTP/2 server of the Go project finds it in the same way. It
// returns 0 if the line looks different.
func goroutine() uint64 {
	var line [64]byte
	fields := bytes.Fields(line[:runtime.Stack(line[:], false)])
	if len(fields) < 2 || string(fields[0]) != "goroutine" {
		return 0
	}
	id, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return id
}

type none struct{}

func (none) Observe(float64) {}

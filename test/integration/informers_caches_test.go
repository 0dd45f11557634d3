package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/flotilla-kube/flotilla/pkg/informer"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// shardCaches are the informers of one shard.
type shardCaches struct {
	within  shard.Range
	factory *informer.Factory
	read    map[schema.GroupVersionResource]*readBy
}

// holds returns a filter that uses the API server's own hash.
func (c *shardCaches) holds(s subject) func(metav1.Object) bool {
	start, end, _ := strings.Cut(c.within.String(), "-")
	return func(o metav1.Object) bool {
		name := o.GetNamespace()
		switch {
		case s.isNamespace():
			name = o.GetName()
		case !s.namespaced:
			return true
		}
		hash := "0x" + sharding.HashField(name)
		return !sharding.HexLess(hash, start) && sharding.HexLess(hash, end)
	}
}

// ask makes the shard read a resource.
func (c *shardCaches) ask(t testing.TB, s subject) {
	t.Helper()
	i, err := c.factory.ObjectOrMetadata(s.gvr.GroupResource()).ForResource(s.gvr)
	if err != nil {
		t.Fatal(err)
	}
	b := &readBy{subject: s, informer: i.Informer(), belongs: c.holds(s)}
	b.addReplica(t)
	c.read[s.gvr] = b
}

// synced returns an error unless all of the shard's informers have synced.
func (c *shardCaches) synced() error {
	if !c.factory.HasSynced() {
		return fmt.Errorf("shard %s has not synced", c.within)
	}
	return nil
}

// process is one process's informers, with shards that cover everything.
type process struct {
	name   string
	wire   *wire
	pool   *informer.Pool
	shards []*shardCaches
	// stopped are shards that have been shut down.
	stopped []*shardCaches
}

// startProcess starts informers of the subjects for each range. They end with the test.
func startProcess(t testing.TB, name string, config *rest.Config, ranges []shard.Range, read []subject) *process {
	return startProcessOver(t, newWire(), name, config, ranges, read)
}

func startProcessOver(t testing.TB, w *wire, name string, config *rest.Config, ranges []shard.Range, read []subject) *process {
	t.Helper()
	p := &process{name: name, wire: w}
	config = p.wire.over(config)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	objectMetadata, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if p.pool, err = informer.NewPool(informer.PoolConfig{Client: client, Metadata: objectMetadata}); err != nil {
		t.Fatal(err)
	}
	for _, r := range ranges {
		c := &shardCaches{within: r, factory: p.pool.NewFactory(r, scopeOfCustom), read: map[schema.GroupVersionResource]*readBy{}}
		t.Cleanup(c.factory.Shutdown)
		for _, s := range read {
			c.ask(t, s)
		}
		c.factory.StartWithContext(context.WithoutCancel(t.Context()))
		p.shards = append(p.shards, c)
	}
	return p
}

func scopeOfCustom(gvr schema.GroupVersionResource) (bool, error) {
	for _, s := range subjects {
		if s.gvr == gvr {
			return s.namespaced, nil
		}
	}
	return false, fmt.Errorf("no such resource: %v", gvr)
}

// check compares the caches of all shards with the wanted content.
func (p *process) check(s subject, want content) (fault, difference error) {
	if p.shards[0].read[s.gvr] == nil {
		return nil, nil // not requested yet
	}
	for _, c := range p.stopped {
		for _, r := range c.read[s.gvr].replicas {
			if f, _ := r.check(nil); f != nil {
				return fmt.Errorf("%s, shard %s: %s: %w", p.name, c.within, s.kind, f), nil
			}
		}
	}
	union := content{}
	for _, c := range p.shards {
		got, f, d := c.read[s.gvr].check()
		if f != nil {
			return fmt.Errorf("%s, shard %s: %w", p.name, c.within, f), nil
		}
		if d != nil {
			difference = fmt.Errorf("%s, shard %s: %w", p.name, c.within, d)
			continue
		}
		if !s.partitioned() {
			if d := want.diff(got); d != nil {
				difference = fmt.Errorf("%s, shard %s: %s: %w", p.name, c.within, s.kind, d)
			}
			continue
		}
		for name, version := range got {
			if _, twice := union[name]; twice {
				return fmt.Errorf("%s: %s %s is in two shards", p.name, s.kind, name), nil
			}
			union[name] = version
		}
	}
	if s.partitioned() && difference == nil {
		if d := p.covered(s, want).diff(union); d != nil {
			difference = fmt.Errorf("%s: union of all shards' %s: %w", p.name, s.kind, d)
		}
	}
	return nil, difference
}

// covered leaves out what only stopped shards would see.
func (p *process) covered(s subject, want content) content {
	if len(p.stopped) == 0 {
		return want
	}
	covered := content{}
	for name, version := range want {
		var o metav1.ObjectMeta
		o.Namespace, o.Name, _ = cache.SplitMetaNamespaceKey(name)
		if slices.ContainsFunc(p.shards, func(c *shardCaches) bool { return c.holds(s)(&o) }) {
			covered[name] = version
		}
	}
	return covered
}

// stop shuts one shard down.
func (p *process) stop(i int) {
	c := p.shards[i]
	c.factory.Shutdown()
	for _, b := range c.read {
		for _, r := range b.replicas {
			r.mu.Lock()
			r.over = true
			r.mu.Unlock()
		}
	}
	p.shards = slices.Delete(p.shards, i, i+1)
	p.stopped = append(p.stopped, c)
}

// checkShared fails unless the shards share the right informers. Each must watch what it does not
// share itself, or all together if the server does not filter.
func (p *process) checkShared(t testing.TB, filter informer.Mode) {
	t.Helper()
	shared := map[schema.GroupVersionResource]bool{}
	for _, gvr := range p.pool.Resources() {
		shared[gvr] = true
	}
	for _, s := range subjects {
		if p.shards[0].read[s.gvr] == nil {
			continue
		}
		want := len(p.shards)
		if !s.namespaced || filter == informer.ClientSide {
			want = 1
		}
		eventually(t, func() error {
			if got := p.wire.watches(s.gvr.Resource); got != want {
				return fmt.Errorf("%s: %d watches of %s by %d shards, want %d", p.name, got, s.gvr.Resource, len(p.shards), want)
			}
			return nil
		})
		if want := !s.namespaced || len(p.shards) == 1; shared[s.gvr] != want {
			t.Errorf("%s: informer of %s is shared: %t, want %t", p.name, s.gvr.Resource, shared[s.gvr], want)
		}
	}
}

// checkMode fails unless the server filtered, or did not, as wanted.
func (p *process) checkMode(t testing.TB, want informer.Mode) {
	t.Helper()
	if len(p.shards)+len(p.stopped) == 1 {
		return // it reads everything
	}
	modes := p.pool.Modes()
	for _, s := range subjects {
		if s.namespaced && p.shards[0].read[s.gvr] != nil && modes[s.gvr] != want {
			t.Errorf("%s: filter of %s is at the %s, want %s", p.name, s.gvr.Resource, modes[s.gvr], want)
		}
	}
	if got := p.pool.Discarded(); got > 0 && want == informer.ServerSide {
		t.Errorf("%s: discarded %d objects although the server filters", p.name, got)
	}
}

// randomRanges cuts the keyspace into this many ranges. Half of the bounds are on or beside the
// hash of a name in use, where mistakes show; all of them if exact.
func randomRanges(r *rand.Rand, n int, names []string, exact bool) []shard.Range {
	bounds := map[uint64]bool{}
	for len(bounds) < n-1 {
		bound := r.Uint64()
		if exact || r.IntN(2) == 0 {
			bound = shard.Hash(names[r.IntN(len(names))])
		}
		if !exact && r.IntN(4) == 0 {
			bound++
		}
		if bound != 0 {
			bounds[bound] = true
		}
	}
	ranges := []shard.Range{{}}
	for bound := range bounds {
		ranges = append(ranges, shard.Range{Start: bound})
	}
	slices.SortFunc(ranges, func(a, b shard.Range) int {
		if a.Start < b.Start {
			return -1
		}
		return 1
	})
	for i := range ranges[1:] {
		ranges[i].End = ranges[i+1].Start
	}
	return ranges
}

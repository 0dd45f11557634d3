package fleet

import (
	"context"
	"math"

	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// censusCells is how finely a shard's holder tells what its namespaces weigh: about 30 bytes a
// cell, on each shard's Lease.
const censusCells = 64

// takeCensus says on the Lease what the shard weighs, once in a while until ctx ends, and sooner
// when its objects have become clearly more or fewer.
func (r *shardRunner) takeCensus(ctx context.Context, instance Instance) {
	weigher, ok := instance.(Weigher)
	if !r.shard.Namespaced() || !ok {
		weigher = weighsNothing{}
	}
	loader, ok := instance.(Loader)
	if !ok {
		loader = weighsNothing{}
	}
	every := r.member.config.CensusInterval
	published := int64(0)
	for waited := every; ; {
		r.member.pause(ctx, every/6)
		if ctx.Err() != nil {
			return
		}
		weights := weigher.Weigh()
		total := int64(0)
		for _, n := range weights {
			total += n
		}
		waited += every / 6
		if waited < every && !differs(published, total) {
			continue
		}
		load, loaded := loader.Load()
		if weights == nil && !loaded {
			return // It has ended, or tells nothing.
		}
		r.publish(weights, load, loaded)
		published, waited = total, 0
	}
}

// differs reports whether a number of objects is so far from what was published that this is not to
// wait.
func differs(published, objects int64) bool {
	const few = 100
	difference := max(published-objects, objects-published)
	return difference >= few && difference > published/4
}

// publish says on the Lease what the shard weighs. Each of weights and load may be missing.
func (r *shardRunner) publish(weights map[string]int64, load Load, loaded bool) {
	if loaded {
		takes := leaseapi.ShardMemory{Cached: load.Shared, Fixed: load.Fixed}
		for _, bytes := range load.Namespaces {
			takes.Cached += bytes
		}
		r.update(func(now *standing) { now.takes = &takes })
	}
	if weights == nil {
		return
	}
	census := leaseapi.CensusText(byMemory(weights, load.Namespaces).Compact(censusCells))
	counted := Counted{Namespaces: len(weights)}
	for _, n := range weights {
		counted.Objects += n
	}
	r.update(func(now *standing) { now.census, now.counted = census, &counted })
}

// byMemory returns the census of a shard's objects, in which a namespace has a part of them by what
// its objects take, where that is known. So all cells together weigh as many objects as there are,
// but for rounding.
func byMemory(objects, bytes map[string]int64) shard.Census {
	total, all := int64(0), int64(0)
	for namespace, n := range objects {
		total, all = total+n, all+bytes[namespace]
	}
	if all == 0 {
		return shard.NewCensus(objects)
	}
	weights := make(map[string]int64, len(objects))
	for namespace := range objects {
		weights[namespace] = int64(math.Round(float64(bytes[namespace]) / float64(all) * float64(total)))
	}
	return shard.NewCensus(weights)
}

// weighsNothing stands in for what an Instance need not implement.
type weighsNothing struct{}

// Weigh implements Weigher.
func (weighsNothing) Weigh() map[string]int64 { return nil }

// Load implements Loader.
func (weighsNothing) Load() (Load, bool) { return Load{}, false }

// tellMemory has the member say on its Lease what it takes and uses, until ctx ends. It is not
// asked for with each renewal, which must not wait for it.
func (m *Member) tellMemory(ctx context.Context) {
	if m.config.Memory == nil && m.config.Use == nil {
		return
	}
	for ctx.Err() == nil {
		if m.config.Memory != nil {
			text := m.config.Memory().String()
			m.memory.Store(&text)
		}
		if m.config.Use != nil {
			use := m.config.Use()
			m.use.Store(&use)
		}
		m.pause(ctx, m.config.CensusInterval/6)
	}
}

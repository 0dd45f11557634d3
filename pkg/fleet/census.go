package fleet

import (
	"context"
	"math"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// censusCells is the resolution in which a holder publishes the weight of a shard's namespaces. A
// cell takes about 30 bytes on each shard's Lease.
const censusCells = 64

// takeCensus publishes on the Lease what the shard weighs, periodically until ctx ends, and sooner
// when the number of its objects has clearly changed. sent returns how many writes the shard's work
// has sent so far.
func (r *shardRunner) takeCensus(ctx context.Context, instance Instance, sent func() int64) {
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
	lease := r.member.observer.Get(leaseapi.ShardLease(r.member.config.Fleet, r.shard.ID))
	writes := newRecentWrites(leaseapi.RecentWritesOn(lease), r.member.config.Clock.Now())
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
			return // It has ended, or does not report.
		}
		if n, changed := writes.count(sent(), r.member.config.Clock.Now()); changed {
			r.update(func(now *standing) { now.writing = &n })
		}
		r.publish(weights, load, loaded)
		published, waited = total, 0
	}
}

// differs reports whether a number, of objects or writes, differs so much from what was published
// that it matters.
func differs(published, n int64) bool {
	const few = 100
	difference := max(published-n, n-published)
	return difference >= few && difference > published/4
}

// publish puts the shard's weight on the Lease. Either weights or load may be missing.
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

// byMemory returns the census of a shard's objects. Where the memory of the objects is known, it
// splits the number of objects among namespaces in proportion to memory. The objects of a namespace
// of which nothing has been measured count as average ones. All cells together still weigh as many
// objects as there are, except for rounding.
func byMemory(objects, bytes map[string]int64) shard.Census {
	total, measured, all := int64(0), int64(0), int64(0)
	for namespace, n := range objects {
		total += n
		if bytes[namespace] > 0 {
			measured, all = measured+n, all+bytes[namespace]
		}
	}
	if all == 0 {
		return shard.NewCensus(objects)
	}
	perByte := float64(measured) / float64(all)
	weights := make(map[string]int64, len(objects))
	for namespace, n := range objects {
		weights[namespace] = n
		if bytes[namespace] > 0 {
			weights[namespace] = int64(math.Round(float64(bytes[namespace]) * perByte))
		}
	}
	return shard.NewCensus(weights)
}

// writesFade is how long a write counts: after that time, a little over a third of it is left.
const writesFade = time.Hour

// recentWrites counts the writes of a shard, of which older ones count less and less.
type recentWrites struct {
	n         float64
	at        time.Time
	sent      int64 // by this holder, when n was last counted
	published int64
}

// newRecentWrites goes on from what the previous holder has published.
func newRecentWrites(published int64, now time.Time) *recentWrites {
	return &recentWrites{n: float64(published), at: now, published: published}
}

// count returns how many writes count, given how many this holder has sent in all, and whether that
// has clearly changed.
func (w *recentWrites) count(sent int64, now time.Time) (n int64, changed bool) {
	w.n = w.n*math.Exp(-now.Sub(w.at).Seconds()/writesFade.Seconds()) + float64(sent-w.sent)
	w.at, w.sent = now, sent
	n = int64(math.Round(w.n))
	if changed = differs(w.published, n); changed {
		w.published = n
	}
	return n, changed
}

// weighsNothing stands in for interfaces that an Instance does not implement.
type weighsNothing struct{}

// Weigh implements Weigher.
func (weighsNothing) Weigh() map[string]int64 { return nil }

// Load implements Loader.
func (weighsNothing) Load() (Load, bool) { return Load{}, false }

// tellMemory publishes on the member's Lease what the member takes and uses, until ctx ends. It
// runs apart from renewals, which must not wait for it.
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

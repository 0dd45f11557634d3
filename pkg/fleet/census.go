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
// when the number of its objects has clearly changed; pace says how soon. sent returns how many
// writes the shard's work has sent so far.
func (r *shardRunner) takeCensus(ctx context.Context, instance Instance, sent func() int64) {
	weigher, ok := instance.(Weigher)
	if !r.shard.Namespaced() || !ok {
		weigher = weighsNothing{}
	}
	loader, ok := instance.(Loader)
	if !ok {
		loader = weighsNothing{}
	}
	config := &r.member.config
	lease := r.member.observer.Get(leaseapi.ShardLease(config.Fleet, r.shard.ID))
	writes := newRecentWrites(leaseapi.RecentWritesOn(lease), config.Clock.Now())
	pace := pace{every: config.CensusInterval, urgent: config.Replanning.Urgent}
	for {
		r.member.pause(ctx, config.CensusInterval/6)
		if ctx.Err() != nil {
			return
		}
		weights := weigher.Weigh()
		total := int64(0)
		for _, n := range weights {
			total += n
		}
		now := config.Clock.Now()
		if !pace.due(total, now) {
			continue
		}
		load, loaded := loader.Load()
		if weights == nil && !loaded {
			return // It has ended, or does not report.
		}
		r.publish(weights, load, loaded, writes.count(sent(), now))
		pace.published(total, now)
	}
}

// pace decides when a holder publishes, by the number of objects: every interval, and sooner if it
// differs clearly from what is published. It never lets more than two publications fall into one
// interval: each is an event for every member. The two are half an interval apart, unless the
// number has grown by so much that the planner may have to act at once.
type pace struct {
	// every is the interval. urgent is by how many times the number must have grown.
	every  time.Duration
	urgent float64
	// last and before are when the last two publications were; zero if there were none. objects is
	// the number at the last one.
	last, before time.Time
	objects      int64
}

// due reports whether to publish at now.
func (p *pace) due(objects int64, now time.Time) bool {
	since := now.Sub(p.last)
	switch {
	case p.last.IsZero() || since >= p.every:
		return true
	case now.Sub(p.before) < p.every || !differs(p.objects, objects):
		return false
	}
	return since >= p.every/2 || float64(objects) > p.urgent*float64(p.objects)
}

// published records a publication.
func (p *pace) published(objects int64, now time.Time) {
	p.last, p.before, p.objects = now, p.last, objects
}

// differs reports whether a number, of objects or writes, differs so much from what was published
// that it matters.
func differs(published, n int64) bool {
	const few = 100
	difference := max(published-n, n-published)
	return difference >= few && difference > published/4
}

// publish puts the shard's weight on the Lease, all of it with one write. Either weights or load may
// be missing. writes is the number of recent writes; nil if it has not changed clearly.
func (r *shardRunner) publish(weights map[string]int64, load Load, loaded bool, writes *int64) {
	var takes *leaseapi.ShardMemory
	if loaded {
		takes = &leaseapi.ShardMemory{Cached: load.Shared, Fixed: load.Fixed}
		for _, bytes := range load.Namespaces {
			takes.Cached += bytes
		}
	}
	census, counted := "", &Counted{Namespaces: len(weights)}
	if weights != nil {
		census = leaseapi.CensusText(byMemory(weights, load.Namespaces).Compact(censusCells))
		for _, n := range weights {
			counted.Objects += n
		}
	}
	r.update(func(now *standing) {
		if writes != nil {
			now.writing = writes
		}
		if takes != nil {
			now.takes = takes
		}
		if census != "" {
			now.census, now.counted = census, counted
		}
	})
	r.claimant.Touch() // to write it before the next publication is due
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

// count returns how many writes count, given how many this holder has sent in all; nil if that has
// not clearly changed.
func (w *recentWrites) count(sent int64, now time.Time) *int64 {
	w.n = w.n*math.Exp(-now.Sub(w.at).Seconds()/writesFade.Seconds()) + float64(sent-w.sent)
	w.at, w.sent = now, sent
	n := int64(math.Round(w.n))
	if !differs(w.published, n) {
		return nil
	}
	w.published = n
	return &n
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

package fleet

import (
	"context"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// censusCells is how finely a shard's holder tells what its namespaces weigh: about 30 bytes a cell, on each shard's Lease.
const censusCells = 64

// takeCensus says on the Lease what the shard's namespaces weigh, once in a while until ctx ends. It is written with the next
// renewal, so that it costs no request.
func (r *shardRunner) takeCensus(ctx context.Context, instance Instance) {
	weigher, ok := instance.(Weigher)
	if !ok || !r.shard.Namespaced() {
		return
	}
	for pause := r.member.config.CensusInterval / 6; ctx.Err() == nil; pause = r.member.config.CensusInterval {
		r.member.pause(ctx, pause)
		if ctx.Err() == nil {
			census := shard.NewCensus(weigher.Weigh()).Compact(censusCells).String()
			r.census.Store(&census)
		}
	}
}

// censusOf returns what the holders of a ring's shards have published, and whether all of them have. What a Lease says of
// other parts of the keyspace than its own is left out.
func censusOf(fleet string, ring shard.Ring, get func(lease string) election.Observation) (shard.Census, bool) {
	var parts []shard.Census
	complete := true
	for _, s := range ring.Shards {
		text, published := get(ShardLease(fleet, s.ID)).Annotations[CensusAnnotation]
		part, err := shard.ParseCensus(text)
		if !published || err != nil {
			complete = false
			continue
		}
		parts = append(parts, part.Within(s.Range))
	}
	return shard.Merge(parts...), complete
}

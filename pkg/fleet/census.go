package fleet

import (
	"context"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// censusCells is how finely a shard's holder tells what its namespaces weigh: about 30 bytes a cell, on each shard's Lease.
const censusCells = 64

// noNamespaces is the census of a shard without namespaces, on its Lease: an empty annotation would be none at all.
const noNamespaces = "none"

func censusText(census shard.Census) string {
	if len(census) == 0 {
		return noNamespaces
	}
	return census.String()
}

// CensusOn returns what the shard's holder has published on its Lease, and whether it has published anything that can be read.
func CensusOn(lease election.Observation) (census shard.Census, published bool) {
	text := lease.Annotations[CensusAnnotation]
	if text == noNamespaces {
		return nil, true
	}
	census, err := shard.ParseCensus(text)
	return census, text != "" && err == nil
}

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
			weights := weigher.Weigh()
			if weights == nil {
				return // It has ended.
			}
			census := censusText(shard.NewCensus(weights).Compact(censusCells))
			r.census.Store(&census)
			counted := Counted{Namespaces: len(weights)}
			for _, n := range weights {
				counted.Objects += n
			}
			r.counted.Store(&counted)
		}
	}
}

// CensusOf returns what the holders of a ring's shards have published on their Leases, and whether all of them have. It is
// what the planner goes by. What a Lease says of other parts of the keyspace than its own is left out; get returns the Lease
// of a name, or anything without annotations.
func CensusOf(fleet string, ring shard.Ring, get func(lease string) election.Observation) (census shard.Census, complete bool) {
	var parts []shard.Census
	complete = true
	for _, s := range ring.Shards {
		part, published := CensusOn(get(ShardLease(fleet, s.ID)))
		if !published {
			complete = false
			continue
		}
		parts = append(parts, part.Within(s.Range))
	}
	return shard.Merge(parts...), complete
}

// Covers returns whether what a shard's Lease says that it covers overlaps with the extent, and whether it is the same. A
// Lease that does not say, or says what nobody can read, overlaps with everything; one that does not name its controllers is
// taken to be the same.
func Covers(lease election.Observation, e shard.Extent) (overlaps, same bool) {
	c := coverOf(lease)
	return c.overlaps(e), c.any || c.Equal(e)
}

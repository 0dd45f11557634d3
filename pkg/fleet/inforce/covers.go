package inforce

import (
	"sync"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Covers caches what shards' Leases say they cover: every waiting shard asks at each event, and
// usually only one Lease has changed. The zero value is empty.
type Covers struct {
	mu sync.Mutex
	// known has the latest reading of each Lease, by name.
	known map[string]coverRead
}

// coverRead is what one version of a Lease says.
type coverRead struct {
	version string
	cover   leaseapi.Cover
	// planned is set if the Lease belongs to a shard in this plan, with the same extent.
	plan    *Plan
	planned bool
}

// Of returns what a shard's Lease covers, and whether the Lease belongs to a shard in the plan with
// the same extent. Two such shards never overlap. A Lease of a planned name that says that it
// covers something else is from before the plan was started from scratch.
func (c *Covers) Of(o election.Observation, fleet string, plan *Plan) (leaseapi.Cover, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, known := c.known[o.Name]
	fresh := known && o.ResourceVersion != "" && last.version == o.ResourceVersion
	if fresh && last.plan == plan {
		return last.cover, last.planned
	}
	next := coverRead{version: o.ResourceVersion, cover: last.cover, plan: plan}
	if !fresh {
		next.cover = leaseapi.CoverOn(o)
	}
	id, planned := plan.ShardOf(fleet, o.Name)
	next.planned = planned && next.cover.Same(plan.extents[id])
	if c.known == nil {
		c.known = map[string]coverRead{}
	}
	c.known[o.Name] = next
	return next.cover, next.planned
}

// Overlapping returns those of the fleet's Leases that belong to other shards and cover some of
// what the shard covers.
func (c *Covers) Overlapping(s leaseapi.Snapshot, plan *Plan, id shard.ID, extent shard.Extent) []election.Observation {
	var found []election.Observation
	own := leaseapi.ShardLease(s.Fleet(), id)
	for _, o := range s.Leases() {
		if o.Name == own || !s.IsShard(o) {
			continue
		}
		if says, planned := c.Of(o, s.Fleet(), plan); !planned && says.Overlaps(extent) {
			found = append(found, o)
		}
	}
	c.keep(len(s.Leases()))
	return found
}

// keep empties the cache once it is much larger than the number of Leases.
func (c *Covers) keep(leases int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) > 2*leases {
		c.known = nil
	}
}

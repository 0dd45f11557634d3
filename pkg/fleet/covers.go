package fleet

import (
	"sync"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// covers caches what shards' Leases say they cover: every waiting shard asks at each event, and
// usually only one Lease has changed. The zero value is empty. Its methods are safe for concurrent
// use.
type covers struct {
	mu sync.Mutex
	// known has the latest reading of each Lease, by name.
	known map[string]coverRead
}

// coverRead is what one version of a Lease says.
type coverRead struct {
	version string
	cover   leaseapi.Cover
	// planned is set if the Lease belongs to a shard in this plan, with the same extent.
	plan    *inForce
	planned bool
}

// of returns what a shard's Lease covers, and whether the Lease belongs to a shard in the plan with
// the same extent.
func (c *covers) of(o election.Observation, fleet string, plan *inForce) (leaseapi.Cover, bool) {
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
	id, planned := plan.shardOf(fleet, o.Name)
	next.planned = planned && next.cover.Same(plan.extents[id])
	if c.known == nil {
		c.known = map[string]coverRead{}
	}
	c.known[o.Name] = next
	return next.cover, next.planned
}

// keep empties the cache once it is much larger than the number of Leases.
func (c *covers) keep(leases int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) > 2*leases {
		c.known = nil
	}
}

package fleet

import (
	"sync"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// covers remembers what shards' Leases say that they cover: every shard that waits for others asks
// at each event, and one Lease has changed since. The zero value is empty. Its methods are safe for
// concurrent use.
type covers struct {
	mu sync.Mutex
	// known are what was read last, by the Lease's name.
	known map[string]coverRead
}

// coverRead is what one version of a Lease says.
type coverRead struct {
	version string
	cover   leaseapi.Cover
	// planned: it is the Lease of a shard in this plan, with the same extent.
	plan    *inForce
	planned bool
}

// of returns what a shard's Lease covers, and whether it is that of a shard in the plan, with the
// same extent.
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

// keep forgets everything once it has become much more than there are Leases.
func (c *covers) keep(leases int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) > 2*leases {
		c.known = nil
	}
}

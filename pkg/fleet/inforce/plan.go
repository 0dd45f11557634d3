package inforce

import (
	"strings"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Plan is a plan and what follows from it, computed once. It is immutable.
type Plan struct {
	shard.Plan
	digest  string
	extents map[shard.ID]shard.Extent
	// leases has the shards by Lease name, without the fleet's prefix.
	leases map[string]shard.ID
	shards []shard.Shard
	strips []strip
}

// New returns the plan with what follows from it. The plan must be valid, and must not be changed
// afterwards.
func New(plan shard.Plan) *Plan {
	p := &Plan{Plan: plan, digest: plan.Digest(), extents: plan.Extents(), leases: map[string]shard.ID{}, shards: plan.Shards()}
	for id := range p.extents {
		p.leases[id.Ring+"-"+id.Name] = id
	}
	p.strips = stripsOf(p.shards, p.extents)
	return p
}

// Digest returns the plan's digest.
func (p *Plan) Digest() string { return p.digest }

// Extents returns what each shard covers. The map must not be changed.
func (p *Plan) Extents() map[shard.ID]shard.Extent { return p.extents }

// Shards returns all shards, sorted by ID. The slice must not be changed.
func (p *Plan) Shards() []shard.Shard { return p.shards }

// ShardOf returns the shard of the plan whose Lease has this name, and whether there is one.
func (p *Plan) ShardOf(fleet, lease string) (shard.ID, bool) {
	name, ours := strings.CutPrefix(lease, fleet+"-")
	if !ours { // a leader lock, say
		return shard.ID{}, false
	}
	id, found := p.leases[name]
	return id, found
}

// Has reports whether the shard is in the plan, with the same extent.
func (p *Plan) Has(s shard.ID, e shard.Extent) bool {
	extent, found := p.extents[s]
	return found && extent.Equal(e)
}

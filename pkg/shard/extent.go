package shard

import (
	"slices"
)

// Extent is what a shard covers: its controllers, each on all namespaces of its range. A group of
// cluster-scoped controllers has the whole keyspace. Two members must never run shards with
// overlapping extents at the same time.
type Extent struct {
	Range       Range
	Controllers []string
}

// Overlaps reports whether the extents share a controller and their ranges share a part of the
// keyspace.
func (e Extent) Overlaps(other Extent) bool {
	return e.Range.Overlaps(other.Range) &&
		slices.ContainsFunc(e.Controllers, func(c string) bool { return slices.Contains(other.Controllers, c) })
}

// Equal reports whether both extents are equal; the order of controllers does not matter.
func (e Extent) Equal(other Extent) bool {
	return e.Range == other.Range && joinSorted(e.Controllers) == joinSorted(other.Controllers)
}

// Extent returns what the shard covers; false if it is not in the plan.
func (p Plan) Extent(id ID) (Extent, bool) {
	s, found := p.Shard(id)
	if !found {
		return Extent{}, false
	}
	return Extent{Range: s.Range, Controllers: p.ControllersOf(id)}, true
}

// Extents returns what each shard of the plan covers.
func (p Plan) Extents() map[ID]Extent {
	all := map[ID]Extent{}
	for _, r := range p.Rings {
		for _, s := range r.Shards {
			e := Extent{Range: s.Range, Controllers: r.Controllers}
			if !s.Namespaced() {
				e.Controllers = s.Controllers
			}
			all[s.ID] = e
		}
	}
	return all
}

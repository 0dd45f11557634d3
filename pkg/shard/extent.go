package shard

import (
	"slices"
)

// Extent is what a shard covers: its controllers, each on all namespaces of its
// range. A group of cluster-scoped controllers has the whole keyspace. At no
// time may two members run shards whose extents overlap.
type Extent struct {
	Range       Range
	Controllers []string
}

// Overlaps reports whether some controller is in both extents, and some
// namespace in both ranges.
func (e Extent) Overlaps(other Extent) bool {
	return e.Range.Overlaps(other.Range) &&
		slices.ContainsFunc(e.Controllers, func(c string) bool { return slices.Contains(other.Controllers, c) })
}

// Equal reports whether both extents are the same, in whatever order their
// controllers are listed.
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

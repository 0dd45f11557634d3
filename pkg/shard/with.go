package shard

import "maps"

// With returns the placement with these owners for some of its shards.
func (p Placement) With(owners map[ID]string) Placement {
	if len(owners) == 0 {
		return p
	}
	all := maps.Clone(p.owners)
	maps.Copy(all, owners)
	return placementOf(all)
}

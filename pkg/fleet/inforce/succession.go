package inforce

import (
	"cmp"
	"iter"
	"slices"

	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// strip has shards with the same controllers, by their indexes in the plan in force, sorted by
// range. No two of them overlap.
type strip struct {
	controllers []string
	shards      []int
}

func stripsOf(shards []shard.Shard, extents map[shard.ID]shard.Extent) []strip {
	var strips []strip
	of := map[string]int{} // the strip of each ring of ranges
	for i, s := range shards {
		at, known := of[s.ID.Ring]
		if !known || !s.Namespaced() {
			at = len(strips)
			strips = append(strips, strip{controllers: extents[s.ID].Controllers})
		}
		if s.Namespaced() {
			of[s.ID.Ring] = at
		}
		strips[at].shards = append(strips[at].shards, i)
	}
	for _, st := range strips {
		slices.SortFunc(st.shards, func(a, b int) int { return cmp.Compare(shards[a].Range.Start, shards[b].Range.Start) })
	}
	return strips
}

// successorsOf yields the index of each shard that covers some of the same.
func (p *Plan) successorsOf(c leaseapi.Cover) iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, st := range p.strips {
			if !c.Any && !slices.ContainsFunc(c.Controllers, func(name string) bool { return slices.Contains(st.controllers, name) }) {
				continue
			}
			first, _ := slices.BinarySearchFunc(st.shards, c.Range, func(i int, r shard.Range) int {
				if end := p.shards[i].Range.End; end != 0 && end <= r.Start {
					return -1
				}
				return 1
			})
			for _, i := range st.shards[first:] {
				if !p.shards[i].Range.Overlaps(c.Range) {
					break
				}
				if !yield(i) {
					return
				}
			}
		}
	}
}

// SuccessorsReady returns a function that reports whether all successors of a shard that is not in
// the plan wait only for its release. Successors that already run, because somebody has edited
// Leases, also count as ready. Successors linked through shared predecessors must be ready too.
// Then the shard can drain, and none of its parts is unowned for long. A successor is not ready as
// long as a member that refuses the plan holds one of its predecessors: that member keeps it.
func (p *Plan) SuccessorsReady(s leaseapi.Snapshot, covers *Covers) func(shard.Extent) bool {
	// Shards with a common predecessor wait for each other. first leads to the smallest index of
	// each such set.
	first := make([]int, len(p.shards))
	for i := range first {
		first[i] = i
	}
	find := func(i int) int {
		for first[i] != i {
			first[i] = first[first[i]]
			i = first[i]
		}
		return i
	}
	refusers := leaseapi.Refusers(s.Roster().Members(), p.Generation)
	var kept []int // of each shard that a refusing member keeps, one successor
	for _, o := range s.Leases() {
		if !s.IsShard(o) {
			continue
		}
		says, planned := covers.Of(o, s.Fleet(), p)
		if planned || !s.IsHeld(o) {
			continue
		}
		last := -1
		for i := range p.successorsOf(says) {
			if last >= 0 {
				a, b := find(last), find(i)
				first[max(a, b)] = min(a, b)
			}
			last = i
		}
		if last >= 0 && refusers[o.Holder] {
			kept = append(kept, last)
		}
	}
	late := make([]bool, len(p.shards))
	for _, i := range kept {
		late[find(i)] = true
	}
	for i := range p.shards {
		if !s.IsReady(s.Shard(p.shards[i].ID)) {
			late[find(i)] = true
		}
	}
	return func(extent shard.Extent) bool {
		for i := range p.successorsOf(leaseapi.Cover{Extent: extent}) {
			if late[find(i)] {
				return false
			}
		}
		return true
	}
}

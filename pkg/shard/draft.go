package shard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// part is a shard in the making: a range, and its future home.
type part struct {
	cells    Census
	rng      Range
	weight   int64
	heaviest int64 // weight of the heaviest cell
	old      int   // index of the current shard with this range, or -1
	home     int   // index of the member, or -1 while it has none
	pinned   bool  // its home stays, and its weight with it for good
	resting  bool  // its home stays for now
	whole    bool  // its range stays
}

// stays reports whether the part's home stays.
func (p part) stays() bool { return p.pinned || p.resting }

// cutCost is the weight that must stop if the part is cut, merged or both: none if it is new in
// this draft.
func (p part) cutCost() int64 {
	if p.old < 0 {
		return 0
	}
	return p.weight
}

// draft is one ring while Propose works on it.
type draft struct {
	limits  Limits
	members []string
	current Plan
	ring    Ring // with its shards by range
	olds    map[Range]int
	strays  []int // indexes of current shards whose home is gone
	was     []int // member of each current shard
	parts   []part

	loads, held []int64 // of each member: all weight, and what stays with it: what is pinned, and what it carries beside the ring
	groups      map[ID]int64
	counts      []int   // of each member: its parts
	total       int64   // of the ring, without what members carry beside it
	level       float64 // fair share of a member without a lump beyond it
	most        int     // number of parts not to be exceeded
	steps0      int     // steps done under the budget
	spent0      int64   // what was spent before the budget applied
	frugal      bool    // members came or went: no more than is needed
	joining     bool    // a member gets its first weight
	freshOnly   bool    // the budget is spent, on a part not yet dealt with
}

func newDraft(plan Plan, ring string, weights Weights, members []string, limits Limits, resting map[ID]bool) (*draft, error) {
	r, found := plan.Ring(ring)
	switch {
	case !found:
		return nil, fmt.Errorf("ring %q: is not in the plan", ring)
	case r.Scope != ScopeNamespaced:
		return nil, fmt.Errorf("ring %q: scope is %s, must be %s to be balanced by weight", ring, r.Scope, ScopeNamespaced)
	case len(members) == 0:
		return nil, fmt.Errorf("ring %q: must have at least one member", ring)
	}
	homes, err := plan.HomesOf(ring, members)
	if err != nil {
		return nil, err
	}
	r.Shards = slices.Clone(r.Shards)
	slices.SortFunc(r.Shards, func(a, b Shard) int { return cmp.Compare(a.Range.Start, b.Range.Start) })
	d := &draft{
		limits: limits, members: members, current: plan, ring: r, olds: make(map[Range]int, len(r.Shards)),
		loads: make([]int64, len(members)), held: make([]int64, len(members)), counts: make([]int, len(members)),
		groups: weights.Groups,
	}
	for m, name := range members {
		d.loads[m], d.held[m] = weights.carriedBy(name), weights.carriedBy(name)
	}
	d.most = min(limits.MostShardsPerMember*len(members), MaxShards-len(plan.Shards())+len(r.Shards))
	for i, s := range r.Shards {
		owner, _ := homes.Owner(s.ID)
		home, _ := slices.BinarySearch(members, owner)
		d.olds[s.Range] = i
		d.was = append(d.was, home)
		p := d.newPart(s.Range, weights.Census.Within(s.Range), home)
		p.pinned = s.Pin != "" && contains(members, s.Pin)
		p.resting = resting[s.ID] && s.homeAmong(members) != ""
		p.whole = s.Pin != "" || resting[s.ID] || slices.ContainsFunc(r.Isolate, func(name string) bool { return onlyHash(Hash(name)) == s.Range })
		if s.PreferredMember() != "" && s.homeAmong(members) == "" {
			d.strays = append(d.strays, i)
		}
		d.parts = append(d.parts, p)
		d.total += p.weight
		d.add(p, +1)
	}
	d.level = d.fairLevel()
	return d, nil
}

func (d *draft) newPart(rng Range, cells Census, home int) part {
	p := part{rng: rng, cells: cells, weight: cells.Total(), home: home, old: -1}
	if i, found := d.olds[rng]; found {
		p.old = i
	}
	for _, c := range cells {
		p.heaviest = max(p.heaviest, c.Weight)
	}
	return p
}

// add counts the part at its home (sign +1), or stops counting it (-1).
func (d *draft) add(p part, sign int64) {
	if p.home < 0 {
		return
	}
	d.loads[p.home] += sign * p.weight
	d.counts[p.home] += int(sign)
	if p.pinned {
		d.held[p.home] += sign * p.weight
	}
}

// fairLevel returns the mean weight of the members, leaving out members that have a lump beyond it,
// and their lumps. A lump is a cell, or everything that stays with one member for good. Weight that
// only rests with a member counts for the mean: without it, others would shuffle what they are to
// get of it.
func (d *draft) fairLevel() float64 {
	var lumps []int64
	for _, p := range d.parts {
		if !p.pinned {
			for _, c := range p.cells {
				lumps = append(lumps, c.Weight)
			}
		}
	}
	lumps = append(lumps, d.held...)
	slices.SortFunc(lumps, func(a, b int64) int { return cmp.Compare(b, a) })
	rest, n := int64(0), int64(len(d.members))
	for _, load := range d.loads {
		rest += load
	}
	for _, lump := range lumps {
		if n == 1 || lump <= rest/n {
			break
		}
		rest, n = rest-lump, n-1
	}
	return float64(rest) / float64(n)
}

// fair returns the member's fair share of the weight: the level, or its heaviest lump if that is
// more.
func (d *draft) fair(member int) float64 {
	lump := d.held[member]
	for _, p := range d.parts {
		if p.home == member {
			lump = max(lump, p.heaviest)
		}
	}
	return max(d.level, float64(lump))
}

// ExcessOf finds the member that is furthest above its fair weight, and returns its weight as a
// multiple of that, and the difference. Fair is an even share, or the heaviest of what stays with
// the member whatever the plan, such as what is pinned to it, if that is more; members with such a
// lump do not count for the others' share. It returns 1 and 0 if the ring cannot be drawn.
func ExcessOf(plan Plan, ring string, weights Weights, members []string) (times float64, excess int64) {
	d, err := newDraft(plan, ring, weights, sortedUnique(members, strings.Compare), DefaultLimits(), nil)
	if err != nil || d.level <= 0 {
		return 1, 0
	}
	times = 1
	for m, load := range d.loads {
		fair := d.fair(m)
		if t := float64(load) / fair; t > times {
			times, excess = t, load-int64(fair)
		}
	}
	return times, excess
}

// move gives cells [from, to) of the i-th part to the member, as a separate part if they are not
// all.
func (d *draft) move(i, from, to, member int) {
	p := d.parts[i]
	d.add(p, -1)
	if from == 0 && to == len(p.cells) {
		p.home = member
		d.parts[i] = p
		d.add(p, +1)
		return
	}
	var parts []part
	cut := func(from, to, home int) {
		if from == to {
			return
		}
		rng := p.rng
		if from > 0 {
			rng.Start = p.cells[from].Hash
		}
		if to < len(p.cells) {
			rng.End = p.cells[to].Hash
		}
		parts = append(parts, d.newPart(rng, p.cells[from:to], home))
	}
	cut(0, from, p.home)
	cut(from, to, member)
	cut(to, len(p.cells), p.home)
	for _, q := range parts {
		d.add(q, +1)
	}
	d.parts = slices.Replace(d.parts, i, i+1, parts...)
}

// spent returns what the draft moves and cuts, as in Proposal.
func (d *draft) spent() (moved, cut int64) {
	for _, p := range d.parts {
		if p.old >= 0 {
			if p.home != d.was[p.old] {
				moved += p.weight
			}
			continue
		}
		cut += p.weight
		for _, i := range d.madeOf(p) {
			if d.was[i] != p.home {
				moved += p.cells.Within(d.ring.Shards[i].Range).Total()
			}
		}
	}
	return moved, cut
}

// madeOf returns the indexes of the current shards that the part overlaps.
func (d *draft) madeOf(p part) []int {
	i, exact := slices.BinarySearchFunc(d.ring.Shards, p.rng.Start, func(s Shard, start uint64) int { return cmp.Compare(s.Range.Start, start) })
	if !exact {
		i--
	}
	var of []int
	for ; i < len(d.ring.Shards) && d.ring.Shards[i].Range.Overlaps(p.rng); i++ {
		of = append(of, i)
	}
	return of
}

// snapshot returns a function that restores the draft to its current state.
func (d *draft) snapshot() func() {
	parts, loads, held, counts := slices.Clone(d.parts), slices.Clone(d.loads), slices.Clone(d.held), slices.Clone(d.counts)
	return func() { d.parts, d.loads, d.held, d.counts = parts, loads, held, counts }
}

// afford does one step under the budget of a round. If that exceeds the budget, it undoes the step
// and returns false. The first step may exceed it, and what it cuts may then still be dealt out,
// since it stops anyway.
func (d *draft) afford(step func()) bool {
	back := d.snapshot()
	step()
	moved, cut := d.spent()
	if over := float64(moved+cut-d.spent0) > d.limits.MaxRound*float64(d.total); over && !d.freshOnly {
		if d.steps0 > 0 {
			back()
			return false
		}
		d.freshOnly = true
	}
	d.steps0++
	return true
}

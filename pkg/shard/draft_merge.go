package shard

import (
	"cmp"
	"math"
	"slices"
)

// tidy merges neighbours. It merges any when there are clearly more shards than wanted (half way to
// the most), and cheap ones when there are more than wanted and something changes anyway. Except
// for cheap ones, it merges neighbours of different homes only when there are more than the most.
func (d *draft) tidy() {
	wanted := d.limits.ShardsPerMember * len(d.members)
	clearly := (wanted + d.most) / 2
	if len(d.parts) > clearly {
		for len(d.parts) > wanted {
			upTo := 0.0
			if len(d.parts) > d.most {
				upTo = d.level * d.limits.Trigger
			}
			if !d.mergeBest(d.total, upTo) {
				break
			}
		}
	}
	if d.changed() {
		cheap := d.total / int64(4*wanted)
		for len(d.parts) > wanted && d.mergeBest(cheap, d.level) {
		}
	}
}

// mergeBest merges the two neighbours that cost least. It returns false if none cost at most the
// limit, or if the budget does not allow it. For upTo see bestMerge.
func (d *draft) mergeBest(limit int64, upTo float64) bool {
	if d.freshOnly {
		limit = 0
	}
	best, found := d.bestMerge(upTo, -1)
	return found && best.cost <= limit && d.afford(func() { d.merge(best) })
}

// merging is a way to merge the i-th part with the next one.
type merging struct {
	i    int
	home int   // where the part will be
	cost int64 // weight that stops, and weight that moves
	load int64 // what that member then has, if some of it moves
}

// bestMerge returns the merging that costs least, among neighbours with one home and among others
// after which no member that gains weight has more than upTo. Of equals, it returns the one that
// leaves the gaining member with least. If leaver is not -1, the number of its parts must fall.
func (d *draft) bestMerge(upTo float64, leaver int) (best merging, found bool) {
	consider := func(i int, p, q part) { // p goes to q
		if p.whole || q.whole || leaver >= 0 && p.home != leaver || q.home < 0 && p.home >= 0 {
			return
		}
		m := merging{i: i, home: q.home, cost: p.cutCost() + q.cutCost()}
		if p.home != q.home {
			m.cost += p.weight
			m.load = d.loads[q.home] + p.weight
			if upTo == 0 || p.weight > 0 && float64(m.load) > upTo {
				return
			}
		}
		if !found || cmp.Or(cmp.Compare(m.cost, best.cost), cmp.Compare(m.load, best.load)) < 0 {
			best, found = m, true
		}
	}
	for i := range d.parts[1:] {
		p, q := d.parts[i], d.parts[i+1]
		consider(i, p, q)
		consider(i, q, p)
	}
	return best, found
}

// withRoom looks for a way to take weight from the giver after making room: a member merges or
// swaps away one shard, or the ring has one fewer. It does that and then the best step, or nothing
// and returns false.
func (d *draft) withRoom(giver int) bool {
	if len(d.parts) >= d.most {
		if m, found := d.bestMerge(d.level, -1); found && d.tryFirst(giver, func() { d.merge(m) }) {
			return true
		}
	}
	for member, n := range d.counts {
		if n < d.limits.MostShardsPerMember || float64(d.loads[member]) >= d.level {
			continue
		}
		m, merge := d.bestMerge(d.level, member)
		i, to, swap := d.lightest(member)
		if swap && (!merge || d.parts[i].weight <= m.cost) {
			if d.tryFirst(giver, func() { d.move(i, 0, len(d.parts[i].cells), to) }) {
				return true
			}
		}
		if merge && d.tryFirst(giver, func() { d.merge(m) }) {
			return true
		}
	}
	return false
}

// tryFirst does first and then the best step from the giver. It keeps both only if there is such a
// step, both together make the ring more even, and the budget allows both.
func (d *draft) tryFirst(giver int, first func()) bool {
	back, before, heaviest := d.snapshot(), d.unevenness(), slices.Max(d.loads)
	first()
	best, found := d.bestFrom(giver)
	if found {
		d.take(best)
		found = d.unevenness() <= before-d.gain() && slices.Max(d.loads) <= heaviest
	}
	back()
	return found && d.afford(func() {
		first()
		d.take(best)
	})
}

// unevenness is how far the members are from their fair shares, summed up.
func (d *draft) unevenness() float64 {
	sum := 0.0
	for m, load := range d.loads {
		sum += math.Abs(float64(load) - d.fair(m))
	}
	return sum
}

// lightest returns the lightest part of the member that may move, and the member with the fewest
// parts, which could take it.
func (d *draft) lightest(member int) (best, to int, found bool) {
	best = -1
	for i, p := range d.parts {
		if p.home == member && !p.stays() && (best < 0 || p.weight < d.parts[best].weight) {
			best = i
		}
	}
	for m, n := range d.counts {
		if n < d.counts[to] {
			to = m
		}
	}
	return best, to, best >= 0 && d.counts[to]+1 < d.counts[member]
}

// merge makes one part of two.
func (d *draft) merge(m merging) {
	p, q := d.parts[m.i], d.parts[m.i+1]
	d.add(p, -1)
	d.add(q, -1)
	joined := d.newPart(Range{Start: p.rng.Start, End: q.rng.End}, slices.Concat(p.cells, q.cells), m.home)
	d.add(joined, +1)
	d.parts = slices.Replace(d.parts, m.i, m.i+2, joined)
}

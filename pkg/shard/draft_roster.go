package shard

import (
	"cmp"
	"math"
	"slices"
)

// placeStrays gives new homes to the shards whose home is gone, those of the heaviest cells first:
// where HomesOf places them if there is room, else where there is most room, cut to size if
// necessary.
func (d *draft) placeStrays() {
	queue := d.takeStrays()
	for len(queue) > 0 {
		slices.SortStableFunc(queue, func(s, t stray) int {
			p, q := d.parts[d.at(s.start)], d.parts[d.at(t.start)]
			return cmp.Or(cmp.Compare(q.heaviest, p.heaviest), cmp.Compare(q.weight, p.weight))
		})
		s := queue[0]
		queue = queue[1:]
		i := d.at(s.start)
		if d.parts[i].home >= 0 {
			continue // merged with a neighbour
		}
		taker := d.roomiest()
		if d.room(s.hash) >= float64(d.parts[i].weight) && d.counts[s.hash] < d.limits.MostShardsPerMember {
			taker = s.hash
		}
		n := len(d.parts[i].cells)
		from, to := d.fit(i, d.room(taker))
		d.move(i, from, to, taker)
		if to-from < n {
			rest := i // the piece was taken from the end
			if from == 0 {
				rest++
			}
			queue = append(queue, stray{d.parts[rest].rng.Start, s.hash})
		}
	}
}

// stray is a part without a home: where it begins, and where HomesOf places it.
type stray struct {
	start uint64
	hash  int
}

// takeStrays takes the shards whose home is gone from the members where HomesOf places them. If
// there would be no place for pieces of them, it merges neighbours that weigh next to nothing.
func (d *draft) takeStrays() []stray {
	var queue []stray
	for _, i := range d.strays {
		p := &d.parts[i]
		d.add(*p, -1)
		queue = append(queue, stray{p.rng.Start, p.home})
		p.home = -1
	}
	d.frugal = len(queue) > 0
	for d.frugal && len(d.parts)+len(d.members) > d.most {
		m, found := d.bestMerge(d.level, -1)
		if !found || float64(m.cost) > d.gain() {
			break
		}
		d.merge(m)
	}
	return queue
}

// at returns the index of the part that has the hash.
func (d *draft) at(hash uint64) int {
	i, exact := slices.BinarySearchFunc(d.parts, hash, func(p part, h uint64) int { return cmp.Compare(p.rng.Start, h) })
	if !exact {
		i--
	}
	return i
}

// room is how much more weight the member may have.
func (d *draft) room(member int) float64 {
	return d.level*d.limits.Target - float64(d.loads[member])
}

// roomiest returns the member with the most room, if possible one that may have more shards.
func (d *draft) roomiest() int {
	best := 0
	full := func(m int) int { return min(1, d.counts[m]/d.limits.MostShardsPerMember) }
	for m := range d.members {
		if cmp.Or(cmp.Compare(full(m), full(best)), cmp.Compare(d.loads[m], d.loads[best])) < 0 {
			best = m
		}
	}
	return best
}

// fit returns which cells of the part fit into that much room: all of them, or those at one end
// that fill it best, if they are worth a shard. If none are, it returns those that exceed it least.
func (d *draft) fit(i int, room float64) (from, to int) {
	p := d.parts[i]
	best := candidate{to: len(p.cells), weight: p.weight}
	for _, c := range d.cuts(i, room) {
		if float64(c.weight) <= d.gain() {
			continue
		}
		fits, fit := float64(c.weight) <= room, float64(best.weight) <= room
		if fits && (!fit || c.weight > best.weight) || !fits && !fit && c.weight < best.weight {
			best = c
		}
	}
	return best.from, best.to
}

// welcome gives each member without a shard its fair share, whatever the budget, from the members
// where it costs least. A member gets none if it carries so much that it would relieve the others
// by less than the smallest imbalance that is acted on.
func (d *draft) welcome() {
	d.joining = true
	defer func() { d.joining = false }()
	for m := range d.members {
		if d.counts[m] > 0 || d.held[m] > 0 && d.room(m) < d.level*(d.limits.Trigger-1) {
			continue
		}
		d.frugal = true
		for range d.most {
			best := candidate{}
			for giver := range d.members {
				if giver != m {
					d.between(giver, m, 0, &best)
				}
			}
			if best.score <= 0 {
				break
			}
			d.take(best)
		}
		if d.counts[m] == 0 {
			d.seat(m, slices.Max(d.loads))
		}
	}
}

// seat gives the member the lightest shard of the member with the most shards, unless it would then
// have more than the limit.
func (d *draft) seat(member int, limit int64) bool {
	giver := 0
	for m, n := range d.counts {
		if n > d.counts[giver] {
			giver = m
		}
	}
	best := -1
	for i, p := range d.parts {
		if p.home == giver && !p.stays() && (best < 0 || p.weight < d.parts[best].weight) {
			best = i
		}
	}
	if best < 0 || d.counts[giver] <= d.counts[member]+1 || d.loads[member]+d.parts[best].weight > limit {
		return false
	}
	d.move(best, 0, len(d.parts[best].cells), member)
	return true
}

// evenCounts moves shards until no two members' counts differ by more than one, as far as pins
// allow.
func (d *draft) evenCounts() {
	for range d.parts {
		least := 0
		for m, n := range d.counts {
			if n < d.counts[least] {
				least = m
			}
		}
		if !d.seat(least, math.MaxInt64) {
			return
		}
	}
}

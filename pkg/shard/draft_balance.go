package shard

import (
	"math"
)

// candidate is a way to move weight from one member to another: cells [from, to) of the i-th part.
type candidate struct {
	part, from, to int
	member         int
	weight         int64
	score          float64
}

// balance moves weight from members that have too much, while some member has more than
// Limits.Trigger allows and there is something to gain.
func (d *draft) balance() {
	stuck, hot := make([]bool, len(d.members)), make([]bool, len(d.members))
	for range 4 * (d.most + len(d.parts)) {
		giver := d.giver(stuck, hot)
		if giver < 0 {
			return
		}
		best, found := d.bestFrom(giver)
		if found && d.afford(func() { d.take(best) }) {
			continue
		}
		if found || d.freshOnly || !d.withRoom(giver) {
			stuck[giver] = true
		}
	}
}

// take does what the candidate says.
func (d *draft) take(c candidate) { d.move(c.part, c.from, c.to, c.member) }

// startBudget begins a round: what was spent before does not count.
func (d *draft) startBudget() {
	moved, cut := d.spent()
	d.spent0 = moved + cut
}

// giver returns the member furthest above its goal, or -1 if none but stuck ones are above theirs.
// Nothing is begun unless a member is beyond the trigger; such a member comes down to its fair
// share, others to the target. After a change of roster only members beyond the trigger give.
func (d *draft) giver(stuck, hot []bool) int {
	giver, most := -1, 0.0
	for m, load := range d.loads {
		fair := d.fair(m)
		triggers := d.triggers(float64(load), fair)
		hot[m] = hot[m] || triggers
		if stuck[m] || d.steps0 == 0 && !triggers {
			continue
		}
		goal := max(fair, d.level*d.limits.Target)
		switch {
		case d.frugal && !triggers:
			continue
		case hot[m] && !d.frugal:
			goal = fair
		}
		if over := float64(load) - goal; over > most {
			giver, most = m, over
		}
	}
	return giver
}

// triggers reports whether a load calls for action. Next to a lump that is beyond the level anyway,
// half the distance from target to trigger is allowed.
func (d *draft) triggers(load, fair float64) bool {
	slack := d.level * (d.limits.Trigger - d.limits.Target) / 2
	return load > max(d.level*d.limits.Trigger, fair+slack) && load-fair >= float64(d.limits.MinWeight)
}

// gain is the least weight worth moving: a quarter of the smallest imbalance that is acted on, or
// any weight at all for a member that has nothing.
func (d *draft) gain() float64 {
	if d.joining {
		return 1
	}
	return max(1, float64(d.limits.MinWeight)/4, d.level*(d.limits.Trigger-d.limits.Target)/4)
}

// bestFrom returns the best way to take weight from the member: if possible one that takes at least
// a quarter of what is to be taken, since each uses one of the shards that a member may have.
func (d *draft) bestFrom(giver int) (candidate, bool) {
	best := candidate{}
	for _, share := range []float64{0.25, 0} {
		for m := range d.members {
			if m != giver && float64(d.loads[m]) < d.level {
				d.between(giver, m, share, &best)
			}
		}
		if best.score > 0 {
			break
		}
	}
	return best, best.score > 0
}

// aims returns the loads that a step should reach. A giver comes down as far below its fair share
// as it may be above it without action: it has grown more than others, and will most likely keep
// growing.
func (d *draft) aims(giver int) (low, high float64) {
	spare := d.level * min(d.limits.Trigger-1, 0.5)
	if d.frugal {
		spare = 0
	}
	return d.fair(giver) - spare, d.level + spare/4
}

// between looks for a better way than best to move at least share of weight from giver to taker,
// such that afterwards neither has more than giver has at the beginning, less the gain.
func (d *draft) between(giver, taker int, share float64, best *candidate) {
	if d.counts[taker] >= d.limits.MostShardsPerMember {
		return
	}
	low, high := d.aims(giver)
	above, below := float64(d.loads[giver])-low, high-float64(d.loads[taker])
	gain := d.gain()
	least := max(gain, share*min(above, below))
	for i, p := range d.parts {
		if p.home != giver || p.stays() || d.freshOnly && p.old >= 0 {
			continue
		}
		for _, c := range d.cuts(i, min(above, below)) {
			w := float64(c.weight)
			if w < least || float64(d.loads[taker])+w > float64(d.loads[giver])-gain {
				continue
			}
			cost := w
			if c.to-c.from < len(p.cells) {
				cost += float64(p.cutCost())
			}
			better := math.Abs(above) + math.Abs(below) - math.Abs(above-w) - math.Abs(below-w)
			if d.joining {
				better -= max(0, w-above) / 2 // or others must fill that up
			}
			if c.score = better / cost; c.score > best.score+1e-9 {
				c.member = taker
				*best = c
			}
		}
	}
}

// cuts returns the part as a whole, and the ways to cut off a piece at either end with the nearest
// weight below and above the wanted one.
func (d *draft) cuts(i int, want float64) []candidate {
	p := d.parts[i]
	n := len(p.cells)
	out := []candidate{{part: i, to: n, weight: p.weight}}
	if p.whole || n < 2 || len(d.parts) >= d.most {
		return out
	}
	at, sum := 0, int64(0) // the longest beginning that is not too heavy
	for at < n && float64(sum+p.cells[at].Weight) <= want {
		sum += p.cells[at].Weight
		at++
	}
	if at > 0 && at < n {
		out = append(out, candidate{part: i, to: at, weight: sum})
	}
	if at+1 < n {
		out = append(out, candidate{part: i, to: at + 1, weight: sum + p.cells[at].Weight})
	}
	at, sum = n, 0 // the longest ending
	for at > 0 && float64(sum+p.cells[at-1].Weight) <= want {
		at--
		sum += p.cells[at].Weight
	}
	if at > 0 && at < n {
		out = append(out, candidate{part: i, from: at, to: n, weight: sum})
	}
	if at-1 > 0 {
		out = append(out, candidate{part: i, from: at - 1, to: n, weight: sum + p.cells[at-1].Weight})
	}
	return out
}

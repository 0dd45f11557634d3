package shard

import (
	"slices"
)

// plan returns the current plan with the ring as drafted, at the next generation.
func (d *draft) plan() Plan {
	next := Plan{Generation: d.current.Generation + 1, Canary: d.current.Canary, Rings: slices.Clone(d.current.Rings)}
	taken := map[string]bool{}
	for _, s := range d.ring.Shards {
		taken[s.Name] = true
	}
	r := d.ring
	r.Shards = make([]Shard, 0, len(d.parts))
	for _, p := range d.parts {
		s := d.shardOf(p)
		if p.old < 0 {
			s.Name = newName(s, next.Generation, taken)
		}
		r.Shards = append(r.Shards, s)
	}
	i := slices.IndexFunc(next.Rings, func(other Ring) bool { return other.Name == r.Name })
	next.Rings[i] = r
	if d.weighs() {
		d.weighOthers(next)
	}
	return next
}

// weighs reports whether there is enough for weights to mean anything; see Limits.MinWeight.
func (d *draft) weighs() bool { return d.total >= d.limits.MinWeight }

// weighOthers writes the weights of other rings' shards into the plan.
func (d *draft) weighOthers(plan Plan) {
	for i, other := range plan.Rings {
		if other.Name == d.ring.Name {
			continue
		}
		shards := slices.Clone(other.Shards)
		for j := range shards {
			if weight, known := d.groups[shards[j].ID]; known {
				shards[j].Weight = max(1, clampWeight(weight))
			}
		}
		plan.Rings[i].Shards = shards
	}
}

// shardOf returns the shard that the part will be, without a name if it is new.
func (d *draft) shardOf(p part) Shard {
	if p.old < 0 {
		return Shard{ID: ID{Ring: d.ring.Name}, Range: p.rng, Home: d.members[p.home], Weight: max(1, p.weight)}
	}
	s := d.ring.Shards[p.old]
	if !p.pinned {
		s.Home = d.members[p.home]
	}
	if d.weighs() {
		s.Weight = max(1, p.weight)
	}
	return s
}

// steps returns what happens to the shards in the plan, which is d.plan's.
func (d *draft) steps(plan Plan) []Step {
	r, _ := plan.Ring(d.ring.Name)
	var steps []Step
	for i, p := range d.parts {
		step := Step{Shard: r.Shards[i].ID, To: d.members[p.home], Weight: p.weight}
		for _, of := range d.madeOf(p) {
			step.Of = append(step.Of, d.ring.Shards[of].ID)
			step.From = append(step.From, d.members[d.was[of]])
		}
		switch {
		case p.old < 0 && len(step.Of) == 1:
			step.Kind = StepSplit
		case p.old < 0:
			step.Kind = StepMerge
		case p.home != d.was[p.old]:
			step.Kind = StepMove
		case r.Shards[i].Home != d.ring.Shards[p.old].Home:
			step.Kind = StepHome
		default:
			continue
		}
		steps = append(steps, step)
	}
	return steps
}

package sim

import (
	"cmp"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// replan changes the plan as an operator would: it splits a range, merges two, or moves a boundary.
func (sim *simulation) replan() {
	lease := sim.store.Get(leaseapi.PlanLease(fleetName))
	current, err := leaseapi.PlanOn(lease)
	if err != nil {
		return
	}
	if sim.isBad(lease) {
		// The operator works from the previous plan.
		generation := current.Generation
		current = sim.lastPlan()
		current.Generation = max(generation, current.Generation)
	}
	var namespaced []string
	for _, ring := range current.Rings {
		if ring.Scope == shard.ScopeNamespaced {
			namespaced = append(namespaced, ring.Name)
		}
	}
	name := namespaced[sim.random.IntN(len(namespaced))]
	edited := assignment.KeepHomes(current, name, func(id shard.ID) string {
		return leaserecord.MemberOf(leaserecord.From(sim.store.Get(sim.leaseOf(id))).Holder)
	})
	i := slices.IndexFunc(edited.Rings, func(r shard.Ring) bool { return r.Name == name })
	ring := &edited.Rings[i]
	switch {
	case sim.versions && sim.random.IntN(3) > 0:
		sim.turnCanary(&edited)
	case sim.random.IntN(3) > 0 || !sim.moveController(&edited, ring):
		sim.edit(ring)
	}
	next, err := current.Successor(edited)
	if err != nil {
		sim.failf(operator, "an operator's plan is refused: %v", err)
		return
	}
	changed, err := leaseapi.WithPlan(fleetName, lease, next)
	if err != nil {
		sim.failf(operator, "an operator's plan cannot be written: %v", err)
		return
	}
	sim.latest = next
	if sim.store.Tamper(lease.Name, func(l *coordinationv1.Lease) { l.Labels, l.Annotations = changed.Labels, changed.Annotations }) {
		sim.notef("the plan becomes generation %d: %v", next.Generation, ring.IDs())
		sim.tally(planChanges)
	}
}

// edit splits a range of a ring, merges two, moves a boundary, or pins a shard.
func (sim *simulation) edit(ring *shard.Ring) {
	slices.SortFunc(ring.Shards, func(a, b shard.Shard) int { return cmp.Compare(a.Range.Start, b.Range.Start) })
	i := sim.random.IntN(len(ring.Shards))
	old := ring.Shards[i]
	switch n := len(ring.Shards); {
	case n < 5 && sim.random.IntN(2) == 0 && old.Range.End-1 != old.Range.Start: // a canary's may be one hash wide
		first, second := sim.renamed(old), sim.renamed(old)
		middle := old.Range.Start + (old.Range.End-1-old.Range.Start)/2 + 1 // End 0 is 2^64
		first.Range.End, second.Range.Start = middle, middle
		ring.Shards = slices.Replace(ring.Shards, i, i+1, first, second)
	case n > 1 && i+1 < n && sim.random.IntN(2) == 0:
		merged := sim.renamed(old)
		merged.Range.End = ring.Shards[i+1].Range.End
		ring.Shards = slices.Replace(ring.Shards, i, i+2, merged)
	case i+1 < n:
		step := (old.Range.End - old.Range.Start) / 3
		first, second := sim.renamed(old), sim.renamed(ring.Shards[i+1])
		first.Range.End -= step
		second.Range.Start -= step
		ring.Shards = slices.Replace(ring.Shards, i, i+2, first, second)
	default:
		ring.Shards[i].Pin = sim.seats[sim.random.IntN(len(sim.seats))].name
	}
}

// moveController moves a controller to another ring of namespaces, and reports whether it could.
// Every shard of the two rings then covers something else.
func (sim *simulation) moveController(plan *shard.Plan, from *shard.Ring) bool {
	to := slices.IndexFunc(plan.Rings, func(r shard.Ring) bool { return r.Scope == shard.ScopeNamespaced && r.Name != from.Name })
	if to < 0 || len(from.Controllers) < 2 {
		return false
	}
	into := &plan.Rings[to]
	i := sim.random.IntN(len(from.Controllers))
	into.Controllers = append(slices.Clone(into.Controllers), from.Controllers[i])
	from.Controllers = slices.Delete(slices.Clone(from.Controllers), i, i+1)
	for _, ring := range []*shard.Ring{from, into} {
		ring.Shards = slices.Clone(ring.Shards)
		for i := range ring.Shards {
			ring.Shards[i] = sim.renamed(ring.Shards[i])
		}
	}
	sim.notef("the operator moves %v to ring %s", into.Controllers, into.Name)
	sim.tally(ringMoves)
	return true
}

// misplan writes a plan that no member may follow, because a shard in it covers something else than
// before. What members would judge it by may disappear with it.
func (sim *simulation) misplan() {
	lease := sim.store.Get(leaseapi.PlanLease(fleetName))
	plan, err := leaseapi.PlanOn(lease)
	if err != nil || sim.isBad(lease) || len(plan.Rings[0].Shards) < 2 {
		return
	}
	plan.Generation += 1 + sim.random.Int64N(3)
	ring := &plan.Rings[0]
	ring.Shards = slices.Clone(ring.Shards)
	slices.SortFunc(ring.Shards, func(a, b shard.Shard) int { return cmp.Compare(a.Range.Start, b.Range.Start) })
	step := (ring.Shards[0].Range.End - ring.Shards[0].Range.Start) / 3
	ring.Shards[0].Range.End -= step
	ring.Shards[1].Range.Start -= step
	document, err := plan.Document()
	if err != nil {
		sim.failf(operator, "a bad plan cannot be written: %v", err)
		return
	}
	good := [...]string{"removes", "spoils", "leaves"}[sim.random.IntN(3)]
	sim.bad, sim.misplanned = document, true
	sim.store.Tamper(lease.Name, func(l *coordinationv1.Lease) {
		l.Annotations[leaseapi.DocumentAnnotation] = document
		switch good {
		case "removes":
			delete(l.Annotations, leaseapi.LastGoodAnnotation)
		case "spoils":
			l.Annotations[leaseapi.LastGoodAnnotation] = "gzip:junk"
		}
	})
	sim.notef("somebody writes plan generation %d, which may not follow, and %s the last good one", plan.Generation, good)
}

// isBad reports whether the plan's Lease has what misplan wrote and no member follows it. If no
// member knew another plan, it has become the fleet's plan.
func (sim *simulation) isBad(lease *coordinationv1.Lease) bool {
	if sim.bad == "" || lease == nil || lease.Annotations[leaseapi.DocumentAnnotation] != sim.bad {
		return false
	}
	bad, err := leaseapi.PlanOn(lease)
	if err != nil {
		sim.failf(operator, "a bad plan cannot be read: %v", err)
		return true
	}
	for _, p := range sim.live() {
		if plan, known := p.Plan(); known && plan.Generation == bad.Generation && plan.Digest() == bad.Digest() {
			sim.notef("%s follows the bad plan", p.name())
			sim.latest, sim.bad = bad, ""
			return false
		}
	}
	return true
}

// drain drains a member as an operator would, or undrains it.
func (sim *simulation) drain(s *seat) {
	sim.store.Tamper(leaserecord.MemberLease(fleetName, s.name), func(l *coordinationv1.Lease) {
		if l.Annotations[leaseapi.DrainAnnotation] != "" {
			sim.notef("%s is undrained", s.name)
			delete(l.Annotations, leaseapi.DrainAnnotation)
			return
		}
		sim.notef("%s is drained", s.name)
		sim.tally(memberDrains)
		if l.Annotations == nil {
			l.Annotations = map[string]string{}
		}
		l.Annotations[leaseapi.DrainAnnotation] = "yes"
	})
}

// isDrained reports whether an operator has drained the member.
func (sim *simulation) isDrained(member string) bool {
	lease := sim.store.Get(leaserecord.MemberLease(fleetName, member))
	return lease != nil && lease.Annotations[leaseapi.DrainAnnotation] != ""
}

// isUnknown reports whether the plan names a controller that no live member has, and some member
// refuses it. Members of one version accepted such a plan and have since gone.
func (sim *simulation) isUnknown(plan shard.Plan) bool {
	live := sim.live()
	if !sim.versions || !slices.ContainsFunc(live, func(p *process) bool { return p.Refused() != nil }) {
		return false
	}
	known := map[string]bool{}
	for _, p := range live {
		for _, c := range sim.buildOf(p.seat.version).Controllers {
			known[c.Name] = true
		}
	}
	for _, extent := range plan.Extents() {
		if slices.ContainsFunc(extent.Controllers, func(name string) bool { return !known[name] }) {
			return true
		}
	}
	return false
}

// repair writes a good plan in place of nonsense, as an operator would. Members that know a good
// plan restore it; members that have never seen one must not guess. A member that has not seen the
// plan before accepts one that others may not follow. So that all can follow the operator, every
// ambiguous shard gets a new name.
func (sim *simulation) repair() {
	lease := sim.store.Get(leaseapi.PlanLease(fleetName))
	if lease == nil || lease.Annotations[leaseapi.DocumentAnnotation] == "" {
		return
	}
	plan, err := leaseapi.PlanOn(lease)
	if err == nil && !sim.misplanned && !sim.isUnknown(plan) {
		return
	}
	if err != nil || sim.versions {
		plan = sim.lastPlan()
	}
	plan.Generation = max(plan.Generation, sim.latest.Generation) + 100
	plan.Rings = slices.Clone(plan.Rings)
	for i := range plan.Rings {
		ring := &plan.Rings[i]
		ring.Shards = slices.Clone(ring.Shards)
		for j := range ring.Shards {
			if ring.Scope == shard.ScopeNamespaced {
				ring.Shards[j] = sim.renamed(ring.Shards[j])
			}
		}
	}
	good, err := leaseapi.WithPlan(fleetName, lease, plan)
	if err != nil {
		sim.failf(operator, "the operator's plan cannot be written: %v", err)
		return
	}
	sim.store.Tamper(lease.Name, func(l *coordinationv1.Lease) { l.Labels, l.Annotations = good.Labels, good.Annotations })
	sim.notef("the operator repairs the plan")
}

// renamed returns the shard under a name that no other has had.
func (sim *simulation) renamed(s shard.Shard) shard.Shard {
	if *mistake != "names_reused" {
		sim.names++
	}
	s.Name = fmt.Sprintf("s%d", sim.names)
	return s
}

package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// planned is a plan that was on the plan's Lease from a version on. The plan given up front has
// version 0.
type planned struct {
	version uint64
	plan    shard.Plan
	digest  string
	logged  bool // the log has it: then the digest is of all of it
}

// planWrite is a write of the plan's Lease.
type planWrite struct {
	version  uint64
	document string
	lastGood string // the plan before it, see leaseapi.LastGoodAnnotation
	based    uint64 // the version that it was made on
	event    event
	// unknown is set if it is unknown whether it took effect; version is then the lowest possible.
	unknown bool
}

// readPlanLease keeps writes of the plan's Lease.
func (c *checker) readPlanLease(e event) error {
	switch {
	case e.refused():
		return nil
	case e.failed():
		c.report.LeaseUnknown++
		if asked := e.asked(); asked != nil && asked.Annotations[leaseapi.DocumentAnnotation] != "" {
			based, _ := strconv.ParseUint(asked.ResourceVersion, 10, 64)
			c.planWrites = append(c.planWrites, planWrite{
				version: based + 1, document: asked.Annotations[leaseapi.DocumentAnnotation], based: based, unknown: true, event: e.lean(),
			})
		}
		return nil
	case e.Verb == "delete":
		c.convict(e, LeaseDeleted, "the plan generation may restart")
		return nil
	}
	w, err := planWriteOf(e)
	if err == nil && w.document != "" {
		c.planWrites = append(c.planWrites, w)
	}
	return err
}

func planWriteOf(e event) (planWrite, error) {
	lease, err := e.lease()
	if err != nil {
		return planWrite{}, err
	}
	w := planWrite{document: lease.Annotations[leaseapi.DocumentAnnotation], lastGood: lease.Annotations[leaseapi.LastGoodAnnotation], event: e.lean()}
	w.version, _ = e.version()
	if asked := e.asked(); asked != nil {
		w.based, _ = strconv.ParseUint(asked.ResourceVersion, 10, 64)
	}
	return w, nil
}

// readPlans puts the plans of the log in order. It skips plans that nobody could follow; such a
// plan is a violation if the fleet wrote it: members refuse those of others, and keep the last good
// plan.
func (c *checker) readPlans() {
	slices.SortStableFunc(c.planWrites, func(a, b planWrite) int { return cmp.Compare(a.version, b.version) })
	last := ""
	for i, w := range c.planWrites {
		if w.document == last {
			continue
		}
		plan, err := shard.ParsePlan([]byte(w.document))
		if w.unknown && (err != nil || !c.tookEffect(w, plan)) {
			continue
		}
		last = w.document
		if err == nil {
			err = c.adopt(planned{version: c.inForceSince(w), plan: plan, digest: plan.Digest(), logged: true})
		}
		switch {
		case err == nil, w.unknown:
		case c.ours(w.event) && (i > 0 || !c.followsUnseen(w)):
			c.convict(w.event, WrongLayout, "the plan that was written: %v", err)
		default:
			c.report.PlansRefused++
		}
	}
}

// inForceSince returns the first version at which a plan that was written may have been on the
// Lease. A server that is killed may have carried out a write that it never logged. If this one was
// made on a version later than another write's, and nobody in the log has made that version, the
// plan may have come with it.
func (c *checker) inForceSince(w planWrite) uint64 {
	earlier := false
	for _, other := range c.planWrites {
		if other.unknown {
			continue
		}
		if other.version == w.based {
			return w.version
		}
		earlier = earlier || other.version < w.based
	}
	if w.unknown || !earlier {
		return w.version
	}
	return w.based
}

// tookEffect reports whether a plan that was written without an answer came into force: the next
// write was made on a version that nobody else has made, or a shard's Lease names its generation,
// which no other write has.
func (c *checker) tookEffect(w planWrite, plan shard.Plan) bool {
	var others []uint64
	for _, other := range c.planWrites {
		if p, err := shard.ParsePlan([]byte(other.document)); !other.unknown {
			if others = append(others, other.version); err == nil && p.Generation == plan.Generation {
				return false // whoever wrote it again was answered
			}
		}
	}
	if slices.ContainsFunc(c.planWrites, func(next planWrite) bool {
		return !next.unknown && next.based > w.based && !slices.Contains(others, next.based)
	}) {
		return true
	}
	named := func(states []state) bool {
		return slices.ContainsFunc(states, func(s state) bool { return s.cover.fleet == c.fleet && s.cover.generation == plan.Generation })
	}
	for _, h := range c.histories {
		if named(h.states) {
			return true
		}
	}
	for _, l := range c.leases {
		if named(l.states) {
			return true
		}
	}
	return false
}

// adopt adds a plan, or returns why it may not follow the last one. An earlier plan may be restored
// after another one was refused.
func (c *checker) adopt(p planned) error {
	n := len(c.plans)
	if n == 0 {
		c.plans = append(c.plans, p)
		return nil
	}
	current := c.plans[n-1]
	if p.plan.Generation > current.plan.Generation {
		if id, changed := changedShard(current.plan, p.plan); changed {
			return fmt.Errorf("generation %d: shard %s is not as in generation %d, and must have a new name", p.plan.Generation, id, current.plan.Generation)
		}
		c.plans = append(c.plans, p)
		return nil
	}
	for i := range c.plans {
		known := &c.plans[i]
		// For the plan given up front only the shards count, not pins and the like.
		same := known.logged && known.digest == p.digest || !known.logged && sameExtents(known.plan, p.plan)
		if known.plan.Generation != p.plan.Generation || !same {
			continue
		}
		known.logged, known.digest = true, p.digest
		if p.plan.Generation != current.plan.Generation {
			c.plans = append(c.plans, p)
		}
		return nil
	}
	return fmt.Errorf("generation %d: must be greater than %d, as it differs", p.plan.Generation, current.plan.Generation)
}

// changedShard returns a shard that is in both plans with different extents.
func changedShard(before, after shard.Plan) (shard.ID, bool) {
	old := before.Extents()
	for _, s := range after.Shards() {
		was, known := before.Shard(s.ID)
		extent, _ := after.Extent(s.ID)
		if known && (was.Namespaced() != s.Namespaced() || !old[s.ID].Equal(extent)) {
			return s.ID, true
		}
	}
	return shard.ID{}, false
}

func sameExtents(a, b shard.Plan) bool {
	_, changed := changedShard(a, b)
	return !changed && len(a.Shards()) == len(b.Shards()) && !slices.ContainsFunc(a.Shards(), func(s shard.Shard) bool {
		_, known := b.Shard(s.ID)
		return !known
	})
}

// checkLayout compares a shard's extent by its Lease with its name, the plans, and what the Lease
// said before.
func (c *checker) checkLayout(id shard.ID, h *history) {
	var first *cover
	last := ""
	for i := range h.states {
		s := &h.states[i]
		v := &s.cover
		if v.text == last || !v.named && !v.ranged {
			continue
		}
		last = v.text
		if fault := c.layoutFault(id, s, first); fault != "" {
			c.convict(s.event, WrongLayout, "Lease of %s: %s", id, fault)
		}
		if first == nil && v.named && v.fault == "" {
			first = v
		}
	}
}

// layoutFault returns what is wrong with the Lease's content; first is its content when it first
// named its controllers.
func (c *checker) layoutFault(id shard.ID, s *state, first *cover) string {
	v := &s.cover
	if v.fault != "" {
		return v.fault
	}
	if !v.named {
		return ""
	}
	if v.fleet != c.fleet || v.id != id {
		return fmt.Sprintf("it is labelled as that of %s of fleet %q", v.id, v.fleet)
	}
	if first != nil && (first.ranged != v.ranged || !first.extent.Equal(v.extent)) {
		return fmt.Sprintf("it covers %s, and covered %s: a shard never changes", describe(v.extent, v.ranged), describe(first.extent, first.ranged))
	}
	return c.planFault(id, s)
}

// planFault returns why no plan that the holder can have known has such a shard.
func (c *checker) planFault(id shard.ID, s *state) string {
	v := &s.cover
	if v.generation == 0 {
		return "it names no plan generation"
	}
	if len(c.plans) == 0 {
		return ""
	}
	known := slices.ContainsFunc(c.plans, func(p planned) bool { return p.plan.Generation == v.generation && p.version < s.version })
	if !known && len(c.planWrites) == 0 {
		return "" // another generation than the one given up front, and the log has none
	}
	if c.late && v.generation < c.plan.Generation {
		return "" // the log began under it, and does not have it
	}
	if !known {
		return fmt.Sprintf("generation %d was not in force yet", v.generation)
	}
	why := fmt.Sprintf("no plan up to generation %d has the shard", v.generation)
	for _, p := range c.plans {
		f, has := factOf(p.plan, id)
		switch {
		case !has || p.plan.Generation > v.generation:
		case p.version >= s.version:
			why = fmt.Sprintf("generation %d was not in force yet", p.plan.Generation)
		case f.namespaced == v.ranged && f.extent.Equal(v.extent):
			return ""
		default:
			why = fmt.Sprintf("it covers %s, and by generation %d of the plan %s", describe(v.extent, v.ranged), p.plan.Generation, describe(f.extent, f.namespaced))
		}
	}
	return why
}

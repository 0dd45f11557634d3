package fleet

import (
	"fmt"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// verdict is a member's judgement of the plan on the plan's Lease.
type verdict struct {
	// plan is the plan to work by; nil if there is none.
	plan *inForce
	// err says why plan is not the one on the Lease. generation and digest are those of the plan on
	// the Lease, or zero if it cannot be read.
	err        error
	generation int64
	digest     string
}

// judge returns the verdict on the plan's Lease. Everything that reads a plan uses it, so that a
// refused plan changes nothing anywhere. For a member that has just started, current is nil. Such a
// member judges by the last good plan that the Lease keeps, and so agrees with the members that
// work by it.
func (m *Member) judge(current *inForce, lease election.Observation, roster membership.Roster) verdict {
	next, digest, err := m.planOf(lease.Lease)
	v := verdict{plan: current}
	if err == nil {
		v.generation, v.digest = next.Generation, digest
	}
	var noGood error
	if current == nil {
		var good shard.Plan
		if good, noGood = leaseapi.LastGoodOn(lease.Lease); noGood == nil {
			if current = newInForce(good); m.fits(current, good, roster) == nil {
				v.plan = current
			}
		}
	}
	switch {
	case err != nil:
		v.err = err
	case current == nil:
		if v.err = m.fits(nil, next, roster); v.err == nil {
			v.err = m.vouched(v, noGood, roster)
		}
	default:
		v.err = m.admit(current, next, v.digest, roster)
	}
	if v.err == nil && (v.plan == nil || v.plan.plan.Generation != v.generation) {
		v.plan = newInForce(next)
	}
	return v
}

// admit returns why a plan may not follow the one in force. It is nil for the plan in force itself.
func (m *Member) admit(current *inForce, next shard.Plan, digest string, roster membership.Roster) error {
	if err := m.fits(current, next, roster); err != nil {
		return err
	}
	if next.Generation == current.plan.Generation {
		if digest != current.digest {
			return fmt.Errorf("generation %d: must be greater than that of the plan in force, which differs (digest %s, in force is %s)", next.Generation, digest, current.digest)
		}
		return nil
	}
	if err := shard.CheckSuccessor(current.plan, next); err != nil {
		return err
	}
	for i, ring := range next.Rings {
		if _, known := current.plan.Ring(ring.Name); !known && len(leaseapi.ServersOf(roster.Members(), ring.Name)) == 0 {
			return fmt.Errorf("rings[%d].name: %q is served by no live member: start members with --rings=%s first", i, ring.Name, ring.Name)
		}
	}
	return nil
}

// vouched returns why the member may not work by a plan that it cannot check against the last good
// one, because the Lease lacks that. A live member must work by the plan. If no live member works
// by any, it must be the latest plan that a Lease mentions. If no Lease mentions one, it is the
// first plan.
func (m *Member) vouched(v verdict, noGood error, roster membership.Roster) error {
	said, by := leaseapi.PlanSaid{}, ""
	for _, member := range roster.Members() {
		if says := leaseapi.PlanSaidOn(member.Annotations); member.Incarnation != m.incarnation && says.Known() {
			if v.is(says) {
				return nil
			}
			said, by = says, "live member "+member.Name+" works"
		}
	}
	if by == "" {
		for _, o := range m.observer.List() {
			if says := leaseapi.PlanSaidOn(o.Annotations); says.Generation > said.Generation || says.Generation == said.Generation && v.is(says) {
				said, by = says, "by Lease "+o.Name+" its holder worked"
			}
		}
	}
	if by == "" || v.is(said) {
		return nil
	}
	return fmt.Errorf("generation %d: cannot be checked against the last good plan (%w), and %s by generation %d, which differs (digest %s, that one is %s)",
		v.generation, noGood, by, said.Generation, v.digest, said.Digest)
}

// is reports whether a Lease says that its holder works by the judged plan.
func (v verdict) is(said leaseapi.PlanSaid) bool {
	return said.Known() && said.Generation == v.generation && said.Digest == v.digest
}

// isFollowed reports whether this member refuses the plan on the Lease while another live member
// works by that plan, or by one newer than the plan in force here. That plan's shards replace those
// of the plan in force here. Shards that this member does not run must stay free, or each member
// would wait for the other.
func (m *Member) isFollowed(roster membership.Roster) bool {
	r, current := m.refused.Load(), m.inForce.Load()
	if r == nil || current == nil {
		return false
	}
	for _, member := range roster.Members() {
		says := leaseapi.PlanSaidOn(member.Annotations)
		if member.Incarnation != m.incarnation && (r.verdict.is(says) || says.Generation > current.plan.Generation) {
			return true
		}
	}
	return false
}

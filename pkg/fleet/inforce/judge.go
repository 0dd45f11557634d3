package inforce

import (
	"fmt"
	"sync/atomic"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// Judge judges plans for one member.
type Judge struct {
	incarnation string
	check       func(shard.Plan) error
	build       skew.Build
	catalogue   string
	last        atomic.Pointer[lastRead]
}

// NewJudge returns the judge of a member. check returns why the member cannot work by a plan that
// is itself valid, and build lists the controllers that it knows.
func NewJudge(incarnation string, check func(shard.Plan) error, build skew.Build) *Judge {
	return &Judge{incarnation: incarnation, check: check, build: build, catalogue: build.Known().String()}
}

// Catalogue returns what the member publishes of its build; empty if its build knows every
// controller.
func (j *Judge) Catalogue() string { return j.catalogue }

// Build returns the member's build.
func (j *Judge) Build() skew.Build { return j.build }

// lastRead caches the last plan that was read: members look at it far more often than it changes.
type lastRead struct {
	text   string
	plan   shard.Plan
	digest string
	err    error
}

// Read returns the plan on its Lease, which may be nil, and the plan's digest.
func (j *Judge) Read(lease *coordinationv1.Lease) (plan shard.Plan, digest string, err error) {
	if lease == nil {
		return shard.Plan{}, "", leaseapi.ErrNoPlan
	}
	text := lease.Annotations[leaseapi.DocumentAnnotation]
	if last := j.last.Load(); last != nil && last.text == text {
		return last.plan, last.digest, last.err
	}
	last := &lastRead{text: text}
	if last.plan, last.err = leaseapi.PlanOn(lease); last.err == nil {
		last.digest = last.plan.Digest()
	}
	j.last.Store(last)
	return last.plan, last.digest, last.err
}

// Verdict is a judgement of the plan on the plan's Lease.
type Verdict struct {
	// Plan is the plan to work by; nil if there is none.
	Plan *Plan
	// Err says why Plan is not the one on the Lease. Generation and Digest are those of the plan on
	// the Lease, or zero if it cannot be read.
	Err        error
	Generation int64
	Digest     string
}

// Of returns the verdict on the plan's Lease for a member that works by current. For a member that
// has just started, current is nil. Such a member judges by the last good plan that the Lease
// keeps, and so agrees with the members that work by it.
func (j *Judge) Of(current *Plan, lease election.Observation, s leaseapi.Snapshot) Verdict {
	next, digest, err := j.Read(lease.Lease)
	v := Verdict{Plan: current}
	if err == nil {
		v.Generation, v.Digest = next.Generation, digest
	}
	var noGood error
	if current == nil {
		var good shard.Plan
		if good, noGood = leaseapi.LastGoodOn(lease.Lease); noGood == nil {
			if current = New(good); j.fits(current, good, s.Roster()) == nil {
				v.Plan = current
			}
		}
	}
	switch {
	case err != nil:
		v.Err = err
	case current == nil:
		if v.Err = j.fits(nil, next, s.Roster()); v.Err == nil {
			v.Err = j.vouched(v, noGood, s)
		}
	default:
		v.Err = j.Admit(current, next, v.Digest, s.Roster())
	}
	if v.Err == nil && (v.Plan == nil || v.Plan.Generation != v.Generation) {
		v.Plan = New(next)
	}
	return v
}

// Admit returns why a plan may not follow the one in force. It is nil for the plan in force itself.
func (j *Judge) Admit(current *Plan, next shard.Plan, digest string, roster membership.Roster) error {
	if err := j.fits(current, next, roster); err != nil {
		return err
	}
	if next.Generation == current.Generation {
		if digest != current.digest {
			return fmt.Errorf("generation %d: must be greater than that of the plan in force, which differs (digest %s, in force is %s)", next.Generation, digest, current.digest)
		}
		return nil
	}
	if err := shard.CheckSuccessor(current.Plan, next); err != nil {
		return err
	}
	for i, ring := range next.Rings {
		if _, known := current.Ring(ring.Name); !known && len(leaseapi.ServersOf(roster.Members(), ring.Name)) == 0 {
			return fmt.Errorf("rings[%d].name: %q is served by no live member: start members with --rings=%s first", i, ring.Name, ring.Name)
		}
	}
	return nil
}

// vouched returns why the member may not work by a plan that it cannot check against the last good
// one, because the Lease lacks that. A live member must work by the plan. If no live member works
// by any, it must be the latest plan that a Lease mentions. If no Lease mentions one, it is the
// first plan.
func (j *Judge) vouched(v Verdict, noGood error, s leaseapi.Snapshot) error {
	said, by := leaseapi.PlanSaid{}, ""
	for _, member := range s.Roster().Members() {
		if says := leaseapi.PlanSaidOn(member.Annotations); member.Incarnation != j.incarnation && says.Known() {
			if v.is(says) {
				return nil
			}
			said, by = says, "live member "+member.Name+" works"
		}
	}
	if by == "" {
		for _, o := range s.Leases() {
			if says := leaseapi.PlanSaidOn(o.Annotations); says.Generation > said.Generation || says.Generation == said.Generation && v.is(says) {
				said, by = says, "by Lease "+o.Name+" its holder worked"
			}
		}
	}
	if by == "" || v.is(said) {
		return nil
	}
	return fmt.Errorf("generation %d: cannot be checked against the last good plan (%w), and %s by generation %d, which differs (digest %s, that one is %s)",
		v.Generation, noGood, by, said.Generation, v.Digest, said.Digest)
}

// is reports whether a Lease says that its holder works by the judged plan.
func (v Verdict) is(said leaseapi.PlanSaid) bool {
	return said.Known() && said.Generation == v.Generation && said.Digest == v.Digest
}

// Followed reports whether a member that refuses the plan on the Lease must leave free what it does
// not run: another live member works by that plan, or by one newer than the plan in force here.
// That plan's shards replace those of the plan in force here, and otherwise each member would wait
// for the other. refused is nil if the member does not refuse the plan.
func (j *Judge) Followed(refused *Verdict, current *Plan, roster membership.Roster) bool {
	if refused == nil || current == nil {
		return false
	}
	for _, member := range roster.Members() {
		says := leaseapi.PlanSaidOn(member.Annotations)
		if member.Incarnation != j.incarnation && (refused.is(says) || says.Generation > current.Generation) {
			return true
		}
	}
	return false
}

package fleet

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// planner is the member's part in writing the plan. Whoever holds the plan's Lease plans, and no other member; but what makes
// a change of plan safe is the compare-and-swap of that Lease alone, so an operator may write it as well.
type planner struct {
	member   *Member
	claimant *election.Claimant
}

func (m *Member) newPlanner() (*planner, error) {
	p := &planner{member: m}
	var err error
	p.claimant, err = election.NewClaimant(election.ClaimantConfig{
		Name:     PlanLease(m.config.Fleet),
		Identity: m.incarnation,
		Client:   m.config.Leases,
		Observer: m.observer,
		Clock:    m.config.Clock,
		Timing:   m.config.Timing,
		Labels:   map[string]string{FleetLabel: m.config.Fleet, KindLabel: KindPlan},
		Revoked:  m.membership.Lost(),
		Work:     p.work,
		OnEvent:  func(e election.Event) { m.config.Observe(Event{Event: e}) },
		OnStuck:  func(stuck election.StuckClaim) { m.config.Exit(stuckReason(stuck)) },
	})
	return p, err
}

// run plans whenever nobody else does, until ctx ends.
func (p *planner) run(ctx context.Context) {
	p.claimant.SetWish(election.Want)
	p.claimant.Run(ctx)
}

// work plans for one term.
func (p *planner) work(ctx context.Context, _ *election.Claim) {
	m := p.member
	changed, stop := m.observer.SubscribeChanges(func(before, after election.Observation) bool {
		return before.Exists != after.Exists || before.Holder != after.Holder || !maps.Equal(before.Annotations, after.Annotations)
	})
	defer stop()
	last := m.config.Clock.Now() // who was the planner before may just have changed something
	for ctx.Err() == nil {
		if p.plan(ctx, &last) {
			continue
		}
		timer := m.config.Clock.NewTimer(m.config.Timing.RetryPeriod)
		select {
		case <-changed:
		case <-timer.C():
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// plan makes at most one change of plan, and tells whether it did. last is when the weights asked for the last one.
func (p *planner) plan(ctx context.Context, last *time.Time) bool {
	m := p.member
	now := m.config.Clock.Now()
	lease := m.observer.Get(PlanLease(m.config.Fleet))
	if !lease.Exists || lease.Holder != m.incarnation {
		return false // about to be noticed
	}
	current := m.inForce.Load().plan
	there, err := PlanOf(lease.Lease)
	switch {
	case err != nil || there.Generation < current.Generation:
		return p.putBack(ctx, lease, current, there.Generation)
	case there.Generation > current.Generation || m.Refused() != nil:
		return false // not adopted yet, or refused: an operator has to mend it
	}
	roster := election.RosterFrom(m.config.Fleet, m.observer.List(), m.config.Timing.LeaseDuration, now)
	if m.config.Replanning.Interval == 0 || !m.settled(now) {
		return false
	}
	known := knownMembers(m.config.Fleet, m.observer.List())
	for _, ring := range current.Rings {
		if ring.Scope != shard.ScopeNamespaced {
			continue
		}
		members := slices.DeleteFunc(servers(known, ring.Name), func(name string) bool {
			member, live := roster.Get(name)
			return live && member.State == election.MemberJoining
		})
		census, complete := censusOf(m.config.Fleet, ring, m.observer.Get)
		due := now.Sub(*last) >= m.config.Replanning.Interval
		if !complete || !due && rosterSettled(ring, members) {
			continue
		}
		proposal, worth, err := shard.Propose(current, ring.Name, census, members, m.config.Replanning.Limits)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Could not plan", "ring", ring.Name)
			continue
		}
		if !worth {
			continue
		}
		if !p.write(ctx, lease, proposal.Plan) {
			return false
		}
		*last = now
		klog.FromContext(ctx).Info("Replanned", "ring", ring.Name, "generation", proposal.Plan.Generation, "steps", len(proposal.Steps),
			"moved", proposal.Moved, "cut", proposal.Cut, "before", proposal.Before.Ratio(), "after", proposal.After.Ratio())
		return true
	}
	return false
}

// rosterSettled tells whether the homes of the ring's shards are those members, neither more nor fewer; so they are before
// anybody has given homes.
func rosterSettled(ring shard.Ring, members []string) bool {
	homes := map[string]bool{}
	for _, s := range ring.Shards {
		if s.Belongs() != "" {
			homes[s.Belongs()] = true
		}
	}
	return len(homes) == 0 || slices.Equal(slices.Sorted(maps.Keys(homes)), members)
}

// settled tells whether the last change of plan is done and every shard is where it is to be: a change at a time.
func (m *Member) settled(now time.Time) bool {
	plan, wishes := m.inForce.Load(), m.Wishes()
	for id := range plan.extents {
		lease := m.observer.Get(ShardLease(m.config.Fleet, id))
		if !m.isHeld(lease, now) || lease.Annotations[ReadyAnnotation] != "" || election.MemberOf(lease.Holder) != wishes.Owner(id) {
			return false
		}
	}
	return !slices.ContainsFunc(m.observer.List(), func(o election.Observation) bool {
		return m.isShard(o) && m.isHeld(o, now) && !m.isPlanned(o, plan)
	})
}

// putBack writes the plan in force once more where somebody has spoilt it, and keeps what was there.
func (p *planner) putBack(ctx context.Context, lease election.Observation, plan shard.Plan, there int64) bool {
	spoilt := lease.Lease.DeepCopy()
	if text := spoilt.Annotations[DocumentAnnotation]; text != "" {
		spoilt.Annotations[RejectedAnnotation] = text[:min(len(text), maxRejected)]
	}
	plan.Generation = max(plan.Generation, there) + 1
	if err := p.member.writePlan(ctx, spoilt, plan); err != nil {
		p.failed(ctx, err)
		return false
	}
	p.member.reportPlan(EventPlanRestored, errors.New("what was there could not be used and is in annotation "+RejectedAnnotation))
	return true
}

func (p *planner) write(ctx context.Context, lease election.Observation, plan shard.Plan) bool {
	err := p.member.writePlan(ctx, lease.Lease, plan)
	if err != nil {
		p.failed(ctx, err)
	}
	return err == nil
}

// failed says why the plan could not be written, unless somebody else has written meanwhile; the renewals of this member do.
func (p *planner) failed(ctx context.Context, err error) {
	if !apierrors.IsConflict(err) {
		klog.FromContext(ctx).Error(err, "Could not write the plan, trying again")
	}
}

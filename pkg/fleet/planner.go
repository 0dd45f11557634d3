package fleet

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/plant"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// restIntervals is how many intervals of the planner a shard rests after a change of plan, unless
// members come or go, or the weights lie very unevenly.
const restIntervals = 12

// maxGeneration is beyond what any fleet comes to: who says more on a Lease has been tampered with.
const maxGeneration = 1 << 53

// planner is the member's part in writing the plan. Whoever holds the plan's Lease plans, and no other member; but what makes
// a change of plan safe is the compare-and-swap of that Lease alone, so an operator may write it as well.
type planner struct {
	member   *Member
	claimant *election.Claimant
	// These belong to the goroutine of work. last is when the weights asked for the last change; content is what a ring's plan
	// was last found to be good with.
	last    time.Time
	content map[string]content
	// moved is when this planner made shards what they are, or gave them the homes that they have, for
	// their weights.
	moved map[shard.ID]time.Time
	// unadapted is why the plan could not be adapted to the members' builds the last time.
	unadapted string
	// packed is the plan packedOf, as the Lease keeps it.
	packed   string
	packedOf *inForce
}

func (m *Member) newPlanner() (*planner, error) {
	p := &planner{member: m}
	var err error
	p.claimant, err = election.NewClaimant(election.ClaimantConfig{
		Name:      PlanLease(m.config.Fleet),
		Identity:  m.incarnation,
		Client:    m.config.Leases,
		Observer:  m.observer,
		Clock:     m.config.Clock,
		Timing:    m.config.Timing,
		Labels:    map[string]string{FleetLabel: m.config.Fleet, KindLabel: KindPlan},
		Revoked:   m.membership.Lost(),
		Heartbeat: m.membership,
		Work:      p.work,
		OnEvent:   func(e election.Event) { m.config.Observe(Event{Event: e}) },
		OnStuck:   func(stuck election.StuckClaim) { m.config.Exit(stuckReason(stuck)) },
	})
	return p, err
}

// run plans whenever nobody else does, and nobody of a newer build is there, until ctx ends.
func (p *planner) run(ctx context.Context) {
	p.claimant.SetWish(election.Want)
	var claiming sync.WaitGroup
	defer claiming.Wait()
	claiming.Go(func() { p.claimant.Run(ctx) })
	m := p.member
	if m.catalogue == "" {
		return
	}
	changed, stop := m.observer.SubscribeChanges(func(before, after election.Observation) bool {
		return before.Exists != after.Exists || before.Holder != after.Holder ||
			before.Annotations[election.StateAnnotation] != after.Annotations[election.StateAnnotation] ||
			before.Annotations[PlanAnnotation] != after.Annotations[PlanAnnotation]
	})
	defer stop()
	for ctx.Err() == nil {
		wish := election.Want
		if m.yields(m.Roster()) {
			wish = election.Leave
		}
		p.claimant.SetWish(wish)
		m.await(ctx, changed, m.config.Timing.LeaseDuration)
	}
}

// work plans for one term.
func (p *planner) work(ctx context.Context, _ *election.Claim) {
	m := p.member
	changed, stop := m.observer.SubscribeChanges(isMore)
	defer stop()
	// Who was the planner before may just have changed something.
	p.last, p.content, p.moved = m.config.Clock.Now(), map[string]content{}, map[shard.ID]time.Time{}
	for ctx.Err() == nil {
		if p.plan(ctx) {
			continue
		}
		m.await(ctx, changed, m.config.Timing.RetryPeriod)
	}
}

// plan makes at most one change of plan, and tells whether it did.
func (p *planner) plan(ctx context.Context) bool {
	m := p.member
	now := m.config.Clock.Now()
	lease := m.observer.Get(PlanLease(m.config.Fleet))
	if !lease.Exists || lease.Holder != m.incarnation {
		return false // about to be noticed
	}
	current := m.inForce.Load().plan
	there, digest, err := m.planOf(lease.Lease)
	switch {
	case err != nil || there.Generation < current.Generation,
		there.Generation == current.Generation && digest != m.inForce.Load().digest:
		return p.putBack(ctx, lease, current, there.Generation)
	case there.Generation > current.Generation && m.Refused() == nil:
		return false // not adopted yet
	}
	if m.Refused() == nil || !m.isFollowed(m.Roster()) { // else it is this member's plan that may be no good
		p.keep(ctx, lease)
	}
	if m.Refused() != nil {
		return false // an operator has to correct it
	}
	if generation, astray := p.astray(now); astray {
		// The plan's Lease was deleted, or spoilt while some members did not know a good plan: now there are two.
		current.Generation = generation + 1
		return p.write(ctx, lease, current)
	}
	if p.adapt(ctx, lease, now) || p.retire(ctx, now) {
		return true
	}
	if m.config.Replanning.Interval == 0 || p.rests(current) {
		return false
	}
	for _, ring := range current.Rings {
		proposal, worth := p.propose(ctx, current, ring, now)
		if !worth {
			continue
		}
		if !p.write(ctx, lease, proposal.Plan) {
			return false
		}
		p.last = now
		p.remember(proposal, now)
		klog.FromContext(ctx).Info("Replanned", "ring", ring.Name, "generation", proposal.Plan.Generation, "steps", len(proposal.Steps),
			"moved", proposal.Moved, "cut", proposal.Cut, "before", proposal.Before.Ratio(), "after", proposal.After.Ratio())
		return true
	}
	return false
}

// astray returns the highest generation of another plan that a live member works by, if it is not older than the one in force:
// that member adopts a greater one only.
func (p *planner) astray(now time.Time) (generation int64, found bool) {
	m, plan := p.member, p.member.inForce.Load()
	for _, member := range election.RosterFrom(m.config.Fleet, m.observer.List(), m.config.Timing.LeaseDuration, now).Members() {
		digest := member.Annotations[PlanAnnotation]
		theirs, err := strconv.ParseInt(member.Annotations[GenerationAnnotation], 10, 64)
		if err == nil && theirs < maxGeneration && digest != "" && digest != plan.digest && theirs >= max(plan.plan.Generation, generation) {
			generation, found = theirs, true
		}
	}
	return generation, found
}

// content is what a plan was found to be good with: the members, and the weights, if only in so far as they are not urgent.
type content struct {
	members []string
	weights shard.Weights
}

// propose returns what to do about a ring, if it is time and worth it. Members that have come or gone need not wait for the
// interval, nor need a large imbalance.
func (p *planner) propose(ctx context.Context, plan shard.Plan, ring shard.Ring, now time.Time) (shard.Proposal, bool) {
	m := p.member
	if ring.Scope != shard.ScopeNamespaced || !m.settled(ring, now) {
		return shard.Proposal{}, false
	}
	observations := m.observer.List()
	roster := election.RosterFrom(m.config.Fleet, observations, m.config.Timing.LeaseDuration, now)
	members := Stayers(KnownMembers(m.config.Fleet, observations), roster, ring)
	wishes := m.Wishes()
	weights, complete := WeightsOf(m.config.Fleet, plan, ring, m.observer.Get, func(id shard.ID) string { return wishes.Carrier(plan, id) })
	if !complete {
		return shard.Proposal{}, false
	}
	last := p.content[ring.Name]
	urgent := sync.OnceValue(func() bool { return m.urgent(plan, ring, weights, members) })
	changed := !rosterSettled(ring, members) && !slices.Equal(last.members, members)
	if due := now.Sub(p.last) >= m.config.Replanning.Interval || plant.ReplanRestless; !due {
		same := slices.Equal(last.weights.Census, weights.Census) && maps.Equal(last.weights.Carried, weights.Carried)
		if !changed && (same || !urgent()) {
			// What cannot be judged yet is looked at again, even if it does not change.
			if m.judgeable(ring, weights, members) {
				p.content[ring.Name] = content{last.members, weights.Weights}
			}
			return shard.Proposal{}, false
		}
	}
	keep := keepNewest(plan, ring.Name, roster)
	if !changed && !urgent() && !plant.ReplanRestless {
		keep = keep.and(p.resting(ring, members, now))
	}
	proposal, worth, err := shard.Propose(keep.pin(plan), ring.Name, weights.Weights, members, m.config.Replanning.Limits)
	proposal.Plan = keep.unpin(proposal.Plan)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Could not plan", "ring", ring.Name)
	}
	if !worth {
		p.content[ring.Name] = content{members, weights.Weights}
	}
	return proposal, worth && err == nil
}

// remember records which shards a change of plan has moved or made.
func (p *planner) remember(proposal shard.Proposal, now time.Time) {
	for _, step := range proposal.Steps {
		if step.Kind != shard.StepHome {
			p.moved[step.Shard] = now
		}
	}
	maps.DeleteFunc(p.moved, func(_ shard.ID, at time.Time) bool { return now.Sub(at) >= p.restTime() })
}

// resting returns the shards that are to stay as they are for a while, since they were moved or made
// not long ago: with each move controllers forget what they keep in memory only.
func (p *planner) resting(ring shard.Ring, members []string, now time.Time) kept {
	k := kept{}
	for _, s := range ring.Shards {
		at, moved := p.moved[s.ID]
		if moved && now.Sub(at) < p.restTime() && s.Pin == "" && slices.Contains(members, s.Home) {
			k[s.ID] = true
		}
	}
	return k
}

// restTime is for how long a shard is left alone: an hour by default.
func (p *planner) restTime() time.Duration {
	return restIntervals * p.member.config.Replanning.Interval
}

// judgeable reports whether all members are there, and everything they carry has been weighed.
func (m *Member) judgeable(ring shard.Ring, weights Weights, members []string) bool {
	return slices.Equal(m.Wishes().MembersOf(ring.Name), members) && (weights.PerObject == 0 || weights.Whole)
}

// urgent reports whether the weights lie so unevenly that the interval is not to be waited for: which they do for a while when
// a member is away, or a group has come to another one and not been weighed there.
func (m *Member) urgent(plan shard.Plan, ring shard.Ring, weights Weights, members []string) bool {
	if !m.judgeable(ring, weights, members) {
		return false
	}
	b := shard.BalanceOf(plan, ring.Name, weights.Weights, members)
	return b.Ratio() > b.Bound*m.config.Replanning.Urgent && b.Max-b.Mean*b.Bound >= float64(m.config.Replanning.Limits.MinWeight)
}

// rosterSettled tells whether every one of those members has a shard of the ring, and every shard one of them for a home; so it
// is before anybody has given homes. A pin to somebody else is the operator's affair: no change of plan does anything about it.
func rosterSettled(ring shard.Ring, members []string) bool {
	homes := map[string]bool{}
	for _, s := range ring.Shards {
		homes[s.Belongs()] = true
		if s.Pin == "" && s.Home != "" && !slices.Contains(members, s.Home) {
			return false
		}
	}
	delete(homes, "")
	return len(homes) == 0 || !slices.ContainsFunc(members, func(member string) bool { return !homes[member] })
}

// settled tells whether the last change of plan is done and every shard of the ring is where it is to be: a change at a time.
func (m *Member) settled(ring shard.Ring, now time.Time) bool {
	plan, wishes := m.inForce.Load(), m.Wishes()
	for _, id := range ring.IDs() {
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
		spoilt.Annotations[RejectedAnnotation] = short(text, maxRejected)
	}
	if good := p.lastGood(); good != "" {
		metav1.SetMetaDataAnnotation(&spoilt.ObjectMeta, LastGoodAnnotation, good)
	}
	plan.Generation = max(plan.Generation, there) + 1
	if err := p.member.writePlan(ctx, spoilt, plan); err != nil {
		p.failed(ctx, err)
		return false
	}
	p.member.reportPlan(EventPlanRestored, errPutBack)
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

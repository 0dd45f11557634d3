package fleet

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// planner is the member's part in writing the plan. Only the holder of the plan's Lease plans. The
// safety of a change of plan rests only on the compare-and-swap of that Lease, so an operator may
// write it as well.
type planner struct {
	member   *Member
	claimant *election.Claimant
	// The following fields belong to the goroutine of work. last is when the weights last required
	// a change. content is what the plan of each ring was last found to be good for.
	last    time.Time
	content map[string]content
	// moved is when this planner last moved or made each shard because of weights.
	moved map[shard.ID]time.Time
	// unadapted is why the plan could not be adapted to the members' builds the last time.
	// unplanned is why nothing could be proposed for each ring.
	unadapted string
	unplanned map[string]string
	// packed is packedOf in the form that the Lease keeps.
	packed   string
	packedOf *inForce
}

func (m *Member) newPlanner() (*planner, error) {
	p := &planner{member: m}
	var err error
	p.claimant, err = election.NewClaimant(election.ClaimantConfig{
		Name:      leaseapi.PlanLease(m.config.Fleet),
		Identity:  m.incarnation,
		Client:    m.config.Leases,
		Observer:  m.observer,
		Clock:     m.config.Clock,
		Timing:    m.config.Timing,
		Labels:    map[string]string{leaseapi.FleetLabel: m.config.Fleet, leaseapi.KindLabel: leaseapi.KindPlan},
		Revoked:   m.membership.Lost(),
		Heartbeat: m.membership,
		Work:      p.work,
		OnEvent:   func(e election.Event) { m.config.Observe(Event{Event: e}) },
		OnStuck:   func(stuck election.StuckClaim) { m.config.Exit(stuckReason(stuck)) },
	})
	return p, err
}

// run plans whenever nobody else does and no member of a newer build is live, until ctx ends.
func (p *planner) run(ctx context.Context) {
	p.claimant.SetDesired(election.Held)
	var claiming sync.WaitGroup
	defer claiming.Wait()
	claiming.Go(func() { p.claimant.Run(ctx) })
	m := p.member
	if m.catalogue == "" {
		return
	}
	changed, stop := m.observer.SubscribeChanges(func(before, after election.Observation) bool {
		return before.Exists != after.Exists || before.Holder != after.Holder ||
			before.Annotations[leaserecord.StateAnnotation] != after.Annotations[leaserecord.StateAnnotation] ||
			before.Annotations[leaseapi.PlanAnnotation] != after.Annotations[leaseapi.PlanAnnotation]
	})
	defer stop()
	for ctx.Err() == nil {
		desired := election.Held
		if m.yields(m.Roster()) {
			desired = election.Released
		}
		p.claimant.SetDesired(desired)
		m.await(ctx, changed, m.config.Timing.LeaseDuration)
	}
}

// work plans for one term.
func (p *planner) work(ctx context.Context, _ *election.Claim) {
	m := p.member
	changed, stop := m.observer.SubscribeChanges(leaseapi.MayMoveShards)
	defer stop()
	// The previous planner may just have changed something.
	p.last = m.config.Clock.Now()
	p.content, p.moved, p.unplanned = map[string]content{}, map[shard.ID]time.Time{}, map[string]string{}
	for ctx.Err() == nil {
		if p.plan(ctx) {
			continue
		}
		m.await(ctx, changed, m.config.Timing.RetryPeriod)
	}
}

// plan makes at most one change of plan, and reports whether it did.
func (p *planner) plan(ctx context.Context) bool {
	m := p.member
	now := m.config.Clock.Now()
	lease := m.observer.Get(leaseapi.PlanLease(m.config.Fleet))
	if !lease.Exists || lease.Holder != m.incarnation {
		return false // the claimant is about to notice
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
	if m.Refused() == nil || !m.isFollowed(m.Roster()) { // otherwise this member's plan may be bad
		p.keep(ctx, lease)
	}
	if m.Refused() != nil {
		return false // an operator has to correct it
	}
	if generation, astray := p.astray(now); astray {
		// Somebody deleted the plan's Lease, or spoilt it while some members did not know a good
		// plan. So two plans are in force.
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
		change, worth := p.propose(ctx, current, ring, now)
		if !worth {
			continue
		}
		if !p.write(ctx, lease, change.Plan) {
			return false
		}
		p.last = now
		p.remember(change, now)
		klog.FromContext(ctx).Info("Replanned", "ring", ring.Name, "generation", change.Plan.Generation, "steps", len(change.Steps),
			"moved", change.Moved, "cut", change.Cut, "before", change.Before.Ratio(), "after", change.After.Ratio())
		return true
	}
	return false
}

// astray returns the highest generation of a different plan that a live member works by, if it is
// not older than the plan in force. That member adopts only a higher one.
func (p *planner) astray(now time.Time) (generation int64, found bool) {
	m, plan := p.member, p.member.inForce.Load()
	for _, member := range membership.RosterFrom(m.config.Fleet, m.observer.List(), m.config.Timing.LeaseDuration, now).Members() {
		digest := member.Annotations[leaseapi.PlanAnnotation]
		theirs, err := strconv.ParseInt(member.Annotations[leaseapi.GenerationAnnotation], 10, 64)
		if err == nil && theirs < leaseapi.MaxGeneration && digest != "" && digest != plan.digest && theirs >= max(plan.plan.Generation, generation) {
			generation, found = theirs, true
		}
	}
	return generation, found
}

// settled reports whether the last change of plan is done and every shard of the ring is where it
// should be. The planner makes one change at a time.
func (m *Member) settled(ring shard.Ring, now time.Time) bool {
	plan, assignment := m.inForce.Load(), m.Assignment()
	for _, id := range ring.IDs() {
		lease := m.observer.Get(leaseapi.ShardLease(m.config.Fleet, id))
		if !m.isHeld(lease, now) || lease.Annotations[leaseapi.ReadyAnnotation] != "" || leaserecord.MemberOf(lease.Holder) != assignment.Owner(id) {
			return false
		}
	}
	return !slices.ContainsFunc(m.observer.List(), func(o election.Observation) bool {
		return m.isShard(o) && m.isHeld(o, now) && !m.isPlanned(o, plan)
	})
}

// putBack writes the plan in force to its Lease again after somebody has spoilt it, and keeps the
// spoilt plan in an annotation.
func (p *planner) putBack(ctx context.Context, lease election.Observation, plan shard.Plan, there int64) bool {
	spoilt := lease.Lease.DeepCopy()
	if text := spoilt.Annotations[leaseapi.DocumentAnnotation]; text != "" {
		spoilt.Annotations[leaseapi.RejectedAnnotation] = leaseapi.Shorten(text, maxRejected)
	}
	if good := p.lastGood(); good != "" {
		metav1.SetMetaDataAnnotation(&spoilt.ObjectMeta, leaseapi.LastGoodAnnotation, good)
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

// failed logs why the plan could not be written, unless the reason is a conflict: somebody else
// wrote meanwhile, as this member's own renewals do.
func (p *planner) failed(ctx context.Context, err error) {
	if !apierrors.IsConflict(err) {
		klog.FromContext(ctx).Error(err, "Could not write the plan, trying again")
	}
}

package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/election/request"
	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/fleet/inforce"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const (
	// EventWritten reports that the member sent a plan to the plan's Lease in Duration. Err is set
	// if that failed.
	EventWritten election.EventType = "plan-written"
	// EventRestored reports that the planner has restored the last good plan after somebody had
	// spoilt it.
	EventRestored election.EventType = "plan-restored"
	// EventAdapted reports that the planner has changed the plan for the builds of the members. Err
	// describes the changes.
	EventAdapted election.EventType = "plan-adapted"
	// EventRetired reports that the planner has emptied the Lease of a shard that the plan does not
	// have, or of a member that is gone for good, or failed to because of Err.
	EventRetired election.EventType = "retired"
)

// maxRejected is how many bytes of a spoilt plan are kept. An object's annotations may have 256 KiB
// in all.
const maxRejected = 64 << 10

// Replanning configures how the planner balances the ranges of namespaced rings. Without an
// Interval it only restores a plan that was spoilt. fleet.New fills in the defaults.
type Replanning struct {
	// Interval is how long the planner waits before its first change for the sake of weights, and
	// between two such changes; 0 means never. A shard that was moved or made because of its weight
	// rests for twelve intervals. The planner reacts to members that come or go as soon as the last
	// change is done.
	Interval time.Duration
	// Urgent is a ratio: the weight of the heaviest member to the lowest weight that it could have.
	// Above Urgent the planner does not wait for Interval, as long as no member is away. It must be
	// greater than Limits.Trigger. Above 1.15 times Urgent shards do not rest. Default 1.3, and at
	// least 1.2 times Limits.Trigger.
	Urgent float64
	// Limits bound each change. Default: shard.DefaultLimits().
	Limits shard.Limits
}

// Config configures a Planner. All fields are required.
type Config struct {
	// Fleet is the fleet's name, Incarnation the member's.
	Fleet, Incarnation string
	Leases             election.LeaseWriter
	Observer           *election.Observer
	Membership         *membership.Membership
	Clock              election.Clock
	Timing             election.Timing
	Replanning         Replanning
	Judge              *inforce.Judge
	Covers             *inforce.Covers
	// Snapshot returns what is known of the Leases, and Decided what the member has decided by now.
	// Stop returns the stop that it obeys, as on the plan's Lease; empty for none.
	Snapshot func() leaseapi.Snapshot
	Decided  func() Decided
	Stop     func() string
	// Observe receives the planner's events and those of its claim. OnStuck is called if planning
	// does not end with the claim.
	Observe func(election.Event)
	OnStuck func(election.StuckClaim)
}

// Decided is what the planner goes by of what its member has decided.
type Decided struct {
	// InForce is the plan that it works by. Refused is its verdict on the plan on the plan's Lease
	// if it does not work by that; nil if it does.
	InForce *inforce.Plan
	Refused *inforce.Verdict
	// Assignment is which member should own which shard. A member that joins has not computed it.
	Assignment assignment.Assignment
}

// Planner is a member's part in writing the plan.
type Planner struct {
	config   Config
	claimant *election.Claimant
	// The following fields belong to the goroutine of work. last is when the weights last required
	// a change. content is what the plan of each ring was last found to be good for.
	last    time.Time
	content map[string]content
	// moved is when this planner last moved or made each shard because of weights.
	moved map[shard.ID]time.Time
	// unanswered are the changes whose writes failed, until it is known whether the server made
	// them nevertheless.
	unanswered []sent
	// tried is when this planner last tried to empty each Lease.
	tried map[string]time.Time
	// unadapted is why the plan could not be adapted to the members' builds the last time.
	// unplanned is why nothing could be proposed for each ring.
	unadapted string
	unplanned map[string]string
	// packed is packedOf in the form that the Lease keeps.
	packed   string
	packedOf *inforce.Plan
}

// New returns a planner that does not plan yet.
func New(c Config) (*Planner, error) {
	p := &Planner{config: c}
	var err error
	p.claimant, err = election.NewClaimant(election.ClaimantConfig{
		Name:      leaseapi.PlanLease(c.Fleet),
		Identity:  c.Incarnation,
		Client:    c.Leases,
		Observer:  c.Observer,
		Clock:     c.Clock,
		Timing:    c.Timing,
		Labels:    map[string]string{leaseapi.FleetLabel: c.Fleet, leaseapi.KindLabel: leaseapi.KindPlan},
		Revoked:   c.Membership.Lost(),
		Heartbeat: c.Membership,
		Work:      p.work,
		OnEvent:   c.Observe,
		OnStuck:   c.OnStuck,
	})
	return p, err
}

// Run plans whenever nobody else does and no member of a newer build is live, until ctx ends. Call
// it once, with a plan in force.
func (p *Planner) Run(ctx context.Context) {
	p.claimant.SetDesired(election.Held)
	var claiming sync.WaitGroup
	defer claiming.Wait()
	claiming.Go(func() { p.claimant.Run(ctx) })
	if p.config.Judge.Catalogue() == "" {
		return
	}
	changed, stop := p.config.Observer.SubscribeChanges(func(before, after election.Observation) bool {
		return before.Exists != after.Exists || before.Holder != after.Holder ||
			before.Annotations[leaserecord.StateAnnotation] != after.Annotations[leaserecord.StateAnnotation] ||
			before.Annotations[leaseapi.PlanAnnotation] != after.Annotations[leaseapi.PlanAnnotation]
	})
	defer stop()
	for ctx.Err() == nil {
		desired := election.Held
		if l := p.look(); l.yields() {
			desired = election.Released
		}
		p.claimant.SetDesired(desired)
		election.Await(ctx, p.config.Clock, changed, p.config.Timing.LeaseDuration)
	}
}

// work plans for one term.
func (p *Planner) work(ctx context.Context, _ *election.Claim) {
	changed, stop := p.config.Observer.SubscribeChanges(leaseapi.MayMoveShards)
	defer stop()
	// The previous planner may just have changed something.
	p.last = p.config.Clock.Now()
	p.content, p.moved, p.unplanned = map[string]content{}, map[shard.ID]time.Time{}, map[string]string{}
	p.tried, p.unanswered = map[string]time.Time{}, nil
	for ctx.Err() == nil {
		if p.plan(ctx) {
			continue
		}
		election.Await(ctx, p.config.Clock, changed, p.config.Timing.RetryPeriod)
	}
}

// look is what the planner decides one change by.
type look struct {
	leaseapi.Snapshot
	Decided
	judge  *inforce.Judge
	covers *inforce.Covers
}

func (p *Planner) look() look {
	s := p.config.Snapshot() // first: what the member has decided since is newer, not older
	return look{s, p.config.Decided(), p.config.Judge, p.config.Covers}
}

// plan makes at most one change of plan, and reports whether it did.
func (p *Planner) plan(ctx context.Context) bool {
	l := p.look()
	p.answer(l.InForce)
	lease := l.Get(leaseapi.PlanLease(p.config.Fleet))
	if !lease.Exists || lease.Holder != p.config.Incarnation {
		return false // the claimant is about to notice
	}
	current := l.InForce.Plan
	there, digest, err := p.config.Judge.Read(lease.Lease)
	switch {
	case err != nil || there.Generation < current.Generation,
		there.Generation == current.Generation && digest != l.InForce.Digest():
		return p.putBack(ctx, l.InForce, lease, there.Generation)
	case there.Generation > current.Generation && l.Refused == nil:
		return false // not adopted yet
	}
	if !p.config.Judge.Followed(l.Refused, l.InForce, l.Roster()) { // otherwise this member's plan may be bad
		p.keep(ctx, l.InForce, lease)
	}
	if l.Refused != nil {
		return false // an operator has to correct it
	}
	if generation, astray := l.astray(); astray {
		// Somebody deleted the plan's Lease, or spoilt it while some members did not know a good
		// plan. So two plans are in force.
		current.Generation = generation + 1
		return p.write(ctx, lease, current) == nil
	}
	if p.adapt(ctx, l, lease) {
		return true
	}
	p.retire(ctx, l)
	if p.config.Replanning.Interval == 0 || l.rests() {
		return false
	}
	for _, ring := range current.Rings {
		change, worth := p.propose(ctx, l, ring)
		if !worth {
			continue
		}
		if err := p.write(ctx, lease, change.Plan); err != nil {
			if isUnanswered(err) {
				p.doubt(sent{change, l.Now()})
			}
			return false
		}
		p.unanswered = nil
		p.count(change, l.Now())
		klog.FromContext(ctx).Info("Replanned", "ring", ring.Name, "generation", change.Plan.Generation, "steps", len(change.Steps),
			"moved", change.Moved, "cut", change.Cut, "before", change.Before.Ratio(), "after", change.After.Ratio())
		return true
	}
	return false
}

// astray returns the highest generation of a different plan that a live member works by, if it is
// not older than the plan in force. That member adopts only a higher one.
func (l look) astray() (generation int64, found bool) {
	for _, member := range l.Roster().Members() {
		says := leaseapi.PlanSaidOn(member.Annotations)
		isOther := says.Known() && says.Digest != l.InForce.Digest() && says.Generation < shard.MaxGeneration
		if isOther && says.Generation >= max(l.InForce.Generation, generation) {
			generation, found = says.Generation, true
		}
	}
	return generation, found
}

// settled reports whether the last change of plan is done and every shard of the ring is where it
// should be. The planner makes one change at a time.
func (l look) settled(ring shard.Ring) bool {
	for _, id := range ring.IDs() {
		lease := l.Shard(id)
		if !l.IsHeld(lease) || lease.Annotations[leaseapi.ReadyAnnotation] != "" || leaserecord.MemberOf(lease.Holder) != l.Assignment.Owner(id) {
			return false
		}
	}
	return !slices.ContainsFunc(l.Leases(), func(o election.Observation) bool {
		if !l.IsShard(o) || !l.IsHeld(o) {
			return false
		}
		_, planned := l.covers.Of(o, l.Fleet(), l.InForce)
		return !planned
	})
}

// putBack writes the plan in force to its Lease again after somebody has spoilt it, and keeps the
// spoilt plan in an annotation.
func (p *Planner) putBack(ctx context.Context, inForce *inforce.Plan, lease election.Observation, there int64) bool {
	spoilt := lease.Lease.DeepCopy()
	if text := spoilt.Annotations[leaseapi.DocumentAnnotation]; text != "" {
		spoilt.Annotations[leaseapi.RejectedAnnotation] = leaseapi.Shorten(text, maxRejected)
	}
	if good := p.lastGood(inForce); good != "" {
		metav1.SetMetaDataAnnotation(&spoilt.ObjectMeta, leaseapi.LastGoodAnnotation, good)
	}
	plan := inForce.Plan
	plan.Generation = max(plan.Generation, there) + 1
	if err := p.Write(ctx, spoilt, plan); err != nil {
		p.failed(ctx, err)
		return false
	}
	p.report(EventRestored, errPutBack)
	return true
}

// errPutBack is the Err of the event for a restored plan.
var errPutBack = errors.New("what was there could not be used and is in annotation " + leaseapi.RejectedAnnotation)

// errUnsent is returned for a plan that was not sent to the API server.
var errUnsent = errors.New("the plan is not sent")

// isUnanswered reports whether a write that failed with err may have been carried out.
func isUnanswered(err error) bool {
	return !apierrors.IsConflict(err) && !request.IsRefused(err) && !errors.Is(err, errUnsent)
}

func (p *Planner) write(ctx context.Context, lease election.Observation, plan shard.Plan) error {
	err := p.Write(ctx, lease.Lease, plan)
	if err != nil {
		p.failed(ctx, err)
	}
	return err
}

// failed logs why the plan could not be written, unless the reason is a conflict: somebody else
// wrote meanwhile, as this member's own renewals do.
func (p *Planner) failed(ctx context.Context, err error) {
	if !apierrors.IsConflict(err) {
		klog.FromContext(ctx).Error(err, "Could not write the plan, trying again")
	}
}

func (p *Planner) report(kind election.EventType, err error) {
	p.config.Observe(election.Event{Type: kind, Name: leaseapi.PlanLease(p.config.Fleet), Err: err})
}

// Write writes the plan to its Lease as it was read, nil if there is none, and records what it has
// written. The first plan of a fleet is written before any planner runs.
func (p *Planner) Write(ctx context.Context, lease *coordinationv1.Lease, plan shard.Plan) error {
	if faults.GenerationKept && plan.Generation > 1 {
		plan.Generation--
	}
	next, err := leaseapi.WithPlan(p.config.Fleet, lease, plan)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnsent, err)
	}
	if stop := p.config.Stop(); stop != "" && (lease == nil || lease.Annotations[leaseapi.DocumentAnnotation] == "") {
		next.Annotations[leaseapi.StopAnnotation] = stop // lost with the Lease, still in force
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.Timing.RequestTimeout())
	defer cancel()
	began := p.config.Clock.Now()
	var written *coordinationv1.Lease
	if lease == nil {
		// Nobody has held it, so nobody has to wait for a holder.
		next.Annotations[leaserecord.ReleasedAnnotation] = "0"
		written, err = p.config.Leases.Create(ctx, next, metav1.CreateOptions{})
	} else {
		written, err = p.config.Leases.Update(ctx, next, metav1.UpdateOptions{})
	}
	p.config.Observe(election.Event{Type: EventWritten, Name: leaseapi.PlanLease(p.config.Fleet), Duration: p.config.Clock.Now().Sub(began), Err: err})
	if err != nil {
		return err
	}
	p.config.Observer.Observe(written)
	klog.FromContext(ctx).Info("Wrote the plan", "generation", plan.Generation, "shards", len(plan.Shards()), "digest", plan.Digest())
	return nil
}

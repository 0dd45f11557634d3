package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flotilla-kube/flotilla/internal/apiresponse"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/fleet/fencing"
	"github.com/flotilla-kube/flotilla/pkg/fleet/inforce"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leadership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/fleet/planner"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Member is one process in a fleet. Run must be called once; the other methods are safe for
// concurrent use at any time.
type Member struct {
	config      Config
	incarnation string
	observer    *election.Observer
	membership  *membership.Membership
	runners     runners
	judge       *inforce.Judge
	planner     *planner.Planner
	inForce     atomic.Pointer[inforce.Plan]
	refused     atomic.Pointer[refusal]
	covers      inforce.Covers
	// retiring is set while there are runners of shards that have left the plan.
	retiring atomic.Bool
	// expected are the ranges that Config.Expect was told last; only the loop that assigns uses it.
	expected   []shard.Range
	assignment atomic.Pointer[assignment.Assignment]
	prospects  prospects
	fencing    *fencing.Fencing
	leadership *leadership.Leadership
	journal    *journal
	readiness  readiness
	slots      *slots
	lists      lists
	// started is set once the member may claim.
	started  atomic.Bool
	watchdog watchdog
	// memory is what the Lease says of the member's memory; nil for nothing.
	memory atomic.Pointer[string]
	// use is what the Lease says of the member's other resource use.
	use atomic.Pointer[leaseapi.Use]
	// failure is why the member's own Lease could not be acquired or renewed the last time, or why
	// Leases cannot be read at all.
	failure atomic.Pointer[error]
}

// New returns a member that has not started. The error names the field that is out of bounds.
func New(c Config) (*Member, error) {
	if c.Build == nil || c.Exit == nil || c.Leases == nil {
		return nil, errors.New("fleet member: Leases, Build and Exit are required")
	}
	if c.Check == nil {
		c.Check = func(shard.Plan) error { return nil }
	}
	if err := errors.Join(c.Plan.Validate(), c.Check(c.Plan), c.Catalogue.Fits(nil, c.Plan, nil)); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if c.Clock == nil {
		c.Clock = election.NewClock()
	}
	if c.HandoffTimeout == 0 {
		c.HandoffTimeout = DefaultHandoffTimeout
	}
	if c.Handoffs == 0 {
		c.Handoffs = DefaultHandoffs
	}
	if c.HandoffTimeout < 0 || c.ShutdownTimeout < 0 || c.Handoffs < 0 {
		return nil, fmt.Errorf("fleet member: HandoffTimeout is %v, ShutdownTimeout %v and Handoffs %d, must not be negative", c.HandoffTimeout, c.ShutdownTimeout, c.Handoffs)
	}
	if !apiresponse.IsServerPath(c.ServerPath) {
		return nil, fmt.Errorf("fleet member: ServerPath is %q, must be empty or a path that begins with a slash and does not end with one", c.ServerPath)
	}
	if c.CensusInterval == 0 {
		c.CensusInterval = time.Minute
	}
	if c.Replanning.Limits == (shard.Limits{}) {
		c.Replanning.Limits = shard.DefaultLimits()
	}
	if err := c.Replanning.Limits.Validate(); err != nil {
		return nil, fmt.Errorf("fleet member: Replanning.Limits: %w", err)
	}
	if c.Replanning.Urgent == 0 {
		c.Replanning.Urgent = max(1.3, 1.2*c.Replanning.Limits.Trigger)
	}
	if !(c.Replanning.Urgent > c.Replanning.Limits.Trigger) {
		return nil, fmt.Errorf("fleet member: Replanning.Urgent is %v, must be greater than Replanning.Limits.Trigger, %v", c.Replanning.Urgent, c.Replanning.Limits.Trigger)
	}
	if c.Enforced == nil {
		c.Enforced = func() bool { return false }
	}
	if c.FenceDelay < 0 || c.LeaderLockDelay < 0 {
		return nil, fmt.Errorf("fleet member: FenceDelay is %v and LeaderLockDelay %v, must not be negative", c.FenceDelay, c.LeaderLockDelay)
	}
	if c.FenceDelay > c.HandoffTimeout {
		return nil, fmt.Errorf("fleet member: FenceDelay is %v, must be at most HandoffTimeout, %v", c.FenceDelay, c.HandoffTimeout)
	}
	if c.Observe == nil {
		c.Observe = func(Event) {}
	}
	m := &Member{config: c, runners: newRunners(), incarnation: leaserecord.NewIncarnation(c.Member), slots: newSlots(c.Handoffs), journal: newJournal(c.Fleet, c.Clock)}
	m.assignment.Store(&assignment.Assignment{})
	m.judge = inforce.NewJudge(m.incarnation, c.Check, c.Catalogue)
	var err error
	m.observer, err = election.NewObserver(election.ObserverConfig{Fleet: c.Fleet, Extra: c.LeaderLocks, Client: c.Leases, Clock: c.Clock})
	if err != nil {
		return nil, err
	}
	m.membership, err = membership.New(membership.Config{
		Fleet:          c.Fleet,
		Incarnation:    m.incarnation,
		Client:         c.Leases,
		Observer:       m.observer,
		Clock:          c.Clock,
		Timing:         c.Timing,
		Labels:         map[string]string{leaseapi.FleetLabel: c.Fleet, leaseapi.KindLabel: leaseapi.KindMember},
		OnEvent:        m.observe,
		RebalanceDelay: c.RebalanceDelay,
		Turned:         m.turned,
		Fences:         c.Enforced,
		Annotations:    m.memberAnnotations,
	})
	if err != nil {
		return nil, err
	}
	m.fencing = fencing.New(fencing.Config{
		Fleet: c.Fleet, Incarnation: m.incarnation, Leases: c.Leases, Observer: m.observer, Clock: c.Clock, Timing: c.Timing,
		Enforced: c.Enforced, Marked: m.membership.Revoke, Observe: m.report,
	})
	if m.planner, err = m.newPlanner(); err != nil {
		return nil, err
	}
	m.leadership, err = leadership.New(leadership.Config{
		Fleet: c.Fleet, Member: c.Member, Incarnation: m.incarnation, Locks: c.LeaderLocks, Delay: c.LeaderLockDelay,
		Leases: c.Leases, Read: m.read, Snapshot: m.snapshot, Observer: m.observer, Membership: m.membership, Clock: c.Clock, Timing: c.Timing,
		Observe: m.report, Resumed: m.reassign,
	})
	return m, err
}

func (m *Member) newPlanner() (*planner.Planner, error) {
	c := &m.config
	return planner.New(planner.Config{
		Fleet: c.Fleet, Incarnation: m.incarnation, Leases: c.Leases, Observer: m.observer, Membership: m.membership,
		Clock: c.Clock, Timing: c.Timing, Replanning: c.Replanning, Judge: m.judge, Covers: &m.covers,
		Snapshot: m.snapshot,
		Decided: func() planner.Decided {
			return planner.Decided{InForce: m.inForce.Load(), Refused: m.refusedVerdict(), Assignment: m.Assignment()}
		},
		Stop:    func() string { return m.leadership.StopText() },
		Observe: m.report,
		OnStuck: func(stuck election.StuckClaim) { c.Exit(stuckReason(stuck)) },
	})
}

// report passes an event of the whole member on.
func (m *Member) report(e election.Event) { m.config.Observe(Event{Event: e}) }

// snapshot returns what is known of the fleet's Leases now. If there is a pause between the clock
// and the Leases, dead holders count as alive for that long, and not the other way round.
func (m *Member) snapshot() leaseapi.Snapshot {
	now := m.config.Clock.Now()
	return m.snapshotOf(m.observer.List(), now)
}

// snapshotOf returns observations, which must be sorted by name, as what was known at now.
func (m *Member) snapshotOf(observations []election.Observation, now time.Time) leaseapi.Snapshot {
	return leaseapi.NewSnapshot(m.config.Fleet, observations, m.config.Timing.LeaseDuration, now)
}

// Incarnation returns the identity of this process start.
func (m *Member) Incarnation() string { return m.incarnation }

// Assignment returns which member should own which shard, as this member sees it.
func (m *Member) Assignment() assignment.Assignment { return *m.assignment.Load() }

// Run takes part in the fleet until ctx ends, and then leaves it in order. It returns an error if
// the member's Lease was lost. Everything that it started has ended when it returns.
func (m *Member) Run(ctx context.Context) error {
	var observing sync.WaitGroup
	defer m.journal.follow(m.observer)()
	observerCtx, stopObserver := context.WithCancel(context.WithoutCancel(ctx))
	observing.Go(func() { m.observer.Run(observerCtx) })
	defer observing.Wait()
	defer stopObserver()
	if !m.waitForLeases(ctx) {
		return nil
	}

	memberCtx, stopMembership := context.WithCancel(context.WithoutCancel(ctx))
	defer stopMembership()
	leadershipCtx, stopLeadership := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLeadership()
	ended, leadershipEnded := make(chan error, 1), make(chan error, 1)
	go func() { ended <- m.membership.Run(memberCtx) }()
	go func() { leadershipEnded <- m.leadership.Run(leadershipCtx) }()
	returned := make(chan struct{})
	observing.Go(func() { m.endIfHung(returned) })
	defer close(returned)
	err := m.lead(ctx)
	m.membership.Leave()
	stopMembership()
	lost := <-ended
	// Last of all: while the fleet holds the leader locks, nobody else runs what it runs.
	stopLeadership()
	err = errors.Join(err, <-leadershipEnded)
	if err == nil && lost == nil && m.started.Load() {
		m.leadership.Release(context.WithoutCancel(ctx))
	}
	if failure := m.failure.Load(); lost != nil && failure != nil {
		lost = fmt.Errorf("%w; the last request for its Lease failed: %w", lost, *failure)
	}
	if m.fencing.IsMarked() {
		err = errors.Join(err, ErrFenced)
	}
	return errors.Join(err, lost)
}

var errHung = errors.New("the membership has ended, and the member has not returned long after: one of its loops hangs, or the building of a shard")

// endIfHung ends the process if one of its loops hangs for good: if the member relies on a Lease
// that it has not renewed for long, or has lost its membership and does not return. The loop of a
// claim does that for work that does not return, but cannot do it for itself. Twice in a row,
// because a process that was suspended needs a moment to notice what it has missed. returned is
// closed when all other loops have ended.
func (m *Member) endIfHung(returned <-chan struct{}) {
	period := m.config.Timing.LeaseDuration + m.drainTimeout()
	for suspect := false; ; {
		timer := m.config.Clock.NewTimer(period)
		select {
		case <-timer.C():
		case <-returned:
			timer.Stop()
			return
		}
		err := m.Renewing(period)
		select {
		case <-m.membership.Lost():
			err = cmp.Or(err, errHung)
		default:
		}
		if err != nil && suspect {
			if failure := m.failure.Load(); failure != nil {
				err = fmt.Errorf("%w; the last request for its Lease failed: %w", err, *failure)
			}
			m.config.Exit(err.Error())
			return
		}
		suspect = err != nil
	}
}

// observe handles and passes on the events of the member's own Lease.
func (m *Member) observe(e election.Event) {
	switch e.Type {
	case election.EventFailed:
		m.failure.Store(&e.Err)
	case election.EventWaiting:
		err := e.Err
		if err == nil && e.Holder != "" && e.Holder != m.incarnation {
			err = fmt.Errorf("its Lease is held by %s", e.Holder)
		}
		if err != nil {
			m.failure.Store(&err)
		}
	case election.EventAcquired, election.EventRenewed:
		m.failure.Store(nil)
	case election.EventUnmarked:
		e.Type = EventFenceRefused
	case election.EventStruck:
		if m.observer.Get(e.Name).Fenced(e.Holder) {
			fenced := e
			fenced.Type = EventFenced
			defer m.report(fenced) // the mark came with the strike
		}
	}
	m.report(e)
}

// lead claims shards from the time the member has joined until ctx ends or the membership is lost,
// and returns when all work has ended.
func (m *Member) lead(ctx context.Context) error {
	select {
	case <-m.membership.Joined():
	case <-m.membership.Lost():
		return nil
	case <-m.leadership.Lost():
		return nil // give up its Lease, which another incarnation may still hold
	case <-ctx.Done():
		return nil
	}
	if !m.waitForPlan(ctx) {
		return nil
	}
	claimCtx, stopClaims := context.WithCancel(context.WithoutCancel(ctx))
	defer m.runners.all.Wait()
	defer stopClaims()
	m.runners.all.Go(func() { m.planner.Run(claimCtx) })
	m.runners.all.Go(func() { m.tellMemory(claimCtx) })
	m.leadership.Claims()
	m.assignUntilDone(ctx, claimCtx, func() bool { return false })
	// Leave the roster first, so that others prepare for the shards to be handed over.
	m.membership.Leave()
	m.handOver(context.WithoutCancel(ctx), claimCtx)
	return nil
}

// handOver keeps the shards running until others have asked for them, nobody is left to ask, or
// HandoffTimeout has passed.
func (m *Member) handOver(ctx, claimCtx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := m.config.Clock.NewTimer(m.config.HandoffTimeout)
	defer timer.Stop()
	var waiting sync.WaitGroup
	defer waiting.Wait()
	done := make(chan struct{})
	defer close(done)
	waiting.Go(func() { afterOrDone(timer, done, cancel) })
	m.assignUntilDone(ctx, claimCtx, func() bool {
		return !slices.ContainsFunc(m.runners.list(), func(r *shardRunner) bool { return r.claimant.Claim() != nil })
	})
}

func stuckReason(s election.StuckClaim) string {
	if s.Reason == "" {
		return fmt.Sprintf("the work under Lease %s, term %d, has not returned %v after it was asked to stop: the Lease is left to expire",
			s.Name, s.Term, s.Since.Round(time.Millisecond))
	}
	return fmt.Sprintf("the work under Lease %s, term %d, has not returned %v after its claim ended (%s): others may hold it now",
		s.Name, s.Term, s.Since.Round(time.Millisecond), s.Reason)
}

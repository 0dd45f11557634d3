package fleet

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/fleet/inforce"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/fleet/shardrun"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// assignUntilDone starts and ends runners as the plan requires, and gives each its goal by roster
// and Leases, until ctx ends, the membership is lost, or done returns true. Runners end with
// claimCtx.
func (m *Member) assignUntilDone(ctx, claimCtx context.Context, done func() bool) {
	elsewhere := make(chan struct{}, 1)
	changed, stop := m.observer.SubscribeChanges(func(before, after election.Observation) bool {
		if !leaseapi.MayMoveShards(before, after) { // a renewal moves no shard
			return false
		}
		if m.concerns(before) || m.concerns(after) {
			return true
		}
		select {
		case elsewhere <- struct{}{}:
		default:
		}
		return false
	})
	defer stop()
	defer m.watchdog.rest()
	for {
		m.watchdog.feed(m.config.Clock.Now())
		secured, began := m.leadership.Awaited(), m.config.Clock.Now()
		due := began.Add(m.assign(ctx, claimCtx))
		if done() {
			return
		}
		// While a thousand shards move there is always something to do. Leave most of the CPU to
		// the goroutines that move them. When a hundred members come at once, look at some together.
		if took := m.config.Clock.Now().Sub(began); took > 0 {
			together := time.Duration(len(m.Assignment().Members())) * time.Millisecond
			m.pause(ctx, min(max(2*took, together), mostPause, m.config.Timing.RetryPeriod/4))
		}
		if !m.idle(ctx, changed, secured, elsewhere, began.Add(m.config.Timing.RetryPeriod/2), due) {
			return
		}
	}
}

// mostPause is the longest pause between slow assignments.
const mostPause = 500 * time.Millisecond

// concerns reports whether a Lease may decide what this member does next. Of planned shards' Leases,
// those may that this member holds, has asked for, or should own; and all while shards are retiring,
// whose successors may be anybody's. Otherwise shards move between others, and it is enough to look
// later: with a hundred members almost all moves are others'. All other Leases of the fleet may. The
// observer calls it, so it must not ask the observer.
func (m *Member) concerns(lease election.Observation) bool {
	plan := m.inForce.Load()
	if plan == nil || m.retiring.Load() {
		return true
	}
	id, planned := plan.ShardOf(m.config.Fleet, lease.Name)
	if !planned {
		return !lease.OfOtherFleet(m.config.Fleet)
	}
	return leaserecord.MemberOf(lease.Holder) == m.config.Member || lease.NextHolder() == m.incarnation ||
		m.assignment.Load().Owner(id) == m.config.Member
}

// idle returns true when there may be something to assign, at due at the latest, and false when ctx
// has ended or the membership is lost. If shards have moved elsewhere, it returns at later at the
// latest. Meanwhile it keeps feeding the watchdog, because heartbeats are sent only while the loop
// turns.
func (m *Member) idle(ctx context.Context, changed, secured, elsewhere <-chan struct{}, later, due time.Time) bool {
	for {
		now := m.config.Clock.Now()
		m.watchdog.feed(now)
		timer := m.config.Clock.NewTimer(min(due.Sub(now), m.config.Timing.RetryPeriod/2))
		select {
		case <-changed:
			due = now
		case <-m.runners.left:
			due = now
		case <-secured:
			due = now
		case <-elsewhere:
			elsewhere = nil // further changes alter nothing
			if later.Before(due) {
				due = later
			}
		case <-timer.C():
		case <-m.membership.Lost():
			timer.Stop()
			return false
		case <-ctx.Done():
			timer.Stop()
			return false
		}
		timer.Stop()
		if !m.config.Clock.Now().Before(due) {
			return true
		}
	}
}

// assign recomputes the assignment once and returns how long it holds if no Lease changes.
func (m *Member) assign(ctx, claimCtx context.Context) time.Duration {
	s := m.snapshot()
	now, roster := s.Now(), s.Roster()
	m.fencing.Look(ctx, s)
	m.journal.look(s)
	m.adopt(ctx, s)
	halts := m.leadership.Look(ctx)
	m.follow(ctx, claimCtx, s)
	plan := m.inForce.Load()
	holders, named := holders(plan, s)
	known := s.Known()
	a := m.Assignment()
	var err error
	// A member that joins computes nothing: while a hundred come, each would place all shards again
	// for each.
	if !roster.IsNew(m.config.Member) {
		a, err = assignment.Of(plan.Plan, plan.Digest(), roster, known, holders, a)
	}
	if err != nil {
		// The plan was valid when it was adopted, so this is a bug. Keep what is held.
		klog.FromContext(ctx).Error(err, "Could not place shards, keeping the last placement")
		return m.config.Timing.RetryPeriod
	}
	m.note(ctx, a)
	m.assignment.Store(&a)
	var next map[shard.ID]string
	if m.config.Standby && !halts {
		next = a.Standbys(plan.Plan, named)
	}
	secured, followed := m.leadership.IsSecured(), m.judge.Followed(m.refusedVerdict(), plan, roster)
	if !secured && !halts {
		m.prospects.look(plan, roster.Grown(), known, holders, now, m.settling())
	}
	runners := m.runners.list()
	goals := make([]goal, len(runners))
	for n, r := range runners {
		switch _, planned := plan.Extents()[r.shard.ID]; {
		case halts:
			goals[n] = goal{desired: election.Released}
		case !planned:
			goals[n] = goal{desired: election.Retained}
		case r.isShunned(), followed && !r.state().Work.IsRunning():
			goals[n] = goal{desired: election.Released}
		case !secured:
			// Somebody else still runs everything. Keep warm what will be this member's.
			goals[n] = goal{
				desired: election.Released,
				Goal:    shardrun.Goal{Standby: m.prospects.assignment.Owner(r.shard.ID) == m.config.Member},
			}
		default:
			goals[n] = m.goalOf(r, a, next, s)
		}
	}
	m.expect(runners, goals)
	for n, r := range runners {
		r.assign(goals[n])
	}
	m.started.Store(m.started.Load() || secured)
	if halts {
		m.restIfDrained(ctx)
		return m.config.Timing.RetryPeriod
	}
	if left := m.prospects.since.Add(m.settling()).Sub(now); !secured && left > 0 {
		return min(left, m.config.Timing.RetryPeriod)
	}
	if next := roster.NextChange(); next.After(now) {
		return next.Sub(now)
	}
	return m.config.Timing.RetryPeriod
}

// restIfDrained makes the member still, because the fleet is stopped, once it holds nothing and
// runs nothing.
func (m *Member) restIfDrained(ctx context.Context) {
	if !slices.ContainsFunc(m.runners.list(), func(r *shardRunner) bool { return r.claimant.Claim() != nil || r.state().Work.IsRunning() }) {
		m.leadership.Rest(ctx)
	}
}

// reassign triggers a new assignment.
func (m *Member) reassign() {
	select {
	case m.runners.left <- struct{}{}:
	default: // one is to come
	}
}

// shun gives the shard up until the plan's Lease has another plan: the present one does not have
// the shard.
func (r *shardRunner) shun() {
	m := r.member
	text := m.observer.Get(leaseapi.PlanLease(m.config.Fleet)).Annotations[leaseapi.DocumentAnnotation]
	r.update(func(now *standing) { now.shunned = &text })
	r.claimant.SetDesired(election.Released)
	m.reassign() // the one under way may predate this
}

// isShunned reports whether the plan for which the shard was given up is still on the plan's Lease,
// and can be used.
func (r *shardRunner) isShunned() bool {
	m, shunned := r.member, r.now.Load().shunned
	return shunned != nil && m.Refused() == nil && m.observer.Get(leaseapi.PlanLease(m.config.Fleet)).Annotations[leaseapi.DocumentAnnotation] == *shunned
}

// expect tells the process which ranges it works on or is about to, before any of them is built.
func (m *Member) expect(runners []*shardRunner, goals []goal) {
	if m.config.Expect == nil {
		return
	}
	var ranges []shard.Range
	for n, r := range runners {
		g, within := goals[n], r.extent.Range
		if (g.Owned || g.Standby || r.state().Work.IsRunning()) && !within.IsEverything() && !slices.Contains(ranges, within) {
			ranges = append(ranges, within)
		}
	}
	if !slices.Equal(ranges, m.expected) {
		m.expected = ranges
		m.config.Expect(slices.Clone(ranges))
	}
}

// goalOf returns the goal of a planned shard's runner.
func (m *Member) goalOf(r *shardRunner, a assignment.Assignment, next map[shard.ID]string, s leaseapi.Snapshot) goal {
	owner := a.Owner(r.shard.ID)
	owned, held := owner == m.config.Member, r.claimant.Claim() != nil
	var lease election.Observation
	if owned || held { // few of a thousand
		lease = m.observer.Get(r.lease)
	}
	g := goal{
		desired: desired(owned, held, held && asked(lease, owner, s.Roster())),
		Goal: shardrun.Goal{
			Owned:   owned,
			Wanted:  owned && !held && lease.Holder != m.incarnation && s.IsHeld(lease),
			Standby: !owned && next[r.shard.ID] == m.config.Member,
		},
	}
	if g.Wanted {
		g.holder, g.term = lease.Holder, lease.Transitions
	}
	return g
}

// desired returns the state that a claim should reach. A holder that should not own the shard keeps
// running it until the owner has prepared and asks.
func desired(owned, held, asked bool) election.Desired {
	switch {
	case owned:
		return election.Held
	case held && !asked:
		return election.Retained
	default:
		return election.Released
	}
}

// asked reports whether there is nobody to wait for, or the owner has asked for the shard. A
// request by anyone else does not count: anybody may have written it to the Lease.
func asked(lease election.Observation, owner string, roster membership.Roster) bool {
	if owner == "" {
		return true
	}
	member, live := roster.Get(owner)
	return live && lease.NextHolder() == member.Incarnation && !faults.AskIgnored
}

// holders returns, for each shard, the member that holds it and the member that its Lease names,
// expired or not. Standbys go by the latter: a shard gets no other owner before its holder is known
// to have ended.
func holders(plan *inforce.Plan, s leaseapi.Snapshot) (holders, named map[shard.ID]string) {
	holders, named = make(map[shard.ID]string, len(plan.Shards())), make(map[shard.ID]string, len(plan.Shards()))
	leases := s.Leases()
	for i := range leases {
		lease := &leases[i]
		id, planned := plan.ShardOf(s.Fleet(), lease.Name)
		if !planned || lease.Holder == "" {
			continue
		}
		named[id] = leaserecord.MemberOf(lease.Holder)
		if s.IsHeld(*lease) {
			holders[id] = named[id]
		}
	}
	return holders, named
}

// note logs changes of the roster.
func (m *Member) note(ctx context.Context, a assignment.Assignment) {
	logger, last := klog.FromContext(ctx), m.Assignment()
	if !slices.Equal(last.Members(), a.Members()) {
		logger.Info("Members of the ring changed", "members", a.Members(), "before", last.Members())
	}
	if len(a.Foreign()) > 0 && !slices.Equal(last.Foreign(), a.Foreign()) {
		logger.Error(nil, "Live members refuse the plan and are left out of the rings", "members", a.Foreign())
	}
}

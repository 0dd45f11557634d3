package fleet

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/internal/plant"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// wishUntilDone keeps the runners in line with the plan, and their wishes with the roster and the Leases, until ctx
// ends, the membership is lost, or done says so. Runners end with claimCtx.
func (m *Member) wishUntilDone(ctx, claimCtx context.Context, done func() bool) {
	changed, stop := m.observer.SubscribeChanges(leaseapi.MayMoveShards) // what a renewal changes moves no shard
	defer stop()
	defer m.pulse.rest()
	for {
		m.pulse.beat(m.config.Clock.Now())
		secured, began := m.leaderLocks.awaited(), m.config.Clock.Now()
		due := began.Add(m.wish(ctx, claimCtx))
		if done() {
			return
		}
		// While a thousand shards move there is always something new. Leave most of the CPU to the
		// goroutines that move them.
		if took := m.config.Clock.Now().Sub(began); took > 0 {
			m.pause(ctx, min(2*took, mostPause, m.config.Timing.RetryPeriod/4))
		}
		if !m.idle(ctx, changed, secured, due) {
			return
		}
	}
}

// mostPause is the longest pause between wishes that take long.
const mostPause = 500 * time.Millisecond

// idle returns true when there may be something to wish, and at due at the latest; false when ctx has ended or the membership is
// lost. The loop comes round meanwhile: heartbeats are sent only while it does.
func (m *Member) idle(ctx context.Context, changed, secured <-chan struct{}, due time.Time) bool {
	for {
		now := m.config.Clock.Now()
		m.pulse.beat(now)
		timer := m.config.Clock.NewTimer(min(due.Sub(now), m.config.Timing.RetryPeriod/2))
		select {
		case <-changed:
		case <-m.runners.left:
		case <-secured:
		case <-timer.C():
			if m.config.Clock.Now().Before(due) {
				continue
			}
		case <-m.membership.Lost():
			timer.Stop()
			return false
		case <-ctx.Done():
			timer.Stop()
			return false
		}
		timer.Stop()
		return true
	}
}

// wish recomputes the wishes once and returns how long they hold if nothing is
// observed.
func (m *Member) wish(ctx, claimCtx context.Context) time.Duration {
	now := m.config.Clock.Now()
	observations := m.observer.List()
	m.noteMarks(ctx, observations, now)
	roster := election.RosterFrom(m.config.Fleet, observations, m.config.Timing.LeaseDuration, now)
	m.journal.look(roster, m.observer.Get)
	m.adopt(ctx, roster)
	halts := m.lookForStop(ctx)
	m.follow(ctx, claimCtx, observations, now)
	force := m.inForce.Load()
	plan := force.plan
	holders, named := m.holders(force, now)
	known := leaseapi.KnownMembers(m.config.Fleet, observations)
	w, err := assignment.Compute(plan, force.digest, roster, known, holders, m.Assignment())
	if err != nil {
		// The plan was valid when it was adopted, so this is a bug; what is held is kept.
		klog.FromContext(ctx).Error(err, "Could not place shards, keeping the last placement")
		return m.config.Timing.RetryPeriod
	}
	m.note(ctx, w)
	m.wishes.Store(&w)
	var next map[shard.ID]string
	if m.config.Standby && !halts {
		next = w.Standbys(plan, named)
	}
	secured, followed := m.leaderLocks.isSecured(), m.isFollowed(roster)
	if !secured && !halts {
		m.prospects.look(plan, roster.Grown(), known, holders, now, m.settling())
	}
	for _, r := range m.runners.list() {
		switch _, planned := force.extents[r.shard.ID]; {
		case halts:
			r.wish(election.Leave, false, false, false)
		case !planned:
			r.wish(election.Keep, false, false, false)
		case r.isShunned(), followed && !r.running.Load():
			r.wish(election.Leave, false, false, false)
		case !secured:
			// Somebody else runs all of it still. What is to be ours is kept warm until then.
			r.wish(election.Leave, false, false, m.prospects.wishes.Owner(r.shard.ID) == m.config.Member)
		default:
			m.wishOf(r, w, next, roster, now)
		}
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

// shun gives the shard up until the plan on its Lease is another one: the one that is there does
// not have it.
func (r *shardRunner) shun() {
	m := r.member
	text := m.observer.Get(leaseapi.PlanLease(m.config.Fleet)).Annotations[leaseapi.DocumentAnnotation]
	r.shunned.Store(&text)
	r.claimant.SetWish(election.Leave)
	select {
	case m.runners.left <- struct{}{}: // what is being wished now may be from before
	default:
	}
}

// isShunned reports whether the plan is there still for which the shard was given up, and can be
// used.
func (r *shardRunner) isShunned() bool {
	m, shunned := r.member, r.shunned.Load()
	return shunned != nil && m.Refused() == nil && m.observer.Get(leaseapi.PlanLease(m.config.Fleet)).Annotations[leaseapi.DocumentAnnotation] == *shunned
}

// wishOf says what the runner of a shard in the plan is to want.
func (m *Member) wishOf(r *shardRunner, w assignment.Assignment, next map[shard.ID]string, roster election.Roster, now time.Time) {
	owner := w.Owner(r.shard.ID)
	owned := owner == m.config.Member
	lease := m.observer.Get(leaseapi.ShardLease(m.config.Fleet, r.shard.ID))
	held := r.claimant.Claim() != nil
	wanted := owned && !held && lease.Holder != m.incarnation && m.isHeld(lease, now)
	r.wish(wishFor(owned, held, asked(lease, owner, roster)), owned, wanted, !owned && next[r.shard.ID] == m.config.Member)
}

// wishFor is what a claimant is to want. A holder that is not to own the shard any more goes
// on until the one that is has prepared for it, and asks.
func wishFor(owned, held, asked bool) election.Wish {
	switch {
	case owned:
		return election.Want
	case held && !asked:
		return election.Keep
	default:
		return election.Leave
	}
}

// asked tells whether there is nobody to wait for, or the owner has asked for the shard. A
// request by anyone else is none: what is on the Lease, anybody may have written.
func asked(lease election.Observation, owner string, roster election.Roster) bool {
	if owner == "" {
		return true
	}
	member, live := roster.Get(owner)
	return live && lease.NextHolder() == member.Incarnation && !plant.AskIgnored
}

// holders returns the member that holds each shard now, and the one that its Lease names, expired or not. The latter are whom
// standbys stand by: a dead member's Leases expire one after the other, and its shards have no other owner before its own has.
func (m *Member) holders(plan *inForce, now time.Time) (holders, named map[shard.ID]string) {
	holders, named = map[shard.ID]string{}, map[shard.ID]string{}
	for _, s := range plan.shards {
		lease := m.observer.Get(leaseapi.ShardLease(m.config.Fleet, s.ID))
		if lease.Holder != "" {
			named[s.ID] = election.MemberOf(lease.Holder)
		}
		if m.isHeld(lease, now) {
			holders[s.ID] = named[s.ID]
		}
	}
	return holders, named
}

// isHeld reports whether a Lease has a holder and has not expired.
func (m *Member) isHeld(lease election.Observation, now time.Time) bool {
	return lease.IsHeld(now, m.config.Timing.LeaseDuration)
}

// note logs what has changed in the roster.
func (m *Member) note(ctx context.Context, w assignment.Assignment) {
	logger, last := klog.FromContext(ctx), m.Assignment()
	if !slices.Equal(last.Members(), w.Members()) {
		logger.Info("Members of the ring changed", "members", w.Members(), "before", last.Members())
	}
	if len(w.Foreign()) > 0 && !slices.Equal(last.Foreign(), w.Foreign()) {
		logger.Error(nil, "Live members refuse the plan and are left out of the rings", "members", w.Foreign())
	}
}

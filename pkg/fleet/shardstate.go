package fleet

import (
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/fleet/shardrun"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// ShardState is where a shard stands on one member. The values are stable and few enough for a
// metric label.
type ShardState string

const (
	// StateNone: the member has nothing to do with the shard.
	StateNone ShardState = ""
	// StatePreparing: another member holds it; this one builds its work and fills its caches.
	StatePreparing ShardState = "preparing"
	// StatePrepared: everything is ready to take it over.
	StatePrepared ShardState = "prepared"
	// StateWaiting: it is held, and shards of an older plan that cover some of the same still run.
	StateWaiting ShardState = "waiting"
	// StateStarting: it is held, and its controllers do not run yet.
	StateStarting ShardState = "starting"
	// StateRunning: its controllers run.
	StateRunning ShardState = "running"
	// StateDraining: its work was asked to stop, or its claim was lost, and not all of it has
	// returned.
	StateDraining ShardState = "draining"
)

// ShardStates returns all states but StateNone, in the order in which a shard passes through them.
func ShardStates() []ShardState {
	return []ShardState{StatePreparing, StatePrepared, StateWaiting, StateStarting, StateRunning, StateDraining}
}

// stateOf returns where a shard stands, given its run and whether its claim is held and drains.
func stateOf(run shardrun.State, held, drains bool) ShardState {
	switch work := run.Work; {
	case work.IsRunning() && (!held || drains):
		return StateDraining
	case work.Up:
		return StateRunning
	case held && work.Waits():
		return StateWaiting
	case held:
		return StateStarting
	}
	switch run.Preparation.Stage {
	case shardrun.Filling:
		return StatePreparing
	case shardrun.Warm:
		return StatePrepared
	default:
		return StateNone
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Counted is what a shard's caches held at its holder's last count.
type Counted struct {
	Objects    int64
	Namespaces int
}

// LeaderLockState is what a member knows of one leader lock.
type LeaderLockState struct {
	// Lease is the leader lock's name.
	Lease string
	// Held reports whether the fleet holds it. Holder is the holder that the Lease names.
	Held   bool
	Holder string
	// Live reports whether the Lease names a holder, the fleet or another, that this member has
	// seen renew it within the lease duration, or within the duration that the Lease declares but
	// at most a minute ago.
	Live bool
}

// leaderLockSilence is how long a silent holder of a leader lock counts as live, whatever its Lease
// declares.
const leaderLockSilence = time.Minute

// LeaderLocks returns the state of every leader lock, in the order of Config.LeaderLocks.
func (m *Member) LeaderLocks() []LeaderLockState {
	now := m.config.Clock.Now()
	states := make([]LeaderLockState, 0, len(m.config.LeaderLocks))
	for i, lock := range m.leaderLocks.current().all {
		name := m.config.LeaderLocks[i]
		states = append(states, LeaderLockState{Lease: name, Held: lock.Valid(now), Holder: lock.Holder(), Live: m.isRenewed(m.observer.Get(name), now)})
	}
	return states
}

// isRenewed reports whether a leader lock has a holder that renews it.
func (m *Member) isRenewed(lock election.Observation, now time.Time) bool {
	return m.isHeld(lock, now) && now.Sub(lock.Seen) < max(leaderLockSilence, m.config.Timing.LeaseDuration)
}

// Roster returns the live members, as this member sees them.
func (m *Member) Roster() membership.Roster {
	return membership.RosterFrom(m.config.Fleet, m.observer.List(), m.config.Timing.LeaseDuration, m.config.Clock.Now())
}

// RingLoad returns how the weight of the ring is distributed over the members that serve it, with
// what they carry besides the ring, by what holders publish on their Leases. A shard without a
// holder counts for its owner. It returns false until all have counted, and for rings that are not
// namespaced.
func (m *Member) RingLoad(ring shard.Ring) (shard.Balance, bool) {
	members, assignment, now := m.Assignment().MembersOf(ring.Name), m.Assignment(), m.config.Clock.Now()
	if ring.Scope != shard.ScopeNamespaced || len(members) == 0 || len(ring.Shards) == 0 {
		return shard.Balance{}, false
	}
	plan, _ := m.Plan()
	holder := func(id shard.ID) string {
		if lease := m.observer.Get(leaseapi.ShardLease(m.config.Fleet, id)); m.isHeld(lease, now) {
			return leaserecord.MemberOf(lease.Holder)
		}
		return assignment.Owner(id)
	}
	weights, complete := leaseapi.WeightsOf(m.config.Fleet, plan, ring, m.observer.Get, holder)
	if !complete {
		return shard.Balance{}, false
	}
	where := func(id shard.ID) (string, bool) { return holder(id), true }
	return shard.BalanceBy(ring, where, weights.Weights, members), true
}

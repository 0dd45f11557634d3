package fleet

import (
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leadership"
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

// LeaderLocks returns the state of every leader lock, in the order of Config.LeaderLocks.
func (m *Member) LeaderLocks() []leadership.LockState { return m.leadership.Locks() }

// Roster returns the live members, as this member sees them.
func (m *Member) Roster() membership.Roster { return m.snapshot().Roster() }

// RingLoad returns how the weight of the ring is distributed over the members that serve it, with
// what they carry besides the ring, by what holders publish on their Leases. A shard without a
// holder counts for its owner. It returns false until all have counted, and for rings that are not
// namespaced.
func (m *Member) RingLoad(ring shard.Ring) (shard.Balance, bool) {
	members, assignment, s := m.Assignment().MembersOf(ring.Name), m.Assignment(), m.snapshot()
	if ring.Scope != shard.ScopeNamespaced || len(members) == 0 || len(ring.Shards) == 0 {
		return shard.Balance{}, false
	}
	plan, _ := m.Plan()
	holder := func(id shard.ID) string {
		if lease := s.Shard(id); s.IsHeld(lease) {
			return leaserecord.MemberOf(lease.Holder)
		}
		return assignment.Owner(id)
	}
	weights, complete := leaseapi.WeightsOf(m.config.Fleet, plan, ring, s.Get, holder)
	if !complete {
		return shard.Balance{}, false
	}
	where := func(id shard.ID) (string, bool) { return holder(id), true }
	return shard.BalanceBy(ring, where, weights.Weights, members), true
}

package fleet

import (
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// ShardStatus is what a member knows of one shard.
type ShardStatus struct {
	ID shard.ID
	// Owned reports whether this member holds a valid claim, of this Term.
	Owned bool
	Term  int32
	// Running reports whether the shard's work has been started.
	Running bool
	// Waiting reports whether the work is claimed and not begun because shards of an older plan
	// generation have to be released first, once it is prepared.
	Waiting bool
	// Prepared reports whether everything is prepared, and the shard waits only for them.
	Prepared bool
	// State is where the shard stands on this member.
	State ShardState
	// Counted is the last count under this claim; nil if the shard is not owned or has not been
	// counted.
	Counted *Counted
	// RenewAge is how long ago the member's last confirmed heartbeat was started; 0 if not owned.
	RenewAge time.Duration
	// Owner is the member that should own the shard; empty while the fleet is stopped.
	Owner string
	// Holder is the incarnation that the Lease names; empty if none.
	Holder string
}

// Shards returns the state of every shard of the plan, and of those of an older plan that this
// member still has, sorted by ID.
func (m *Member) Shards() []ShardStatus {
	now, assignment, halts := m.config.Clock.Now(), m.Assignment(), m.leadership.Halts()
	runners := m.runners.list()
	states := make([]ShardStatus, 0, len(runners))
	for _, r := range runners {
		known, claim := r.now.Load(), r.claimant.Claim()
		s := ShardStatus{
			ID: r.shard.ID, Owner: assignment.Owner(r.shard.ID), Running: known.run.Work.IsRunning(), Waiting: known.run.Work.Waits() || known.run.Work.Ready() > 0,
			Prepared: known.run.Work.Ready() > 0,
			State:    stateOf(known.run, claim != nil, claim != nil && isClosed(claim.Draining())),
		}
		if halts {
			s.Owner = ""
		}
		s.Holder = m.observer.Get(r.lease).Holder
		if claim != nil && claim.Valid(now) {
			s.Owned, s.Term, s.RenewAge, s.Counted = true, claim.Term(), now.Sub(claim.LastRenew()), known.counted
		}
		states = append(states, s)
	}
	return states
}

// isDrained reports whether an operator has drained this member.
func (m *Member) isDrained() bool {
	return m.observer.Get(leaserecord.MemberLease(m.config.Fleet, m.config.Member)).Annotations[leaseapi.DrainAnnotation] != ""
}

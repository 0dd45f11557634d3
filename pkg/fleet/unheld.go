package fleet

import (
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
)

// unheldSince returns since when nobody has been able to write on what the shard covers, if it is known that all that was
// written before has arrived; zero otherwise. It is for a claim that has just been acquired, and a shard that inherits from
// nobody, dead or alive.
//
// The claim was acquired by a write on the version that it saw, so nobody has held the Lease between. A Lease that was not there
// may have been deleted under its holder, who then had a lease duration to find out: as much as the claim has waited. Whoever held
// the same part as another shard, or as one of this name that covered something else, had released it when the plan was adopted.
func (m *Member) unheldSince(claim *election.Claim) time.Time {
	plan, before := m.inForce.Load(), claim.Before()
	if plan.settled.IsZero() || before.Exists && !haveArrived(before) {
		return time.Time{}
	}
	return later(later(before.ExpiresAt(m.config.Timing.LeaseDuration), plan.settled), m.gates.heldSince())
}

// settledNow returns the present, if nobody holds anything that is not in the plan, and all that was written by who did has arrived;
// zero otherwise. Once the plan is in force nobody begins with anything else.
func (m *Member) settledNow(plan *inForce) time.Time {
	for _, o := range m.observer.List() {
		if m.isShard(o) && !m.isPlanned(o, plan) && !haveArrived(o) {
			return time.Time{}
		}
	}
	return m.config.Clock.Now()
}

// haveArrived tells whether a Lease is released, by a holder that knows of all its writes what became of them.
func haveArrived(o election.Observation) bool {
	writes, left := election.WritesOf(o)
	return left && len(writes.Unknown()) == 0
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

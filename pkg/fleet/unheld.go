package fleet

import (
	"slices"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
)

// unheldAtClaim returns since when nobody has been able to write on what the shard covers, if it is known that all that was
// written before has arrived; zero otherwise. It is for a claim that has been acquired, after the Leases were looked at and none
// that is live was found to cover some of the same.
//
// The claim was acquired by a write on the version that it saw, so nobody has held the Lease between. A Lease that was not there
// may have been deleted under its holder, who then had a lease duration to find out: as much as the claim has waited.
func (r *shardRunner) unheldAtClaim(claim *election.Claim) time.Time {
	before := claim.Before()
	if before.Exists && !haveArrived(before) {
		return time.Time{}
	}
	return r.unheldSince(before.ExpiresAt(r.member.config.Timing.LeaseDuration))
}

// unheldByOthers is that for a preparation: since when nobody has been able to write but who holds the shard, and will leave what it
// wrote last.
func (r *shardRunner) unheldByOthers(lease election.Observation) time.Time {
	if lease.Holder == "" {
		return time.Time{}
	}
	return r.unheldSince(lease.HolderSeen)
}

// unheldSince is no earlier than since, the time of which that is known by the shard's own Lease. Whoever held the same part as
// another shard has released that, as can be seen; and whoever held it as a shard of this name that covered something else, when
// the plan was adopted. Not seen are Leases of other shards that were deleted, under which two may run anyway.
func (r *shardRunner) unheldSince(since time.Time) time.Time {
	m := r.member
	plan, held := m.inForce.Load(), m.leaderLocks.current()
	if plan.settled.IsZero() || !held.isSecured() {
		return time.Time{}
	}
	all := []time.Time{since, plan.settled, held.since}
	for _, o := range m.overlapping(m.observer.List(), plan, r.shard.ID, r.extent) {
		if !haveArrived(o) {
			return time.Time{}
		}
		all = append(all, o.Seen)
	}
	return slices.MaxFunc(all, time.Time.Compare)
}

// settledNow returns the present, if nobody holds anything that is not in the plan, and all that was written by who did has arrived;
// zero otherwise.
func (m *Member) settledNow(plan *inForce) time.Time {
	for _, o := range m.observer.List() {
		if m.isShard(o) && !m.isPlanned(o, plan) && !haveArrived(o) {
			return time.Time{}
		}
	}
	return m.config.Clock.Now()
}

// haveArrived reports whether a Lease is released, by a holder that knows of all its writes what
// became of them.
func haveArrived(o election.Observation) bool {
	writes, left := o.Writes()
	return left && len(writes.Unknown()) == 0
}

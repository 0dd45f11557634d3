package fleet

import (
	"slices"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
)

// unheldAtClaim returns the time since which nobody has been able to write to what the shard
// covers, if everything written before is known to have arrived; otherwise zero. It is for an
// acquired claim, after the member has looked at the Leases and found no live one that overlaps.
//
// The claim was acquired by a write on the version that it saw, so nobody has held the Lease in
// between. A missing Lease may have been deleted while it was held. Its holder then had a lease
// duration to find out, which is as long as the claim has waited.
func (r *shardRunner) unheldAtClaim(claim *election.Claim) time.Time {
	before := claim.Before()
	if before.Exists && !haveArrived(before) {
		return time.Time{}
	}
	return r.unheldSince(before.ExpiresAt(r.member.config.Timing.LeaseDuration))
}

// unheldByOthers does the same for a preparation: it returns the time since which nobody has been
// able to write except the shard's holder, which will record its last writes.
func (r *shardRunner) unheldByOthers(lease election.Observation) time.Time {
	if lease.Holder == "" {
		return time.Time{}
	}
	return r.unheldSince(lease.HolderSeen)
}

// unheldSince returns a time no earlier than since, which the shard's own Lease shows. A member
// that held the same part as another shard has visibly released it. A member that held it as a
// shard of this name with another extent had released it when the plan was adopted. unheldSince
// does not see deleted Leases of other shards, under which two may run anyway.
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

// settledNow returns the present if nobody holds a shard that is not in the plan and all writes
// under such shards have arrived; zero otherwise.
func (m *Member) settledNow(plan *inForce) time.Time {
	for _, o := range m.observer.List() {
		if m.isShard(o) && !m.isPlanned(o, plan) && !haveArrived(o) {
			return time.Time{}
		}
	}
	return m.config.Clock.Now()
}

// haveArrived reports whether a Lease was released by a holder that knows the outcome of all its
// writes.
func haveArrived(o election.Observation) bool {
	writes, left := o.Writes()
	return left && len(writes.Unknown()) == 0
}

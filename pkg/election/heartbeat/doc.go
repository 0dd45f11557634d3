// Package heartbeat decides who may write when a member has one heartbeat for all of its shards. It
// is pure: Leases come in as values, and what to write comes out. Package election carries the
// decisions out; docs/design/heartbeat.md has the argument.
//
// A member renews only its own Lease. A shard's Lease records who owns the shard, an incarnation
// and a term, and is written when that changes. Three functions decide:
//
//   - [Step] is the member's heartbeat: it acquires, renews and releases the member's Lease, and
//     says until when the incarnation has rights.
//   - [JudgeStep] judges another member: it strikes one that holds shards and has died.
//   - [ClaimStep] is one shard's claim: it takes the shard's Lease, ends the claim, and releases
//     the Lease. election.Step handles what the claim is for, its work, and asks ClaimStep.
//
// # Strike
//
// A strike is one update of a member's Lease that lists an incarnation as ended. It is conditional
// on the version that stood still for LeaseDuration. So a renewal under way makes it fail, and
// after it no renewal of that incarnation succeeds. All live members judge all others. A member
// that wants a shard must have read that the incarnation in the shard's Lease has ended. That never
// becomes untrue, so a watch that is behind does no harm, and one strike frees all shards of a dead
// member. An incarnation that leaves lists itself, and one that acquires the member's Lease lists
// its predecessor.
//
// # Guarantees
//
//   - One holder. Two incarnations never have rights to one shard at the same time, as long as
//     their clocks differ in speed by less than LeaseDuration/RenewDeadline, and nobody else writes
//     a holder that looks like one of theirs. This holds despite lost answers, requests carried out
//     late, watches that are behind or hang, suspended processes, and the deletion of a member's
//     Lease.
//   - A Lease without a holder that nobody has released, and one whose holder never asked for it,
//     are free only after the same wait as a dead holder's. So emptying a shard's Lease, or forging
//     the name of somebody who is not alive, makes no second holder.
//   - A right ends RenewDeadline after the start of the last confirmed heartbeat, and never comes
//     back to life. A heartbeat is confirmed once the member knows everything that was written
//     before it: because the watch has brought it, or because the member has read a consistent list
//     that began after its answer. So a claim ends at most RenewDeadline after somebody has changed
//     its shard's Lease, even if the watch hangs. While the API server answers, it ends after about
//     a RetryPeriod.
//   - A heartbeat is sent only if the member's loops have come round since the one before. A member
//     that hangs loses its shards like one that has died, at most a RetryPeriod later.
//   - Terms rise with each acquisition of a shard, even by the same incarnation.
//   - The shards of a dead member are free LeaseDuration after its last heartbeat was seen, all at
//     once.
//   - The list of ended incarnations has at most those that shards' Leases name, and one more.
//
// # Not guaranteed
//
//   - A clock that stands still, like that of a paused virtual machine, keeps rights alive on
//     waking until the next request is answered. If anybody has taken one of the incarnation's
//     shards, it has been struck by then, so a fence in the API server can refuse its writes.
//   - Anyone who forges a shard's Lease in the name of an incarnation that has ended, releases it
//     in its holder's name, or deletes it twice within a LeaseDuration, makes a second holder
//     possible until the first has seen it.
//   - Anyone who removes incarnations from the list of ended ones delays those who wait, and does
//     no other harm.
//   - Progress while the API server cannot be reached.
//
// # What the caller owes
//
//   - All times are readings of one process's clock, which never goes back and counts the time of a
//     suspension.
//   - Every write is conditional on version and UID: without the UID the API server creates a Lease
//     by an update.
//   - One watch brings the Leases of members and shards in the order in which they were written.
//     Through is how far it has come. Answers to the process's own requests also enter the view,
//     but do not move Through; a consistent list of all Leases does.
//   - There is at most one request under way for each Lease, and what a process knows of a Lease
//     never goes back ([MemberView.Saw], [ShardView.Saw]).
//   - Work begins only while the right and the claim hold, and each write checks again, see
//     [Right.Valid].
package heartbeat

// Package heartbeat decides who may write when a member has one heartbeat for all of its shards. It
// is pure: Leases come in as values, and what to write comes out. Package election carries it out;
// docs/design/heartbeat.md has the argument.
//
// A member renews its own Lease and no other. A shard's Lease is the record of who owns the shard,
// an incarnation and a term, and is written when that changes. Three functions decide:
//
//   - [Step] is the member's heartbeat: it acquires, renews and releases the member's Lease, and
//     says until when the incarnation has rights.
//   - [JudgeStep] is the judgement of another member: it strikes one that holds shards and has
//     died.
//   - [ClaimStep] is one shard's claim: it takes the shard's Lease, ends the claim, and releases
//     the Lease. What the claim is for, its work, is election.Step's, which asks ClaimStep.
//
// # Strike
//
// A strike is one update of a member's Lease that lists an incarnation as ended. It is conditional
// on the version that was seen to stand still for LeaseDuration, so a renewal under way makes it
// fail, and after it no renewal of that incarnation succeeds. All live members judge all others.
// Whoever wants a shard must have read that the incarnation in the shard's Lease has ended. That
// never becomes untrue, so a watch that is behind does no harm, and one strike frees all shards of
// a dead member. An incarnation that leaves lists itself, and one that acquires the member's Lease
// lists its predecessor.
//
// # Guarantees
//
//   - One holder. Two incarnations never have rights to one shard at the same time, as long as
//     their clocks differ in speed by less than LeaseDuration/RenewDeadline, and nobody else writes
//     a holder that looks like one of theirs. Lost answers, requests carried out late, watches that
//     are behind or hang, suspended processes, and the deletion of a member's Lease change nothing
//     about that.
//   - A Lease without a holder that nobody has released, and one whose holder never asked for it,
//     are waited for like a dead holder's. So emptying a shard's Lease, or forging the name of
//     somebody who does not live, makes no second holder.
//   - A right ends RenewDeadline after the start of the last confirmed heartbeat, and never comes
//     back to life. A heartbeat is confirmed once everything that was written before it is known:
//     because the watch has brought it, or because a consistent list that began after its answer
//     has been read. So a claim ends at most RenewDeadline after somebody has changed its shard's
//     Lease, even if the watch hangs, and about a RetryPeriod after as long as the API server
//     answers.
//   - A heartbeat is sent only if the member's loops have come round since the one before. A member
//     that hangs loses its shards like one that has died, at most a RetryPeriod later.
//   - Terms rise with each acquisition of a shard, also by the same incarnation.
//   - The shards of a dead member are free LeaseDuration after its last heartbeat was seen, all at
//     once.
//   - The list of ended incarnations is bounded by those that shards' Leases name, and one more.
//
// # Not guaranteed
//
//   - A clock that stands still, as that of a paused virtual machine does, keeps rights alive on
//     waking until the next request is answered. The incarnation has been struck by then if anybody
//     has taken one of its shards, so that a fence in the API server can refuse what it still
//     sends.
//   - Whoever forges a shard's Lease in the name of an incarnation that has ended, releases it in
//     its holder's name, or deletes it twice within a LeaseDuration, makes a second holder possible
//     until the first has seen it.
//   - Whoever takes incarnations off the list of ended ones delays those who wait; nobody is
//     harmed.
//   - Progress while the API server cannot be reached.
//
// # What the caller owes
//
//   - All times are readings of one process's clock, which never goes back and counts the time of a
//     suspension.
//   - Every write is conditional on version and UID: without the UID the API server creates a Lease
//     by an update.
//   - One watch brings the Leases of members and shards in the order in which they were written.
//     Through is how far it has come. Answers to the process's own requests are taken in too, but
//     do not move Through; a consistent list of all of them does.
//   - There is at most one request under way for each Lease, and what a process knows of a Lease
//     never goes back ([MemberView.Saw], [ShardView.Saw]).
//   - Work begins only while the right and the claim hold, and each write asks again, see
//     [Right.Valid].
package heartbeat

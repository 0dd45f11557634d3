// Package heartbeat decides which member may write, where a member has one heartbeat for all of its
// shards. It is pure: it takes Leases as values and returns what to write. Packages membership and
// election carry the decisions out; docs/design/heartbeat.md has the argument.
//
// A member renews only its own Lease. A shard's Lease records the shard's holder, an incarnation,
// and the term, and is written when these change. Three functions decide:
//
//   - [Step] is the member's heartbeat: it acquires, renews and releases the member's Lease, and
//     returns until when the incarnation has rights.
//   - [JudgeStep] judges another member: it strikes a dead member that holds shards.
//   - [ClaimStep] is one shard's claim: it acquires the shard's Lease, ends the claim, and releases
//     the Lease. election.Step calls ClaimStep and handles the claim's work.
//
// # Strike
//
// A strike is one update of a member's Lease that lists an incarnation as ended. It is conditional
// on the version that was unchanged for LeaseDuration. So a renewal that arrives first makes it
// fail, and after it no renewal of that incarnation succeeds. All live members judge all others. A
// member that wants a shard must have read that the incarnation in the shard's Lease has ended.
// That never becomes untrue, so a delayed watch does no harm, and one strike frees all shards of a
// dead member. An incarnation that leaves lists itself, and one that acquires the member's Lease
// lists the incarnation before it.
//
// # Guarantees
//
//   - One holder. Two incarnations never have rights to one shard at the same time, as long as
//     their clocks differ in speed by less than LeaseDuration/RenewDeadline, and nobody else writes
//     a holder that looks like one of theirs. This holds despite lost answers, requests executed
//     late, watches that are delayed or hang, suspended processes, and the deletion of a member's
//     Lease.
//   - A Lease without a holder that nobody released, and one whose holder never requested it, are
//     free only after the same wait as a dead holder's. So emptying a shard's Lease, or forging an
//     incarnation that is not alive, makes no second holder.
//   - A right ends RenewDeadline after the start of the last confirmed heartbeat, and never
//     revives. A heartbeat is confirmed once the member knows everything that was written before
//     it: because the watch has delivered it, or because the member has read a consistent list that
//     began after the heartbeat's answer. So a claim ends at most RenewDeadline after somebody has
//     changed its shard's Lease, even if the watch hangs. While the API server answers, it ends
//     after about a RetryPeriod.
//   - A member sends a heartbeat only if its loops have iterated since the previous one. A member
//     that hangs loses its shards like one that has died, at most a RetryPeriod later.
//   - Terms rise with each acquisition of a shard, even by the same incarnation.
//   - The shards of a dead member are free LeaseDuration after its last heartbeat was seen, all at
//     once.
//   - The list of ended incarnations has at most the incarnations that shards' Leases name, and one
//     more.
//
// # Not guaranteed
//
//   - A clock that stops, like that of a paused virtual machine, keeps rights alive on resuming
//     until the next request is answered. If another member has taken one of the incarnation's
//     shards, the incarnation was struck before that, so a fence in the API server can refuse its
//     writes.
//   - Anyone who writes a shard's Lease in the name of an incarnation that has ended, releases it
//     in its holder's name, or deletes it twice within a LeaseDuration, makes a second holder
//     possible until the first has seen it.
//   - Anyone who removes incarnations from the list of ended ones delays takeovers, and does no
//     other harm.
//   - Progress without the API server.
//
// # What the caller owes
//
//   - All times are readings of one process's clock, which never goes back and counts time in
//     suspend.
//   - Every write is conditional on version and UID: without a UID an update can create a Lease.
//   - One watch delivers the Leases of members and shards in the order in which they were written.
//     Through is how far it has come. Answers to the process's own requests also update the views,
//     but only watch events and consistent lists of all Leases advance Through.
//   - At most one request is under way for each Lease, and what a process knows about a Lease never
//     goes back ([MemberView.Saw], [ShardView.Saw]).
//   - Work begins only while the right and the claim hold, and each write checks again, see
//     [Right.Valid].
package heartbeat

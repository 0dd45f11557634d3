// Package leaderlock holds somebody else's Lease, such as that of the stock controller manager's
// leader election, under one identity that all members of a fleet share and renew. A [Lock] is one
// member's right to it. The pure function step decides what a member does next; its comment has the
// table. One clock rule, in rule.go, says what the answer to a request proves.
//
// # Guarantees
//
//   - While a leader lock is valid, no client-go elector believes that it leads, as long as clocks
//     differ in speed by less than LeaseDuration/RenewDeadline.
//   - The right ends at once when the member sees another holder or another term in the Lease, and
//     at the latest RenewDeadline after a moment that is provably not later than the write of the
//     last renewal it knows. It never revives: a lost leader lock stays lost.
//   - A live holder keeps its Lease. A member acquires a Lease only if it has no holder, has been
//     absent for LeaseDuration, or has been unchanged for LeaseDuration or the Lease's own
//     duration, whichever is longer. Every acquisition has a new term.
//   - Members may have different timings: a right lasts in proportion less if a renewal declares
//     less than the member's LeaseDuration, and within a term no renewal shortens what the Lease
//     declares, up to ten times the writer's own.
//   - Members write only the fields of an election to the Lease: holder, term, duration and times.
//   - With the default timing, members share the work: about one update per RetryPeriod, however
//     many members there are.
//
// # Non-guarantees
//
//   - The fleet cannot bound how long a stock leader continues after it has lost the Lease.
//     client-go's elector believes that it leads for up to RetryPeriod + RenewDeadline from its
//     last answer. If that answer took longer than the remaining three seconds of the default
//     LeaseDuration, the old leader overlaps with any successor. So does a process that was
//     suspended and resumes.
//   - Editing or deleting the Lease by hand can make a second holder possible, as for other Leases.
//     Stock standbys create an absent Lease at once, and then all members must end.
//   - The last member to leave, or of a fleet that is stopped, clears the holder ([Lock.Release]);
//     its caller must know that it is the last. For a member that is just starting and already
//     holds the lock, this is as if somebody had cleared the Lease.
//
// # Clock rule
//
// A member's right ends RenewDeadline after
//
//   - the start of its own successful update; or
//   - the start of an earlier live read that did not show a renewal which a later read shows: the
//     server that answered the first did not have the renewal yet, so it was written after that
//     read began.
//
// The arrival of a watch event is never such a moment: it may be arbitrarily late. A watch event
// only takes rights away, and shows that the Lease is free. A standby counts LeaseDuration from
// when it saw that renewal, which is later than its write. So the member stops first, within the
// same ratio of clock speeds as for claims:
//
//	member   |read |          |read: renewed
//	         |------------------------------ RenewDeadline: leader lock not valid|
//	others          |write
//	standby                |sees the renewal --------------------------------- LeaseDuration: may acquire|
//
// A standby must be able to see each renewal, and client-go's elector compares Leases with their
// times truncated to seconds. So within a term every renewTime is in a later second than the one
// before, ahead of the writer's clock if necessary.
//
// # Reading and writing
//
// A member reads about once per RetryPeriod. After a failure it reads sooner, the less of its right
// is left. It writes only if nobody has renewed since its last read. It acquires a Lease without a
// holder at once, with the next term; another holder's Lease once it has expired; an absent one
// once it has been absent for LeaseDuration. If the Lease already names the fleet, a right begins
// by the same rule that extends it.
//
// leaseTransitions and acquireTime identify a term of a leader lock, and anyone else who acquires
// it changes them. So if somebody clears or deletes the Lease, any member may write it again in the
// same term, and all continue. Until a member sees that write, its right is suspended.
//
// The fleet holds the Lease of a coordinated election in the same way. A coordinating API server
// names its candidate as the Lease's preferredHolder. That changes neither holder nor term, and
// members ignore it: a fleet gives a leader lock up when its last member leaves.
package leaderlock

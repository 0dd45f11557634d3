// Package leaderlock holds a foreign Lease, such as that of the stock controller manager's leader
// election, under one identity that all members of a fleet share and renew. A [Lock] is one
// member's right to it. The pure function step decides what a member does next; its comment has the
// table. One clock rule, in rule.go, says what the answer to a request proves.
//
// # Guarantees
//
//   - While a leader lock is valid, no client-go elector believes that it leads, as long as clocks
//     differ in speed by less than LeaseDuration/RenewDeadline.
//   - The right ends at once when the member sees another holder or another term in the Lease, and
//     at the latest RenewDeadline after a moment that is provably not later than the write of the
//     last renewal it knows of. It never comes back to life: a lost leader lock stays lost.
//   - A live holder keeps its Lease. A member acquires one that has stood still for LeaseDuration,
//     or for longer if the Lease declares more, one that has been absent for LeaseDuration, and one
//     without a holder. Every acquisition has a new term.
//   - Members write nothing on the Lease but what an election is about: holder, term, duration and
//     times.
//   - With the default timing, members share the work: about one update per RetryPeriod, however
//     many members there are.
//
// # Non-guarantees
//
//   - The fleet cannot bound how long a stock leader continues after it has lost the Lease.
//     client-go's elector believes that it leads for up to RetryPeriod + RenewDeadline from its
//     last answer. If that answer took longer than the remaining three seconds of the default
//     LeaseDuration, it overlaps with any successor. So does a process that was stopped and
//     continues.
//   - Editing or deleting the Lease by hand can make a second holder possible, as for other Leases.
//     Stock standbys create an absent Lease at once, and then the fleet can only end.
//   - The last member to leave clears the holder ([Lock.Release]); its caller must know that it is
//     the last. A member that is starting just then, and already holds the lock, is in the position
//     of one whose Lease was cleared.
//
// # Clock rule
//
// A member's right ends RenewDeadline after
//
//   - the start of its own successful update; or
//   - the start of an earlier live read, if that read has not shown a renewal which a later read
//     shows: the server that answered the first did not have the renewal yet, so it was written
//     after that read began.
//
// The arrival of a watch event is never such a moment: it may be late by any time. A watch only
// takes rights away, and shows that the Lease is free. A standby counts LeaseDuration from when it
// saw that renewal, which is later than its write. So the member stops first, by the same ratio of
// clock speeds as for claims:
//
//	member   |read |          |read: renewed
//	         |------------------------------ RenewDeadline: leader lock not valid any more|
//	others          |write
//	standby                |sees the renewal --------------------------------- LeaseDuration: may acquire|
//
// For a standby to see it, a renewal must look different: client-go's elector compares Leases with
// their times cut to seconds. So within a term every renewTime is a later second than the one
// before, ahead of the writer's clock if necessary.
//
// # Reading and writing
//
// A member reads about once per RetryPeriod, and after a failure sooner, the less of its right is
// left. It writes only if it finds that nobody has renewed since its last read. It acquires a Lease
// without a holder at once, with the next term; a Lease of another holder when it has expired; an
// absent one when it has been absent for LeaseDuration. If the Lease names the fleet already, a
// right begins by the same rule that extends it.
//
// leaseTransitions and acquireTime identify a term of a leader lock, and anyone else who acquires
// it changes them. So if somebody clears or deletes the Lease, members may write it again in its
// term and all of them continue; until they see that done, their right is suspended.
//
// A Lease of a coordinated election is held in the same way. An API server that coordinates names
// its candidate as preferredHolder of a Lease that the fleet holds. That changes neither holder nor
// term, and members leave it as it is: a fleet gives a leader lock up when its last member leaves.
package leaderlock

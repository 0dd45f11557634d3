// Package leaderlock holds a foreign Lease, that of the stock controller manager's leader election,
// under one identity that all members of a fleet share and renew. A [Lock] is one member's right to
// it. What a member does next is decided by step, which is pure; its comment has the table. What a
// request has shown is counted by one clock rule, in rule.go.
//
// # Guarantees
//
//   - While a leader lock is valid, nobody who takes part in the election as client-go does believes
//     to be its leader, as long as clocks differ in speed by less than LeaseDuration/RenewDeadline.
//   - The right ends at once when another holder or another term is seen in the Lease, and at the
//     latest RenewDeadline after a moment that is provably not later than the write of the last
//     renewal that this member knows of. It never comes back to life: a lost leader lock stays lost.
//   - A live holder's Lease is not taken: it must have stood still for LeaseDuration, or for what it
//     declares if that is more, or have been absent for LeaseDuration, or have no holder. Every
//     acquisition has a new term.
//   - Nothing but what an election is about is written on the Lease: holder, term, duration, times.
//   - With the default timing members share the work: about one update per RetryPeriod, however many
//     they are.
//
// # Non-guarantees
//
//   - How long a stock leader goes on after it has lost the Lease is its own affair. client-go's
//     elector believes to lead for up to RetryPeriod + RenewDeadline from its last answer, so an
//     answer that took longer than the three seconds which are left of the default LeaseDuration
//     makes it overlap with any successor, and so does a process that was stopped and goes on.
//   - Whoever edits or deletes the Lease by hand makes a second holder possible, as for other
//     Leases. Stock standbys create an absent Lease at once, and nothing can be done about it but to
//     end.
//   - Whether a member is the last to leave, and may clear the holder ([Lock.Release]), its caller
//     must know. A member that is starting just then, and holds already, is in the position of one
//     whose Lease was cleared.
//
// # Clock rule
//
// A member's right ends RenewDeadline after
//
//   - the start of its own successful update; or
//   - the start of an earlier live read, if that has not shown a renewal which a later read shows:
//     the server that answered the first had not been given it, so it was written after that read
//     began.
//
// When a watch event arrives is never such a moment: it may be late by any time. A watch only takes
// rights away, and tells that the Lease is free. A standby counts LeaseDuration from when it saw
// that renewal, which is later than its write. So the member stops first, by the same ratio of
// clock speeds as for claims:
//
//	member   |read |          |read: renewed
//	         |------------------------------ RenewDeadline: leader lock not valid any more|
//	others          |write
//	standby                |sees the renewal --------------------------------- LeaseDuration: may acquire|
//
// For a standby to see it, a renewal must look different: client-go's elector compares Leases with
// their times cut to seconds, so within a term every renewTime is a later second than the one
// before, ahead of the writer's clock if need be.
//
// # Reading and writing
//
// A member reads about once per RetryPeriod, sooner after a failure the less is left of its right,
// and writes only if it finds that nobody has renewed since it looked before. It acquires a Lease
// without a holder at once, with the next term; one of another holder when it has expired; an
// absent one when it has been absent for LeaseDuration. If it names the fleet already, a right
// begins by the same rule as it is extended.
//
// A term is known by leaseTransitions and acquireTime, and whoever else acquires changes them. So
// if somebody clears or deletes the Lease, members may write it again in its term and all of them
// go on; until they see it done, their right is suspended.
//
// A Lease of a coordinated election is held in the same way. An API server that coordinates names
// its candidate as preferredHolder of a Lease that the fleet holds, which changes neither holder
// nor term, and is left as it is: a fleet gives a leader lock up when its last member leaves.
package leaderlock

// Package membership keeps the members of a fleet on Leases, one for each member. A member renews
// only its own Lease: that is its heartbeat, and all of its claims (package election) live by it.
// All live members judge all others, and list a dead one's incarnation as ended; then others may
// claim what it held. A [Roster] is who is live, as one process has seen it.
//
// # Guarantees
//
//   - One incarnation. Two process starts of a member never both have the right to their claims:
//     the later one waits until the earlier one's Lease is released, or until that is listed as
//     ended.
//   - A right ends at the latest RenewDeadline after the start of the last heartbeat that the watch
//     has confirmed, and at once when the member's Lease names another holder or lists this
//     incarnation as ended. [Membership.Lost] is closed then; a right never comes back.
//   - An incarnation is listed as ended only after its Lease has stood still for its lease
//     duration, by the judge's clock, and in a write that fails if there was a heartbeat meanwhile.
//   - No heartbeat is sent by a process whose loops have stopped ([Config.Turned]).
//   - Credentials. When [Membership.Publish] succeeds, the credential is on the member's Lease, and
//     any member that fences this one sees it: [leaserecord.FenceIncarnation] changes the Lease as
//     it was read, and a marked incarnation publishes nothing.
//   - The package uses only get, list, watch, create and update on Leases, and never deletes one.
//   - Members with different protocols do not run beside each other: the later one waits, and says
//     so.
//
// # Not guaranteed
//
//   - That everybody sees the same roster at one time: each process builds it from what it has
//     seen. Claims do not rely on it.
//   - That an incarnation which is listed as ended has stopped. Its rights are over by its own
//     clock; what a clock that stood still allows is in the comment of package election.
//
// Package heartbeat decides, as pure functions, what is done here; docs/design/heartbeat.md has the
// argument.
package membership

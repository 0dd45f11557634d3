// Package history derives what has happened in a fleet from successive observations of its Leases.
//
// A [Transition] is one thing that happened to a shard, a member or the plan. Its [Kind] is the
// word for it in the JSON and on the status page of every member, and in 'flotilla events' and
// 'flotilla status --watch'.
//
//	two observations of a Lease, one right after the other   Between
//	one observation of a Lease                               Last
//	a Lease that stays the same, while time passes           Lapsed, Resumed
//
// # Callers
//
//   - A member's journal, in package fleet, calls [Between] for each change that it observes, and
//     [Lapsed] for members that have fallen silent. It keeps the latest transitions without the
//     steps of a handoff (see [Kind.IsStep]). It joins a release and another member's following
//     acquisition into one [HandedOver].
//   - The commands that watch do the same through package status, and print each transition at
//     once. So they print the release and the acquisition of a handoff separately.
//   - 'flotilla events' without --watch has one observation of each Lease. [Last] cannot say from
//     whom a shard came, or how.
//
// # Guarantees
//
//   - All of it is pure: no client, no clock, no log. Functions are safe for concurrent use.
//   - A renewal is no transition, nor is the first observation of an existing Lease.
//   - Anybody can write a Lease, so texts in a transition are bounded in length. Callers that show
//     them must escape them.
//
// # Non-guarantees
//
//   - If observations were missed in between, more may have happened. A shard that went from one
//     member to a second and on to a third appears to have moved once, and a takeover appears as a
//     handover if the holder was not yet known to have ended.
//   - No Lease says that nobody renews it. Whether a holder is silent depends on the reader, so the
//     caller decides that.
//   - A Lease may have a name like the fleet's and be somebody else's. The transition then has
//     neither Shard nor Member, and the caller decides what to do with it.
package history

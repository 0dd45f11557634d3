// Package history says what has happened in a fleet, from what its Leases said before and say now.
//
// A [Transition] is one thing that happened to a shard, a member or the plan, and its [Kind] is the
// word for it: in the JSON and on the page of every member, and in 'flotilla events' and 'flotilla
// status --watch'.
//
//	two observations of a Lease, one right after the other   Between
//	one observation of a Lease                               Last
//	a Lease that stays the same, while time passes           Lapsed, Resumed
//
// # Who tells it
//
//   - A member's journal, in package fleet, calls [Between] for each change as it observes it, and
//     [Lapsed] for members that it has stopped hearing of. It remembers the latest transitions,
//     leaves out the steps of a handoff (see [Kind.IsStep]), and makes one [HandedOver] of a
//     release and another member's acquisition that follows it.
//   - The commands that watch, by package status, do the same and print each transition at once. So
//     they print the release and the acquisition of a handoff one by one.
//   - 'flotilla events' without --watch has one observation of each Lease. [Last] cannot say from
//     whom a shard came, or how.
//
// # Guarantees
//
//   - All of it is pure: no client, no clock, no log. Functions are safe for concurrent use.
//   - A renewal is no transition, and neither is the first observation of a Lease that was there.
//   - Anybody can write a Lease, so texts in a transition are bounded in length. Whoever shows them
//     must take care of what is in them.
//
// # Non-guarantees
//
//   - Between two observations that do not follow each other more may have happened: a shard that
//     went from one member to the next and on to a third moved in one step, and a takeover is told
//     as a handover if the holder was not yet known to have ended.
//   - No Lease says that nobody renews it. Whether a holder is still heard of depends on who reads,
//     so the caller decides that.
//   - A Lease may have a name like the fleet's and be somebody else's. The transition then has
//     neither Shard nor Member, and the caller decides what to make of it.
package history

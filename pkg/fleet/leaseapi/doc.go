// Package leaseapi is what the Leases of a fleet say: their names, labels and annotations, and how
// each is read. Whoever looks at a fleet from outside, as the status page, the commands and the
// tests do, needs this package and no member.
//
// There are three kinds of Leases. A shard's has its holder and what the holder says of the shard;
// a member's is its heartbeat and says what the member is and has; the plan's has the plan. What
// claims, heartbeats and the API server's fence keep on them is in package election, and documents
// on them, such as a plan or a census, are of package shard.
//
// # Guarantees
//
//   - All of it is pure: no client, no clock, no log. Functions are safe for concurrent use.
//   - Anybody can write a Lease, so everything is read with suspicion: what is missing, or
//     nonsense, counts as not said, and is never an error of the whole.
//   - What counts as a member, as a shard's Lease, or as what a Lease covers is decided here for
//     all readers, so that an operator sees what members go by.
//
// # Non-guarantees
//
//   - Whether a holder lives is not judged here, but by [election.Observation.IsHeld].
//   - A text that was written by a newer build may say more than this one reads.
package leaseapi

// Package assignment computes which member of a fleet should own which shard.
//
// # Guarantees
//
//   - Everything here is pure: members that see the same Leases compute the same [Assignment], and
//     so do the commands and the status page.
//   - Everything that [shard.Plan.SettleVersions] promises about what stays and what moves holds
//     here.
//   - A member that refuses the plan, does not serve the ring or has no build for it gets none of
//     its shards, as long as any other member can have them.
//
// # Non-guarantees
//
//   - An assignment gives no right to write: the Lease decides who holds a shard. Members that see
//     different Leases for a moment disagree about who should.
package assignment

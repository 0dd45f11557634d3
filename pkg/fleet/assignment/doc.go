// Package assignment says which member of a fleet should own which shard.
//
// # Guarantees
//
//   - All of it is pure: members that see the same Leases come to the same [Assignment], and so do
//     the commands and the status page.
//   - What [shard.Plan.SettleVersions] promises of what stays and what moves holds here.
//   - A member that refuses the plan, does not serve the ring or has no build for it gets nothing
//     of it, as long as any other member can have it.
//
// # Non-guarantees
//
//   - An assignment is no right: the Lease decides who holds a shard. Members that see different
//     Leases for a moment differ about who should.
package assignment

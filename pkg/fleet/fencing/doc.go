// Package fencing marks the incarnations of dead members on their Leases, so that an API server
// with the policy of deploy/fence refuses what they may still send. docs/design/fence.md has the
// rules.
//
// # Guarantees
//
//   - A mark is written on the version of the Lease that it was decided by, and one at a time.
//   - Whoever is about to run a shard marks every member that was struck without a mark, so that
//     the duty does not get lost with a member that dies before it has done it, or gives the shard
//     back.
//   - A mark that anybody has written on the Lease of another member marks nobody.
//   - All methods are safe for concurrent use, and none of them leaves a goroutine behind.
//
// # Non-guarantees
//
//   - Where the API server does not enforce the policy, or does not let this member write the mark,
//     nothing is fenced: only the Lease's expiry protects the shard.
//   - While the mark of one member fails without being refused, this process begins no shard, not
//     even one that was handed over.
//   - An API server may be behind with the mark for a while. [Fencing.Since] says since when it can
//     know it; how long to wait is up to the caller.
package fencing

// Package shardrun decides what one member does about one shard: what it prepares while another
// member holds the shard, and the steps from a claim to running controllers and back. It is pure:
// no goroutine, no clock, no Lease. pkg/fleet carries out what it decides.
//
// A [State] has two lanes. Each has a step function, documented by a table, and at most one action
// under way, which has one answer:
//
//	PrepareStep   Resting -> Queued -> Filling -> Warm -> Discarding -> Resting
//	                                      \________\______ taken by the work -> Resting
//	WorkStep      Idle -> Checking -> Judging -----------------------> Running -> Idle
//	                         |-----> Succeeding -> Waiting -> Joining -> |
//	                         `-----> Building <-> Pausing -------------> |
//
// # Guarantees
//
// The explorer (explore_test.go) checks these in every history:
//
//   - An instance has one owner, the preparation or the work. It is discarded once, or run.
//   - Only the instance that the work has in hand runs, under a claim, after the preflight.
//   - A prepared instance runs only if the work has judged it fit, after it was filled. An answer
//     to an earlier preparation is never taken for that of the present one.
//   - The work returns, so that the claim may be released, only when it has nothing in hand.
//   - The lane asks for the shard, and the Lease says "ready", only while everything is prepared.
//   - A run that ends gives back its slot and everything that was built.
//
// # Non-guarantees
//
//   - The claim may be invalid when the fence opens. The fence asks the claim.
package shardrun

// Package shardrun decides what one member does about one shard: what it prepares while another
// member holds the shard, and the steps from a claim to running controllers and back. It is pure:
// no goroutine, no clock, no Lease. pkg/fleet carries out what it decides.
//
// A [State] has two lanes. Each has a step function with its table, and at most one action under
// way, which has one answer:
//
//	PrepareStep   Resting -> Queued -> Filling -> Warm -> Discarding -> Resting
//	                                      \________\______ taken by the work -> Resting
//	WorkStep      Idle -> Looking -> Judging ------------------------> Running -> Idle
//	                         |-----> Succeeding -> Waiting -> Joining -> |
//	                         `-----> Building <-> Pausing -------------> |
//
// What is promised, and what the explorer holds in every history (explore_test.go):
//
//   - An instance has one owner: the preparation, or the work. It is discarded once, or run.
//   - Nothing runs but what the work has in hand, under a claim, after it has looked.
//   - What was prepared runs only if the work has judged it fit, after it was filled. An answer to
//     an earlier preparation is never taken for that of the present one.
//   - The work returns, so that the claim may be released, only when it has nothing in hand.
//   - The shard is asked for, and its Lease says "ready", only while everything is prepared.
//   - A run that is to end gives back its slot and all that was built.
//
// Not promised here: that the claim is valid when the fence opens. The fence asks the claim.
package shardrun

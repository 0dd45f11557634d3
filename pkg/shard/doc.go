// Package shard says how the work of a fleet is cut up: the keyspace, its
// ranges, the shards made of them, the plan that lists all shards, and the
// ring that decides which member should own which shard.
//
//	namespace --Hash--> keyspace --Range--> Shard --Place--> member
//	                                          |
//	                      Plan = rings = shards + controllers
//
// Everything here is a pure function of its arguments or an immutable value:
// no I/O, no clock, no goroutine, no log, no metric, no global state. Values
// may be read from many goroutines at once; a Plan handed out must not be
// changed afterwards. The filtered informers that deliver one shard's objects
// are in the sub-package pkg/shard/informer.
//
// # Guarantees
//
//   - Same hash as the server: Hash is the FNV-1a that the API server applies
//     to shardSelector, so Range.Contains and Range.Selector never disagree.
//   - Exact cover: in a Plan that Validate accepts, every namespace lies in
//     exactly one shard of every namespaced ring, and every controller runs in
//     exactly one ring, or in exactly one shard of a cluster ring.
//   - One name, one Lease: two shards never share the Lease name
//     <fleet>-<ring>-<shard>, in one plan or across plan generations, and no
//     shard's Lease can be taken for a member's or the plan's.
//   - Same input, same placement: Place depends on the set of shards and the
//     set of members, not on their order, the process or the platform. The
//     golden vectors in testdata hold that across versions.
//   - Bounded load: Place gives no member more than MaxLoad shards.
//   - Place never panics and never leaves a shard without a member as long as
//     there is one.
//
// # Non-guarantees
//
//   - A placement is a wish, not a right. Two members with different rosters
//     compute different placements; only the shard's Lease says who may write.
//   - The load bound counts shards, not objects. Equal shards are the business
//     of whoever cuts the ranges; equal ranges are not equal shards, because
//     FNV-1a hardly spreads names that differ only at their end.
//   - The load bound is an upper bound. A member may get fewer shards than the
//     mean, and with few shards a member it may get none; Place says how often.
//   - A change of roster moves more shards than the least possible, because
//     the bound pushes some shards on; Place has the measured figures.
//   - A namespace is never split.
package shard

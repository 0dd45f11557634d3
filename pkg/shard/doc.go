// Package shard says how the work of a fleet is divided: the keyspace, its ranges, the shards made
// of them, the plan that lists all shards, the ring that decides which member should own which
// shard, and the planner, which proposes the next plan.
//
//	namespace --Hash--> keyspace --Range--> Shard --HomesOf--> member
//	                                          |
//	                      Plan = rings = shards + controllers
//	                        |
//	   Weights + members + Limits --Propose--> Plan of the next generation
//
// Everything here is a pure function of its arguments or an immutable value: no I/O, no clock, no
// goroutine, no log, no metric, no global state. Values may be read from many goroutines at once; a
// Plan handed out must not be changed afterwards. The filtered informers that deliver one shard's
// objects are in pkg/informer.
//
// # Guarantees
//
//   - Same hash as the server: Hash is the FNV-1a that the API server applies to shardSelector, so
//     Range.Contains and Range.Selector never disagree.
//   - Exact cover: in a Plan that Validate accepts, every namespace lies in exactly one shard of
//     every namespaced ring, and every controller runs in exactly one ring, or in exactly one shard
//     of a cluster ring. An isolated namespace has a shard of its own.
//   - One name, one Lease: two shards never share the Lease name <fleet>-<ring>-<shard>, in one
//     plan or across plan generations, and no shard's Lease can be taken for a member's or the
//     plan's.
//   - A shard is never changed: if CheckSuccessor lets one plan follow another, a shard that is in
//     both covers the same in both. The results of Successor and Propose have passed that check,
//     and keep the ID of every shard that covers the same as before.
//   - Same input, same placement: Place depends on the set of shards and the set of members, not on
//     their order, the process or the platform. The golden vectors in testdata check that across
//     versions.
//   - Bounded load: Place gives no member more than MaxLoad shards.
//   - Place never panics and never leaves a shard without a member as long as there is one.
//   - Shards that are expensive to move stay: SettleRing moves a group that is bound to another by
//     ColocateWith only when its member goes, or for a pin.
//   - Pins, then homes: HomesOf puts a shard where its pin is, or else at its home, while that
//     member is there; without pins and homes it returns the same as Homes.
//   - The planner comes to an end: Propose on its own result, with the same namespaces and members,
//     soon returns false. It never makes the heaviest member heavier, except by what a member left
//     behind, and up to Limits.Trigger if there are more shards than the most. It leaves alone
//     shards that are pinned to a member that is there, and the ranges of pinned and isolated
//     shards.
//   - A balanced ring, whatever the names of the namespaces: from equal ranges the planner comes
//     within 10 % of the mean, or within 2 % of Balance.Bound if single namespaces are too heavy
//     for that, in at most 6 rounds for 3 to 8 members and 500 or 5,000 namespaces of each naming
//     scheme tested.
//   - Load that members carry beside a ring counts as if it were pinned to them: a member that
//     carries more than a fair share gets nothing of the ring that weighs much.
//   - The shards of a member that is away are shared out evenly: SettleRing gives no member more
//     than the mean and the heaviest shard that is shared out, by the weights in the plan and what
//     members carry beside. It moves nothing that is at home. It is stable while moves are carried
//     out.
//   - One member more or less moves at most 1/N of the weight and 5 %, with N members before, once
//     the planner has balanced the ring. The exception is a member that leaves a namespace of about
//     a tenth of all or more.
//
// # Non-guarantees
//
//   - A placement is an assignment, not a right. Two members with different rosters compute
//     different placements; only the shard's Lease says who may write.
//   - The load bound counts shards, not objects. Without a planner shards are as unequal as the
//     namespaces lie, because FNV-1a hardly spreads names that differ only at their end: up to 4.8
//     times the mean was measured with 500 namespaces.
//   - The load bound is an upper bound. A member may get fewer shards than the mean, and with few
//     shards a member it may get none; Place says how often.
//   - A change of roster moves more shards than the least possible, because the bound pushes some
//     shards on; Place has the measured figures. Homes prevent that.
//   - The planner knows only the weights: objects, or the memory that they take, not how often they
//     change, and cells, which it does not cut. If many namespaces arrive at one spot of the
//     keyspace, it follows: over the growth to 5,000 namespaces of 5 members it moved up to 1.0
//     times the final weight, and stopped and started 5.2 times, in up to 184 plan generations.
//   - The number of shards is a target. Operators may plan more than Limits.MostShardsPerMember,
//     and pinned and isolated shards stay; the planner only does not add to them.
//   - Successor knows the names that the previous plan uses, not those of older plans: an operator
//     must not give a shard a name that an older shard had.
//   - A namespace is never split.
package shard

// Package planner writes the plan: it evens out what members carry, follows the builds of the
// members, restores a plan that somebody has spoilt, and empties the Leases of shards that no
// longer exist.
//
// Every member has a [Planner], and the one whose member holds the plan's Lease plans. The safety
// of a change of plan rests only on the compare-and-swap of that Lease, so an operator may write it
// as well. What to propose is decided by package shard and, for builds, by package skew;
// docs/design/plan.md has the rules, and docs/design/skew.md those for builds.
//
// # Guarantees
//
//   - A planner writes only while its member's claim on the plan's Lease holds, and on the version
//     of the Lease that it decided by. The exception is [Planner.Write] for the first plan of a
//     fleet, which has no planner yet.
//   - It makes one change at a time. It moves shards for their weight only when every shard of the
//     ring is where the last change put it.
//   - It never writes over a readable plan of a newer generation that its member refuses: only an
//     operator corrects that.
//   - Run returns only after all goroutines have ended.
//
// # Non-guarantees
//
//   - What it remembers, such as which shards rest, is lost with the member.
//   - It does not say which member owns which shard: members compute that from the plan.
package planner

// Package planner writes the plan: it evens out what members carry, follows the builds of the
// members, restores a plan that somebody has spoilt, and empties the Leases of shards that are no
// more.
//
// Every member has a [Planner], and that of the member which holds the plan's Lease plans. The
// safety of a change of plan rests only on the compare-and-swap of that Lease, so an operator may
// write it as well. What to propose is decided by package shard and, for builds, by package skew;
// docs/design/plan.md has the rules, and docs/design/skew.md those for builds.
//
// # Guarantees
//
//   - A planner writes only while its member's claim on the plan's Lease holds, and on the version
//     of the Lease that it decided by.
//   - It makes one change at a time, and the next one only when every shard is where the last one
//     put it. It keeps the plan that it works by on the Lease, as the last good one, before it
//     changes it.
//   - It never writes over a plan that its member refuses but that can be read and may be an
//     operator's: only an operator corrects that.
//   - Run returns only after all goroutines have ended.
//
// # Non-guarantees
//
//   - What it remembers, such as which shards rest, is lost with the member.
//   - It does not say which member owns which shard: members compute that from the plan.
package planner

// Package metrics is what a member says of itself on /metrics. docs/metrics.md has the families, what they mean and what to do.
//
// What has a state is read from the member when it is asked for, so that it cannot be stale; what happens is counted from the
// member's events. The series of single queues are those of package queues.
//
// # Guarantees
//
//   - Labels are bounded: a ring, a shard of the plan, a Lease that is a gate, or one of a few words. No label is a namespace,
//     a member or a generation.
//   - Series of a shard are there while the shard is in the plan or runs here, and no longer. Those of counters and histograms
//     by ring stay.
//   - Counters that an alert may wait for are there with 0 before what they count has happened, from when there is a plan.
package metrics

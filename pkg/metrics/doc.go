// Package metrics has the Prometheus metrics of a member of a fleet, for a registry and with a
// prefix of the caller's. docs/metrics.md has the families, what they mean and what to do.
//
// A member takes the metrics' Count as its observer, and the metrics take the member as their
// source:
//
//	m, err := metrics.New(metrics.Options{Fleet: "bosun", Prefix: "bosun"})
//	member, err := fleet.New(fleet.Config{Fleet: "bosun", Observe: m.Count, ...})
//	err = m.Register(registry, metrics.Source{Member: member})
//	err = member.Run(ctx)
//
// What has a state is read from the member at each scrape, so that it cannot be stale; what happens
// is counted from the member's events.
//
// # Guarantees
//
//   - The package has no state of its own and registers nothing by itself. A process may have the
//     metrics of many members: each in a registry of its own, or under a prefix of its own, or in a
//     registerer that adds a label (prometheus.WrapRegistererWith).
//   - Labels are bounded: a ring, a shard of the plan, a Lease that is a leader lock, a controller
//     of the plan, or one of a few words. No label is a namespace, a member or a generation.
//   - Series of a shard are there while the shard is in the plan or runs here, and no longer. Those
//     of counters and histograms by ring stay.
//   - Counters that an alert may wait for are there with 0 before what they count has happened,
//     from when there is a plan.
//
// # What is not here
//
// leader_election_master_status belongs to the program: client-go's electors set it, by way of
// component-base or controller-runtime, for the Leases that they hold, and a second family of that
// name could not be registered beside theirs. The family shard_owned says the same of shards. How
// long items wait in workqueues is not here either: the fleet does not know its controllers'
// queues.
package metrics

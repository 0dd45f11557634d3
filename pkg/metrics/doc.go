// Package metrics has the Prometheus metrics of a member of a fleet, for the caller's registry and
// with the caller's prefix. docs/metrics.md lists the families, what they mean and what to do.
//
// Give the metrics' Count to the member as its observer, and the member to the metrics as their
// source:
//
//	m, err := metrics.New(metrics.Options{Fleet: "bosun", Prefix: "bosun"})
//	member, err := fleet.New(fleet.Config{Fleet: "bosun", Observe: m.Count, ...})
//	err = m.Register(registry, metrics.Source{Member: member})
//	err = member.Run(ctx)
//
// State is read from the member at each scrape, so it cannot be stale; events are counted as the
// member reports them.
//
// # Guarantees
//
//   - The package has no state of its own and registers nothing by itself. A process may have the
//     metrics of many members: each in its own registry, under its own prefix, or in a registerer
//     that adds a label (prometheus.WrapRegistererWith).
//   - Labels are bounded: a ring, a shard of the plan, a Lease that is a leader lock, a controller
//     of the plan, or one of a few words. No label is a namespace, a member or a generation.
//   - Series of a shard exist only while the shard is in the plan or runs here. Those of counters
//     and histograms by ring stay.
//   - Counters that an alert may wait for start at 0, as soon as there is a plan, before the first
//     event.
//
// # What is not here
//
// leader_election_master_status belongs to the program: client-go's electors set it, through
// component-base or controller-runtime, for the Leases that they hold, and a second family of that
// name could not be registered beside theirs. The family shard_owned says the same of shards. Nor
// does the package measure how long items wait in workqueues: the fleet does not know its
// controllers' queues.
package metrics

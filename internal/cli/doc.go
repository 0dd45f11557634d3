// Package cli has the operator's commands: flotilla status, events, drain and undrain, stop and
// start, plan show, diff, apply, rebalance and simulate, explain, and audit, which reads audit logs
// and no cluster.
//
// Each command lists the fleet's Leases, and turns plan, Leases and the time of reading into a
// view: a struct that is printed as a table, as JSON or as YAML. The views are pure functions,
// those of the fleet itself in package status; cobra and the API client are a thin shell around
// them.
//
//	a list of Leases -> Reading -> View, EventsView, Explanation, Rebalancing, Simulation -> text
//	                            -> Edit (checked)     -> one update of the plan's Lease
//	                            -> draining (checked) -> one update of a member's Lease
//	                            -> stop or start      -> one update of the plan's Lease
//	a list and a watch -> Readings that follow each other -> a screen, or a line a change
//
// # Guarantees
//
//   - The commands write only the plan's Lease (apply, rebalance, stop and start) and a member's
//     Lease (drain and undrain), and nothing with --dry-run. A write is conditional on the version
//     of that Lease from which everything was computed: if anybody has written meanwhile, the
//     command reads, checks and computes everything again.
//   - The commands read only Leases, except for events, which also reads Kubernetes events if it
//     may.
//   - --watch lists the Leases when it begins and watches them from then on, draws at most four
//     times a second, and ends with status 0 when interrupted.
//   - Colours and widths are for terminals; anywhere else the text is the same for the same Leases.
//   - A plan is written only if this build can work by it (Config.Check), it may follow the one in
//     force (shard.CheckSuccessor), and live members serve its rings. An edited document is refused
//     if it was read at another generation than the one in force.
//   - Who holds a shard is what the shard's Lease says. Who should own it is what the plan says, by
//     pin or home. If the plan leaves that to consistent hashing, it is computed here, and the
//     output says so.
//   - Leases are read as if an enemy had written them: nothing on them can make a command fail or
//     break a table. Text that is not plain is quoted.
//
// # Non-guarantees
//
//   - The commands do not know what package status cannot read from Leases. flotilla status reads
//     them again for some seconds if that helps.
//   - A watch that breaks off starts again; the only sign is the finding that nobody renews.
//   - The Leases may have changed by the time the output is printed.
package cli

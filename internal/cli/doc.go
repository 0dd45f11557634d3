// Package cli has the operator's commands: flotilla status, events, drain and undrain, stop and start, plan show, diff, apply, rebalance and
// simulate, explain, and audit, which reads audit logs and no cluster.
//
// Each command reads the fleet's Leases with a list, and turns plan, Leases and the time of reading into a view: a
// struct that is printed as a table, as JSON or as YAML. The views are pure functions, those of the fleet itself in package
// status; cobra and the API client are a thin shell around them.
//
//	a list of Leases -> Reading -> View, EventsView, Explanation, Rebalancing, Simulation -> text
//	                            -> Edit (checked)     -> one update of the plan's Lease
//	                            -> draining (checked) -> one update of a member's Lease
//	                            -> stop or start      -> one update of the plan's Lease
//	a list and a watch -> Readings that follow each other -> a screen, or a line a change
//
// # Guarantees
//
//   - Nothing is written but the Lease of the plan, by apply, rebalance, stop and start, and that of a member, by drain and undrain; and
//     nothing with --dry-run. A write is conditioned on the version of that Lease which everything was computed from: if
//     anybody has written meanwhile, all is read, checked and computed anew.
//   - Nothing is read but Leases, except by events, which does without where it may not.
//   - --watch lists the Leases when it begins and watches them from then on, draws at most four times a second, and ends with status 0 when interrupted.
//   - Colours and widths are a terminal's; anywhere else the text is the same for the same Leases.
//   - A plan is written only if this build can work by it (Config.Check), it may follow the one in force
//     (shard.CheckSuccessor), and live members serve its rings. An edited document is refused if the generation that it was
//     read at is not in force any more.
//   - Who holds a shard is what the shard's Lease says. Who should own it is what the plan says, by pin or home; where the
//     plan leaves that to the consistent hashing, and it is computed here, the output says so.
//   - Leases are read as if an enemy had written them: nothing on them makes a command fail or breaks a table. Text that is
//     not plain is quoted.
//
// # Non-guarantees
//
//   - What package status cannot tell from Leases. flotilla status reads them again for some seconds where that helps.
//   - A watch that breaks off is begun anew, and says so only by the finding that nobody renews.
//   - What is read may have changed by the time it is printed.
package cli

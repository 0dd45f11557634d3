// Package cli has the operator's commands: flotilla plan show, diff, apply, rebalance and simulate, and flotilla explain.
//
// Each command reads the fleet's Leases once, with one list, and turns plan, Leases and the time of reading into a view: a
// struct that is printed as a table, as JSON or as YAML. The views are pure functions; cobra and the API client are a thin
// shell around them.
//
//	one list of Leases -> Reading -> PlanView, Explanation, Rebalancing, Simulation -> text
//	                              -> Edit (checked)  -> one update of the plan's Lease
//
// # Guarantees
//
//   - Nothing is written but the Lease of the plan, and only by apply and rebalance without --dry-run. The write is
//     conditioned on the version of that Lease which everything was computed from: if anybody has written meanwhile, all is
//     read, checked and computed anew.
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
//   - A single look cannot see a Lease expire (rule 1 of the design: who reads must watch for a lease duration). A holder
//     counts as silent when its last renewal is more than its lease duration before the latest renewal of any member's
//     Lease: the members' clocks are compared with each other, never with the one here. Where clocks differ by
//     more than that, a live holder may be called silent. If no member has renewed its Lease for long by the clock here, a
//     warning says so, and nothing more is made of it. Stamps that are more than ten minutes ahead of the clock here
//     count as nonsense.
//   - State "running" is what the holder says on the Lease. Whether the controllers are well, the member's /readyz and
//     metrics say.
//   - What is read may have changed by the time it is printed.
package cli

// Package status says how a fleet is, from its Leases alone: who lives, what the plan wants, who holds which shard, and what is
// wrong. The operator's commands and every member's status page show the same views.
//
//	a list of Leases (Read), or a member's own observations (Observed) -> Reading -> View
//
// # Guarantees
//
//   - Everything here is a pure function of Leases and a time.
//   - Who holds a shard is what the shard's Lease says. Who should own it is what the plan says, by pin or home.
//   - Leases are read as if an enemy had written them: nothing on them makes a view fail.
//
// # Non-guarantees
//
//   - A single look cannot see a Lease expire (rule 1 of the design: who reads must watch for a lease duration). In a Reading of
//     one list a holder counts as silent when its last renewal is more than its lease duration before the latest renewal of any
//     member's Lease: the members' clocks are compared with each other, never with the one here. Where clocks differ by
//     more than that, a live holder may be called silent. If no member has renewed its Lease for long by the clock here, a
//     warning says so, and nothing more is made of it. Stamps that are more than ten minutes ahead of the clock here
//     count as nonsense.
//   - State "running" is what the holder says on the Lease. Whether the controllers are well, the member's /readyz and
//     metrics say.
package status

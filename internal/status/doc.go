// Package status says how a fleet is, from its Leases alone: who lives, what the plan wants, who holds which shard, and what is
// wrong. The operator's commands and every member's status page show the same views.
//
//	a list of Leases (Read), or a member's own observations (Observed) -> Reading -> View, Findings, Past
//	a Reading, and an earlier one (Following)                          -> Reading that knows how long things have stood
//	two observations of a Lease (Changes), two Readings (Silences)     -> what has happened, see package history
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
//   - For how long a request of a next holder has been unanswered, a member has worked by another plan, or a holder has not run
//     what it holds, no Lease has a stamp for. Of these Findings tells once a chain of readings has seen them stand for ten
//     seconds, and Suspicious says whether such a chain is worth the time. What stamps tell (since when a Lease is released, silent
//     or waits for older shards) needs one reading, and is as good as the members' clocks.
//   - Two holders are those that say on Leases of the fleet, unexpired at the same moment, that they run. Who writes without a
//     Lease, or under another fleet's, no Lease tells; the API server's audit log does.
//   - Whether a leader lock's holder lives, if that is somebody else: its stamps are by its own
//     clock. Members watch the Lease, and flotilla_leader_lock_holder_live reports what they see.
//   - State "running" is what the holder says on the Lease. Whether the controllers are well, the member's /readyz and
//     metrics say.
package status

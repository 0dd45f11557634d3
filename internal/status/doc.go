// Package status describes the state of a fleet, from its Leases alone: which members live, what
// the plan wants, who holds which shard, and what is wrong. The operator's commands and every
// member's status page show the same views.
//
//	a list of Leases (Read), or a member's own observations (Observed) -> Reading -> View, Findings, Past
//	a Reading, and an earlier one (Following)                          -> Reading that knows how long things have stood
//	two observations of a Lease (Changes), two Readings (Silences)     -> what has happened, see package history
//
// # Guarantees
//
//   - Everything here is a pure function of Leases and a time.
//   - Who holds a shard is what the shard's Lease says. Who should own it is what the plan says, by
//     pin or home.
//   - Leases are read as if an enemy had written them: nothing on them can make a view fail.
//
// # Non-guarantees
//
//   - A single reading cannot watch a Lease expire (rule 1 of the design: a reader must watch for a
//     lease duration). In a Reading of one list a holder counts as silent when its last renewal is
//     older than the latest renewal of any member's Lease by more than its lease duration. This
//     compares the members' clocks with each other, never with the one here. If clocks differ by
//     more than that, a live holder may be called silent. If no member has renewed its Lease for
//     long by the clock here, there is a warning, and no other consequence. Timestamps that are
//     more than ten minutes ahead of the clock here count as nonsense.
//   - No Lease has a timestamp for how long a next holder's request has been unanswered, a member
//     has worked by another plan, or a holder has not run what it holds. Findings reports these
//     once a chain of readings has seen them last for ten seconds, and Suspicious reports whether
//     such a chain is worth the time. What timestamps do show (since when a Lease is released, is
//     silent or waits for older shards) needs one reading, and is as good as the members' clocks.
//   - "Two holders" are those that say on Leases of the fleet, unexpired at the same moment, that
//     they run. Leases do not show a writer without a Lease, or one under another fleet's; the API
//     server's audit log does.
//   - The package does not know whether a leader lock's holder lives, if that is somebody else: the
//     holder's timestamps are by its own clock. Members watch the Lease, and
//     flotilla_leader_lock_holder_live reports what they see.
//   - State "running" is what the holder says on the Lease. The member's /readyz and metrics say
//     whether the controllers are well.
package status

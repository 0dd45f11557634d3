// Package election decides who may write, and until when. It keeps members and claims on Lease objects of
// one namespace and knows nothing about controllers: a member claims shards by name and is given a [Claim], a value
// whose context ends when the right does.
//
// # Guarantees
//
//   - One holder. Two incarnations never hold valid claims on one Lease at the same time, as long as their clocks
//     differ in speed by less than LeaseDuration/RenewDeadline (1.5 by default) and nobody else writes a holder that
//     looks like one of theirs. Emptied and deleted Leases are tolerated, see below.
//   - Stop, then release. A planned end cancels the work, waits until it has returned while the claim holds, ends
//     the claim, and only then clears the holder, in an update of a freshly fetched Lease that still names this
//     incarnation. Work that does not return in time ends the process ([ClaimantConfig.OnStuck]), and others list it
//     as ended.
//   - A claim ends at once when another holder is seen in its Lease, and at the latest RenewDeadline after the start of
//     its member's last confirmed heartbeat. It never comes back to life: a new right is a new claim with a higher term.
//   - Terms never repeat. Every acquisition counts leaseTransitions up, the same incarnation's included, from the
//     highest value this process has ever seen for that name. The first term is 1; 0 means no term. Only if a Lease was
//     deleted, and a process that has never seen it creates it again, do terms restart.
//   - Nothing is started while older work runs: a claimant acquires again only after its last work has returned.
//   - Fence (package fence). A mutating request is refused unless the claim is valid at the moment
//     of sending, and does not outlive the Lease on this side of the connection.
//   - Credentials. What a member has published is on its Lease when [Membership.Publish] returns, and cannot be lost to
//     who fences it: [FenceIncarnation] is written on the Lease as it was read, and an incarnation
//     that has been marked publishes nothing.
//   - Leader locks (package leaderlock). A foreign Lease is held by all members together.
//   - Leases are read and written by get, list, watch, create and update alone, and never deleted.
//
// # Not guaranteed
//
//   - A request that has left the process cannot be called back: the server may carry it out until it gives up on it.
//     The fence bounds how long the client waits, not what the server does. A goroutine that is suspended between the
//     fence's check and the system call writes when it wakes up.
//   - A clock that stands still, as a virtual machine's does that is paused, moved live, or
//     restored from a snapshot. By it the claim is valid on waking, and the fence lets writes pass
//     until the answer to the next heartbeat says that it has ended: within a RetryPeriod, or, if nothing is
//     answered, until the RenewDeadline, by that clock. A fence in the API server covers it; see
//     [FenceIncarnation].
//   - Whoever forges a Lease in the name of an incarnation that has ended, or releases it in its holder's name, makes a
//     second holder possible until the first has seen it, which takes one watch event.
//   - Whoever deletes a Lease that has just been created makes a second holder possible: a rival that has not heard of
//     it yet goes on counting how long it has been absent, until the watch event arrives.
//   - Exactly once. A write may be repeated by the next holder.
//   - Progress while the API server cannot be reached: claims end, and nobody acquires.
//
// # Heartbeats
//
// A member renews one Lease, its own: that is its heartbeat, and [Membership] keeps it. Nobody renews a shard's Lease, which
// is written when it changes hands or when what its holder says on it changes. A claim is valid while now is before the start
// of the last confirmed heartbeat plus RenewDeadline, and its Lease was last seen as the claim's. A Lease is free once it was
// released, or once the Lease of its holder's member lists the holder as ended, for which all live members judge all others.
// Package heartbeat has the decisions and what they guarantee, docs/design/heartbeat.md the argument.
//
// # Clock model
//
// Only readings of the process's own clock are compared, and only with each other. A member's Lease has expired when
// this process has not seen its spec change for its duration; renewTime and acquireTime are written for people and never
// compared with a clock. A change of labels or annotations is not a sign of life, so that others may leave requests and
// marks. The duration is the larger of what the Lease declares, bounded to [MinDuration, MaxDuration],
// and the reader's own LeaseDuration: a Lease that declares nonsense can lengthen a takeover, and never shorten it.
//
// A holder counts from the START of its last confirmed heartbeat and a rival from when it SAW the result, which is
// later. So the holder stops first:
//
//	holder  |start of heartbeat ------- RenewDeadline: claims end, fences closed ---- work must have returned|
//	rival         |sees the heartbeat ------------------------------------------------- LeaseDuration: may strike|
//
// Time in which the process is stopped or the machine suspends itself counts on Linux
// (CLOCK_BOOTTIME), but timers stand still meanwhile. Every decision therefore reads the clock
// again, and the fence does for every request.
//
// # Absent, deleted and emptied Leases
//
// A Lease that does not exist may have been deleted under a holder that does not know it yet. So an absent Lease is
// created only after this process has known it to be absent for LeaseDuration: a holder from before has ended its claim
// by then. A holder that finds its own Lease deleted creates it again, with its term; its claim goes on, and a rival sees
// an ordinary Lease. A Lease without a holder that nobody has released, and one whose holder is no member's incarnation,
// are taken after they have stood still for as long.
//
// # Asking for a Lease
//
// A claimant that wants a Lease which another incarnation holds may ask for it, once everything is prepared
// ([Claimant.SetAsk]): it writes its name into an annotation of the Lease, which is no sign of life of anybody. Nothing
// makes the holder give the Lease up. Its owner sees the request ([Record.NextHolder]), decides whether to believe it, and
// sets [Released] instead of [Retained], which holds on and acquires nothing. With the release it
// may leave what it has written last ([Observation.Writes]), so that the next holder knows when its
// caches have seen all of it, and for how long its fence had been closed ([StoppedAnnotation]).
// These annotations go with the next acquisition.
//
// # States
//
// [Step] is a pure function from what is known to what is to be done; [Claimant] is the loop that does it.
//
//	            Create, Acquire                Start                    Drain
//	   ┌────┐ ────────────────▶ ┌────────┐ ──────────▶ ┌───────┐ ──────────────▶ ┌────────┐
//	   │Idle│                   │Acquired│             │Running│                 │Draining│
//	   └────┘ ◀──────────────── └────────┘             └───────┘                 └────────┘
//	    │ ▲ ▲        End                                │   │                       │   │
//	Ask └─┘ │                     End (work returned)   │   │ End (lost)            │   │
//	Release └───────────────────────────────────────────┴───│───────────────────────┘   │
//	        │        Rest (work returned)      ┌────┐       │                           │
//	        └───────────────────────────────── │Lost│ ◀─────┴───────────────────────────┘
//	                                           └────┘
//
// The right is held in Acquired, Running and Draining, where Create writes a Lease again that was deleted, and Renew
// changed annotations. Work
// runs in Running, Draining and Lost. The table is in the comment of [Step].
package election

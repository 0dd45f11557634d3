// Package election decides who may write, and until when. It keeps members and claims on Lease
// objects of one namespace, and knows nothing about controllers. A member claims shards by name and
// gets a [Claim], a value whose context ends when the right does.
//
// # Guarantees
//
//   - One holder. Two incarnations never hold valid claims on one Lease at the same time, as long
//     as their clocks differ in speed by less than LeaseDuration/RenewDeadline (1.5 by default) and
//     nobody else writes a holder that looks like one of theirs. Emptied and deleted Leases are
//     tolerated, see below.
//   - Stop, then release. A planned end cancels the work, waits until it has returned while the
//     claim holds, ends the claim, and only then clears the holder, in an update of a freshly
//     fetched Lease that still names this incarnation. Work that does not return in time ends the
//     process ([ClaimantConfig.OnStuck]), and others list it as ended.
//   - A claim ends at once when its member sees another holder in its Lease, and at the latest
//     RenewDeadline after the start of the member's last confirmed heartbeat. It never comes back
//     to life: a new right is a new claim with a higher term.
//   - Terms never repeat. Every acquisition, even by the same incarnation, increments
//     leaseTransitions, from the highest value this process has ever seen for that name. The first
//     term is 1; 0 means no term. Terms restart only if a Lease was deleted and a process that has
//     never seen it creates it again.
//   - Nothing starts while older work runs: a claimant acquires again only after its last work has
//     returned.
//   - Fence (package fence). A mutating request is refused unless the claim is valid at the moment
//     of sending, and does not outlive the Lease on this side of the connection.
//   - Credentials. When [Membership.Publish] returns, what the member has published is on its
//     Lease, and whoever fences the member sees it: [FenceIncarnation] is written on the Lease as
//     it was read, and an incarnation that has been marked publishes nothing.
//   - Leader locks (package leaderlock). All members together hold a foreign Lease.
//   - The package uses only get, list, watch, create and update on Leases, and never deletes one.
//
// # Not guaranteed
//
//   - A request that has left the process cannot be called back: the server may carry it out for as
//     long as it keeps the request. The fence bounds how long the client waits, not what the server
//     does. A goroutine that is suspended between the fence's check and the system call writes when
//     it wakes up.
//   - A clock that stands still, like that of a virtual machine that is paused, migrated live, or
//     restored from a snapshot. By that clock the claim is valid on waking, and the fence lets
//     writes pass until the answer to the next heartbeat says that it has ended: within a
//     RetryPeriod, or, if no answer comes, until the RenewDeadline, by that clock. A fence in the
//     API server covers it; see [FenceIncarnation].
//   - Anyone who forges a Lease in the name of an incarnation that has ended, or releases it in its
//     holder's name, makes a second holder possible until the first has seen it, which takes one
//     watch event.
//   - Anyone who deletes a Lease that has just been created makes a second holder possible: a rival
//     that does not know of the Lease yet keeps counting how long it has been absent, until the
//     watch event arrives.
//   - Exactly once. A write may be repeated by the next holder.
//   - Progress while the API server cannot be reached: claims end, and nobody acquires.
//
// # Heartbeats
//
// A member renews one Lease, its own: that is its heartbeat, and [Membership] keeps it. Nobody
// renews a shard's Lease, which is written when it changes hands or when its holder changes what it
// says there. A claim is valid while now is before the start of the last confirmed heartbeat plus
// RenewDeadline, and its Lease was last seen as the claim's. A Lease is free once it was released,
// or once the Lease of its holder's member lists the holder as ended; all live members judge all
// others for that. Package heartbeat has the decisions and what they guarantee,
// docs/design/heartbeat.md the argument.
//
// # Clock model
//
// A process compares only readings of its own clock, and only with each other. A member's Lease has
// expired when this process has not seen its spec change for its duration; renewTime and
// acquireTime are written for people and never compared with a clock. A change of labels or
// annotations does not count as a heartbeat, so others may leave requests and marks. The duration
// is the larger of the duration on the Lease, bounded to [MinDuration, MaxDuration], and the
// reader's own LeaseDuration: a nonsensical value on a Lease can lengthen a takeover, and never
// shorten it.
//
// A holder counts from the START of its last confirmed heartbeat and a rival from when it SAW the
// result, which is later. So the holder stops first:
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
// A missing Lease may have been deleted while a holder does not know it yet. So an absent Lease is
// created only after this process has known it to be absent for LeaseDuration: an earlier holder
// has ended its claim by then. A holder that finds its own Lease deleted creates it again, with its
// term; its claim goes on, and a rival sees an ordinary Lease. A Lease without a holder that nobody
// has released, and one whose holder is no member's incarnation, may be taken after they have stood
// still for as long.
//
// # Asking for a Lease
//
// If another incarnation holds a Lease, a claimant may ask for it, once everything is prepared
// ([Claimant.SetAsk]): it writes its name into an annotation of the Lease, which counts as nobody's
// heartbeat. Nothing forces the holder to give the Lease up. Its owner sees the request
// ([Record.NextHolder]), decides whether to believe it, and sets [Released] instead of [Retained],
// which holds on and acquires nothing. With the release it may leave what it has written last
// ([Observation.Writes]), so that the next holder knows when its caches have seen all of it, and
// for how long its fence had been closed ([StoppedAnnotation]). The next acquisition removes these
// annotations.
//
// # States
//
// [Step] is a pure function from what is known to what to do; [Claimant] is the loop that does it.
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
// The claimant has the right in Acquired, Running and Draining. There Create writes a deleted Lease
// again, and Renew writes changed annotations. Work runs in Running, Draining and Lost. The table
// is in the comment of [Step].
package election

// Package election decides who may write, and until when. It keeps claims on Lease objects of one
// namespace, and knows nothing about controllers. A member claims shards by name and gets a
// [Claim], a value whose context ends when the right does.
//
// Package membership keeps the members and their heartbeats, by which all claims live. Package
// leaserecord says what is on a Lease. [Observer] knows what this process has seen of all Leases,
// and since when.
//
// # Guarantees
//
//   - One holder. Two incarnations never hold valid claims on one Lease at the same time. This
//     requires that their clocks differ in speed by less than LeaseDuration/RenewDeadline (1.5 by
//     default) and that nobody else writes a holder that looks like one of theirs. Emptied and
//     deleted Leases are tolerated, see below.
//   - Stop, then release. A planned end cancels the work, waits until it has returned while the
//     claim holds, ends the claim, and only then clears the holder, in an update of a freshly
//     fetched Lease that still names this incarnation. Work that does not return in time ends the
//     process ([ClaimantConfig.OnStuck]), and others list it as ended.
//   - A claim ends at once when its member sees another holder in its Lease, and at the latest
//     RenewDeadline after the start of the member's last confirmed heartbeat. An ended claim never
//     revives: a new right is a new claim with a higher term.
//   - Terms never repeat. Every acquisition, even by the same incarnation, increments
//     leaseTransitions from the highest value this process has ever seen for that name. The first
//     term is 1; 0 means no term. Terms restart only if a Lease was deleted and a process that has
//     never seen it creates it again.
//   - Nothing starts while older work runs: a claimant acquires again only after its last work has
//     returned.
//   - Fence (package fence). The fence refuses a mutating request unless the claim is valid when
//     the request is sent, and gives it up, on this side of the connection, at the latest when the
//     Lease expires.
//   - Leader locks (package leaderlock). All members together hold somebody else's Lease.
//   - The package uses only get, list, watch, create and update on Leases, and never deletes one.
//
// # Not guaranteed
//
//   - A request that has left the process cannot be recalled: the server may execute it for as long
//     as it keeps it. The fence bounds how long the client waits, not what the server does. A
//     goroutine that is suspended between the fence's check and the system call writes when it
//     resumes.
//   - A clock that stops, like that of a virtual machine that is paused, migrated live, or restored
//     from a snapshot. By that clock the claim is still valid on resuming. The fence lets writes
//     pass until the answer to the next heartbeat says that the claim has ended: within a
//     RetryPeriod, or, if no answer comes, until the RenewDeadline, by that clock. A fence in the
//     API server covers this; see [leaserecord.FenceIncarnation].
//   - Anyone who writes a Lease in the name of an incarnation that has ended, or releases it in its
//     holder's name, makes a second holder possible until the first has seen it, which takes one
//     watch event.
//   - Anyone who deletes a Lease that has just been created makes a second holder possible: a rival
//     that does not know of the Lease yet keeps counting how long it has been absent, until the
//     watch event arrives.
//   - Exactly once. A write may be repeated by the next holder.
//   - Progress without the API server: claims end, and nobody acquires.
//
// # Heartbeats
//
// Nobody renews a shard's Lease: it is written when its holder changes, or when the holder updates
// the annotations. Its member renews only its own Lease; that is the heartbeat ([Heartbeat]). A
// claim is valid while now is before the start of the last confirmed heartbeat plus RenewDeadline,
// and its Lease was last seen with the claim's holder and term. A Lease is free once it was
// released, or once the Lease of its holder's member lists the holder as ended. Package heartbeat
// makes these decisions and states their guarantees; docs/design/heartbeat.md has the argument.
//
// # Clock model
//
// A process compares readings of its own clock only with each other. A member's Lease has expired
// when this process has not seen its spec change for its duration; renewTime and acquireTime are
// for people and never compared with a clock. A change of labels or annotations is not a heartbeat,
// so others may leave requests and marks. The duration is the larger of the Lease's, clamped to
// [leaserecord.MinDuration, leaserecord.MaxDuration], and the reader's own LeaseDuration: a
// nonsensical value on a Lease can lengthen a takeover but never shorten it.
//
// A holder counts from the START of its last confirmed heartbeat, and a rival from when it SAW the
// result, which is later. So the holder stops first:
//
//	holder  |start of heartbeat ------- RenewDeadline: claims end, fences closed ---- work must have returned|
//	rival         |sees the heartbeat ------------------------------------------------- LeaseDuration: may strike|
//
// On Linux (CLOCK_BOOTTIME) the clock also counts time in which the process is stopped or the
// machine suspended, but timers do not. Every decision therefore reads the clock again, and so does
// the fence for every request.
//
// # Absent, deleted and emptied Leases
//
// A missing Lease may have been deleted before its holder knows of it. So a claimant creates an
// absent Lease only after this process has known it to be absent for LeaseDuration: an earlier
// holder has ended its claim by then. A holder that finds its own Lease deleted creates it again
// with its term; its claim continues, and a rival sees an ordinary Lease. A Lease without a holder
// that nobody has released, and one whose holder is not a member's incarnation, may be acquired
// after being unchanged for as long.
//
// # Asking for a Lease
//
// While another incarnation holds a Lease, a claimant may ask for it once everything is prepared
// ([Claimant.SetAsk]): it writes its name into an annotation of the Lease, which is nobody's
// heartbeat. Nothing forces the holder to give the Lease up. The holder's process sees the request
// ([leaserecord.Record.NextHolder]), decides whether to believe it, and sets [Released] instead of
// [Retained], which keeps the claim and acquires nothing. A claimant that is no longer prepared, or
// does not want the Lease any more, withdraws its request. With the release the holder may record
// its last writes ([Observation.Writes]), so that the next holder knows when its caches have seen
// all of them, and how long its fence had been closed ([leaserecord.StoppedAnnotation]). The next
// acquisition removes these annotations.
//
// # States
//
// [Step] is a pure function that decides what to do next; [Claimant] is the loop that does it.
//
//	            Create, Acquire                Start                    Drain
//	   ┌────┐ ────────────────▶ ┌────────┐ ──────────▶ ┌───────┐ ──────────────▶ ┌────────┐
//	   │Idle│                   │Acquired│             │Running│                 │Draining│
//	   └────┘ ◀──────────────── └────────┘             └───────┘                 └────────┘
//	    │ ▲ ▲        End                                │   │                       │   │
//	Ask └─┘ │                     End (work returned)   │   │ End (lost)            │   │
//	Unask   │                                           │   │                       │   │
//	Release └───────────────────────────────────────────┴───│───────────────────────┘   │
//	        │        Rest (work returned)      ┌────┐       │                           │
//	        └───────────────────────────────── │Lost│ ◀─────┴───────────────────────────┘
//	                                           └────┘
//
// The claimant has the right in Acquired, Running and Draining. There Create writes a deleted Lease
// again, and Renew writes changed annotations. Work runs in Running, Draining and Lost. The table
// is in the comment of [Step].
package election

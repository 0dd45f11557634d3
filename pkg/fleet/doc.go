// Package fleet is one member's part in a fleet: it turns the roster and the plan into an
// assignment of shards, claims its own, and runs a shard's work for as long as its claim holds.
//
// It knows neither controllers nor API machinery beyond Leases: [Config].Build says what a shard's
// work is.
//
// # Start and stop order of a member
//
//  1. The observer watches Leases; without it nothing is decided.
//  2. The member acquires its own Lease. While another incarnation of the same member renews it,
//     the member waits: two processes of one name must not both claim.
//  3. The member reads the plan from the plan's Lease; if the fleet has no plan, it writes the
//     first.
//  4. The member takes the leader locks, if there are any. Until it holds them it keeps the caches
//     warm for what the ring gives it, and claims nothing.
//  5. The member runs one claimant for each shard, which wants the shard's Lease if the ring gives
//     the shard to this member, and one for the plan's Lease, whose holder plans.
//
// Stopping goes the other way, and nothing is skipped. The member leaves the roster, so that the
// others prepare for its shards. It hands each shard over when its next owner asks, or unasked when
// HandoffTimeout has passed. Then it releases its own Lease, and, if it is the last member, the
// leader locks; then the observer ends.
//
// # A stop
//
// An operator may stop the fleet by an annotation on the plan's Lease ([leaseapi.StopAnnotation]).
// Every member then releases all shards, stops renewing its leader locks, and says on its Lease
// that it is still ([leaseapi.StillAnnotation]). A member that reads, in one list, that every live
// member is still and no shard is held, releases the leader locks as they are in that list: if
// somebody has written them since, the release is refused. When the fleet starts again, a member
// first removes its own annotation, and then takes the leader locks again, with nothing that it
// prepared before. A claim that is acquired meanwhile sees the stop when it looks before it runs
// anything.
//
// # A handoff
//
// While another member holds a shard that this one should own, this member builds the shard's work
// and fills its caches, and then asks for the shard. The holder runs it until then. It gives it up
// only to the member that its own assignment names as the owner. Once the holder has stopped and
// released the Lease, this member acquires it, looks at all Leases (rule 6 of the design), waits
// until its caches have seen what the holder wrote last, opens the fence and runs.
// docs/design/ownership.md has the details.
//
// # A change of plan
//
// A new generation has new shards where the plan has changed. Their owners acquire them at once,
// look, prepare, and wait while shards of an older generation that cover some of the same are held;
// those drain when all their successors are ready. docs/design/plan.md has the details.
//
// # Guarantees
//
//   - Which member should own which shard is a pure function of plan, roster and holders (see
//     [assignment.Assignment]): members that see the same Leases agree.
//   - Prepared work begins with caches that are no older than the last write of the shard's last
//     holder. If that cannot be shown, the work is thrown away and built again.
//   - No shard's work runs without a claim, and Run returns only after all work has.
//   - A member that joins changes nothing before it is active; a member that leaves or dies is out
//     of the ring as soon as the others see that.
//   - When the member's Lease is lost, all claims end at once and Run returns an error.
//   - No two running shards cover some of the same controllers on some of the same namespaces,
//     whatever plans they are from.
//   - A plan that cannot be used leaves the last good one in force, even for members that start
//     later: the plan's Lease keeps it. If a live member refuses a plan which others work by, it is
//     left out of the rings, keeps what it runs and claims nothing else. The same holds for a
//     member that refuses the plan on the Lease and works by none. The log and
//     flotilla_fleet_foreign_members report these members.
//   - While the fleet is stopped nothing runs. A stop that cannot be read changes nothing; a member
//     that has just started and cannot read it works only if others do.
//   - While any shard's work runs, the fleet holds every leader lock; without it no write passes
//     the fence.
//   - If the API server enforces the fence of deploy/fence, no shard of a dead member runs before
//     that member has been fenced for FenceDelay, and no credential is used that could not be
//     fenced. A member that has been fenced ends.
//
// # Non-guarantees
//
//   - Between release and acquire a shard is unowned for as long as a watch event and an update
//     take.
//   - If an owner dies between its request and its acquisition, the shard is unowned until others
//     notice the death, a lease duration later.
//   - Members that see different Leases for a moment may assign differently; the Lease decides, so
//     one of them waits.
package fleet

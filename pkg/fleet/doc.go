// Package fleet is one member's part in a fleet: it turns the roster and the plan
// into an assignment of shards, claims its own, and runs a shard's work for as long as its claim
// holds.
//
// It knows neither controllers nor API machinery beyond Leases: what a shard's work
// is, [Config].Build says.
//
// # Start and stop order of a member
//
//  1. The observer watches Leases; without it nothing is decided.
//  2. The member's own Lease is acquired. While another incarnation of the same
//     member renews it, the member waits: two processes of one name must not both
//     claim.
//  3. The plan is read from its Lease; a member of a fleet that has none writes the first.
//  4. The leader locks are held, where there are any. Until then the caches of what the ring gives
//     to this member are kept warm, and nothing is claimed.
//  5. One claimant a shard, each wanting its Lease if the ring gives the shard to
//     this member, and one for the plan's Lease, whose holder plans.
//
// Stopping goes the other way, and nothing is skipped: the member leaves the roster,
// so that the others prepare for its shards; each shard is handed over when its next
// owner asks, or unasked when HandoffTimeout has passed; then the member's Lease is
// released, and by the last member the leader locks; then the observer ends.
//
// # A stop
//
// An operator may stop the fleet by an annotation on the plan's Lease ([leaseapi.StopAnnotation]).
// Every member then releases all shards, stops keeping its leader locks, and says on its Lease that
// it is still ([leaseapi.StillAnnotation]). Who reads, in one list, that every live member is still
// and no shard is held, releases the leader locks as they are in that list: a write since then
// refuses it. A member that is to work again first takes back what it says, and then takes the
// leader locks again, with nothing that it prepared before. A claim that is acquired meanwhile sees
// the stop when it looks before it runs anything.
//
// # A handoff
//
// While another member holds what this one is to own, it builds the shard's work and
// fills its caches, and then asks for the shard. The holder runs it until then. It gives
// it up only to the member that its own assignment names as the owner. Once it has stopped and
// released the Lease, this member acquires it, looks at all Leases (rule 6 of the design), waits
// until its caches have seen what the holder wrote last, opens the fence and runs.
// docs/design/ownership.md has the whole.
//
// # A change of plan
//
// A new generation has new shards for what is changed. Their owners acquire them at once, look, prepare, and wait while
// shards of an older generation that cover some of the same are held; those drain when all their
// successors are ready. docs/design/plan.md has the whole.
//
// # Guarantees
//
//   - Which member should own which shard is a pure function of plan, roster and holders (see
//     [assignment.Assignment]): members that see the same Leases agree.
//   - Work that was prepared begins with caches that are no older than the last write of
//     the shard's last holder. Where that cannot be shown, it is thrown away and built again.
//   - No shard's work runs without a claim, and Run returns only after all work has.
//   - A member that joins changes nothing before it is active; a member that leaves
//     or dies is out of the ring as soon as that is observed.
//   - When the member's Lease is lost, all claims end at once and Run returns an
//     error.
//   - No two shards run that cover some of the same controllers on some of the same namespaces, of whatever plans.
//   - A plan that cannot be used leaves the last good one in force, also for members that start
//     later: the plan's Lease keeps it. Live members that refuse a plan which others work by are
//     left out of the rings, keep what they run and claim nothing else. So are those that refuse
//     the plan on the Lease and work by none. The log and flotilla_fleet_foreign_members say so.
//   - While the fleet is stopped nothing runs. A stop that cannot be read changes nothing; a member that has just started
//     and cannot read it works only if others do.
//   - While any shard's work runs, every leader lock is held, and no write passes the fence while
//     one is not.
//   - Where the API server enforces the fence of deploy/fence, no shard of a dead member
//     runs before that member has been fenced for FenceDelay, and no credential is used
//     that could not be fenced. A member that has been fenced ends.
//
// # Non-guarantees
//
//   - Between release and acquire a shard has no holder for as long as a watch event
//     and an update take.
//   - An owner that dies between its request and its acquisition leaves the shard
//     without a holder until its death is noticed, a lease duration later.
//   - Members that see different Leases for a moment may assign differently; the Lease
//     decides, so one of them waits.
package fleet

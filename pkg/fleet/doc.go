// Package fleet implements one member of a fleet. A member turns the roster and the plan into an
// assignment of shards, claims its own, and runs a shard's work for as long as its claim holds.
//
// The package knows neither controllers nor API machinery beyond Leases: [Config].Build makes a
// shard's work.
//
// Most decisions are made in packages of their own, which do not import this one: which member
// should own which shard in package assignment, which plan may be in force in inforce, what comes
// next with a shard in shardrun, whether the fleet may work at all in leadership. Package planner
// writes plans, and fencing marks dead members. Here is what puts these together: the loop that
// gives each shard its goal, and the runners that carry out what shardrun decides.
//
// # Start and stop order of a member
//
//  1. The observer watches Leases. The member decides nothing without it.
//  2. The member acquires its own Lease. While another incarnation of the same member renews it,
//     the member waits: two processes of one name must not both claim.
//  3. The member reads the plan from the plan's Lease; if the fleet has no plan, it writes the
//     first.
//  4. The member takes the leader locks, if there are any. Until it holds them it claims nothing,
//     but keeps the caches warm for the shards that the rings give it.
//  5. The member runs one claimant for each shard, which acquires the shard's Lease if the ring
//     gives the shard to this member, and one for the plan's Lease, whose holder plans.
//
// Stopping reverses the order and skips nothing. The member leaves the roster, so that the others
// prepare for its shards. It hands each shard over when its next owner asks, or unasked when
// HandoffTimeout has passed. Then it releases its own Lease and, if it is the last member, the
// leader locks. Then the observer ends.
//
// # A stop
//
// An operator may stop the fleet by an annotation on the plan's Lease ([leaseapi.StopAnnotation]).
// Every member then releases all shards, stops renewing its leader locks, and publishes on its
// Lease that it is still ([leaseapi.StillAnnotation]). A member that sees, in one list, that every
// live member is still and no shard is held, releases the leader locks as they are in that list. If
// somebody has written them since, the API server refuses the release.
//
// When the fleet starts again, a member first removes its own annotation, and then takes the leader
// locks again, without anything that it prepared before. A claim that is acquired during a stop
// sees the stop in its preflight.
//
// # A handoff
//
// While another member holds a shard that this one should own, this member builds the shard's work
// and fills its caches, and then asks for the shard. The holder runs the shard until then, and
// gives it up only to the member that its own assignment names as the owner. Once the holder has
// stopped and released the Lease, this member acquires it, looks at all Leases (rule 6 of the
// design), waits until its caches have seen the holder's last writes, opens the fence and runs.
// docs/design/ownership.md has the details.
//
// # A change of plan
//
// A new generation has new shards where the plan has changed. Their owners acquire them at once,
// look, prepare, and wait while anybody holds shards of an older generation that cover some of the
// same. Those drain when all their successors are ready. docs/design/plan.md has the details.
//
// # Guarantees
//
//   - Which member should own which shard is a pure function of plan, roster and holders (see
//     [assignment.Assignment]): members that see the same Leases agree.
//   - Prepared work begins with caches that are no older than the last write of the shard's last
//     holder. If the member cannot prove that, it discards the work and builds it again.
//   - No shard's work runs without a claim, and Run returns only after all work has.
//   - A joining member changes nothing before it is active. A member that leaves or dies is out of
//     the ring as soon as the others see that.
//   - When a member loses its Lease, all its claims end at once and Run returns an error.
//   - No two running shards cover some of the same controllers on some of the same namespaces,
//     whatever plans they are from.
//   - A plan that cannot be used leaves the last good one in force, even for members that start
//     later: the plan's Lease keeps it. A live member that refuses a plan by which others work is
//     left out of the rings, keeps what it runs and claims nothing else. The same holds for a
//     member that refuses the plan on the Lease and works by none. The log and
//     flotilla_fleet_foreign_members report these members.
//   - While the fleet is stopped nothing runs. An unreadable stop changes nothing; a member that
//     has just started and cannot read it works only if others do.
//   - While any shard's work runs, the fleet holds every leader lock. Without one of them no write
//     passes the fence.
//   - If the API server enforces the fence of deploy/fence, no shard of a dead member runs before
//     that member has been fenced for FenceDelay. No member uses a credential that could not be
//     fenced. A fenced member ends.
//
// # Non-guarantees
//
//   - Between release and acquire a shard is unowned for as long as a watch event and an update
//     take.
//   - If an owner dies between its request and its acquisition, the shard is unowned until others
//     notice the death, a lease duration later.
//   - Members that briefly see different Leases may assign differently. The Lease decides, so one
//     of them waits.
package fleet

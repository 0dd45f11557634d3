// Package inforce is about the plan that a member works by: what follows from a plan, which Leases
// cover some of the same, and which plan on the plan's Lease may come into force.
//
// [Plan] has a plan with everything that a member looks up in it many times a second. [Covers]
// knows what shards' Leases say they cover, also Leases of older plans. [Judge] decides for
// everything that reads a plan, so that a refused plan changes nothing anywhere.
// docs/design/plan.md has the rules.
//
// # Guarantees
//
//   - Nothing here asks an API server, reads a clock or logs. Results depend on the arguments and
//     on what [NewJudge] was given.
//   - Members that work by the same plan, see the same Leases, and whose builds know the same, come
//     to the same verdict.
//   - All methods are safe for concurrent use.
//
// # Non-guarantees
//
//   - A verdict is about one moment: what may come into force depends on which members are live.
package inforce

// Package skew decides what a plan may contain while a fleet's members are of different builds,
// whose catalogues of controllers differ: one build has a controller that the other lacks, or runs
// it in another scope.
//
// It consists of pure functions of a plan and of what builds know. docs/design/skew.md has the
// argument.
//
//	Build          what a build knows: its controllers, and where each goes in a plan
//	Known          what a member says of its build on its Lease, as others read it
//	Build.Fits     may a member of this build work by a plan?
//	Build.Adapt    the plan that follows, for the builds that are there
//	Known.Apt      may a member get shards of a ring?
//
// # Guarantees
//
//   - A controller that a plan does not have begins only when every build knows it.
//   - A controller leaves the plan only when no build knows it.
//   - A controller that all builds have is in the plan, in a scope in which they all can run it, if
//     there is one. Until the plan has it there, builds that cannot run it are not apt for its
//     ring.
//   - Adapt comes to rest: it does not change its own result again for the same builds.
//   - The result of Adapt fits every build that it was made for, if they have a common scope for
//     each controller that several of them know.
//
// # Non-guarantees
//
//   - Fingerprints have 24 bits: two of 2^24 that collide make a build seem to know a controller
//     that it does not. A test checks that those of the catalogue differ.
//   - A build that moves a controller from ranges to a group, or back, must be able to run it in
//     both for one minor version. Otherwise Fits refuses the plan for the newer build.
package skew

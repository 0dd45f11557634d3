// Package leadership decides whether a member's fleet may work at all: it must hold all leader
// locks, and no operator may have stopped it.
//
// [Leadership] takes part in both for one member. It holds the leader locks under the name that all
// members share, and gives them up when an operator has stopped the fleet and every member is
// still. docs/migration.md shows what that is for, and docs/design/ownership.md has the rules.
//
// # Guarantees
//
//   - Work behind fences that ask [Leadership.Permit] writes only while the fleet holds every
//     leader lock. When one of them is lost, the membership is revoked, and with it all claims of
//     the process.
//   - The leader locks of a stopped fleet are released only as they are in a list in which every
//     live member is still and no shard is held.
//   - An unreadable stop changes nothing. A member that has just started and cannot read it works
//     only if others do.
//   - Run returns only after all goroutines have ended. All methods are safe for concurrent use.
//
// # Non-guarantees
//
//   - It does not stop what runs: [Leadership.Halts] says that it has to stop, and the member says
//     by [Leadership.Rest] that it has.
package leadership

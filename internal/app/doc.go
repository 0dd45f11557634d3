// Package app is the flotilla command: upstream's options and the fleet's, serving, and the wiring
// of a process.
//
// # Start and stop order of a process
//
//  1. Flags are validated, upstream's and the fleet's, and the files that controllers need are
//     read, without asking a server. A mistake here ends the process with an error that names the
//     flag.
//  2. The secure port serves: health, metrics, the fleet's status page, configz, flagz, statusz,
//     debug handlers. So an operator can ask a waiting process what it waits for.
//  3. The process waits for the API server, as upstream does.
//  4. With --leader-elect (the default) the process joins its fleet as a member, through
//     pkg/flotilla like any other program, waits until the fleet holds its leader locks, and runs
//     the shards that it gets. Without --leader-elect it runs every controller on everything and
//     waits for nobody, as upstream does.
//  5. On SIGTERM or SIGINT the member leaves the fleet and hands over its shards; the secure port
//     serves until that is done. A second signal ends the process at once.
//
// # Guarantees
//
//   - Every flag of kube-controller-manager is accepted with its validation and its meaning, except
//     for the differences that docs/flags.md lists. Lease timings are those of the --leader-elect-*
//     flags.
//   - Everything that a stock controller manager with the same flags would do under its Lease, a
//     member does only while the fleet holds that Lease, unless --leader-lock says otherwise.
//   - The process ends with a status other than 0 if it could not start, or lost its place in the
//     fleet.
//
// # Non-guarantees
//
//   - A member cannot be a candidate of a coordinated leader election: it refuses to start with
//     that feature gate. It holds its leader lock beside API servers and stock replicas that have
//     the gate.
//   - With --leader-elect=false there is no fleet: two such processes are two controller managers,
//     as two stock ones would be.
//   - With --enable-leader-migration the whole fleet waits for the migration's Lease, not only the
//     controllers that the migration names.
package app

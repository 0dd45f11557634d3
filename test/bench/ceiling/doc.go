// Package ceiling is the load generator that the controllers are measured against: it sends the
// writes of a run once more, with as many workers, and looks at nothing. How fast that is, no
// controller manager with the same writes and workers can be.
//
// # Record
//
// Record reads the API server's audit log of a run, with objects
// (controlplane.Options.AuditObjects). It keeps the mutating requests of controllers that
// succeeded: those by service accounts of kube-system, and by system:kube-controller-manager. It
// leaves out Leases, reviews and tokens, service accounts of kube-system, dry runs, and what was
// refused. Events are kept apart: Options.Events says whether they are sent; controllers do not
// wait for theirs.
//
// # Replay
//
// Replay expects a control plane without controllers, on which Options.Prepare makes the objects
// that the recorded work began with. It sends each request as it was recorded (path, query, body;
// protobuf for the types that client-go knows, otherwise JSON), but for this:
//
//   - a name that the API server generated is given;
//   - the UID of an object is replaced by that of the object in the same place, wherever it is in
//     the body: in owners, labels, targets and patches. Where that is somebody else's, it is read
//     before the clock starts;
//   - there is no resourceVersion, so that nothing conflicts; for the few resources that insist on
//     one it is the latest that an answer had;
//   - a delete has no preconditions.
//
// Requests for one object are sent in the log's order, each after the answer to the one before. A
// request that names the UID of an object is sent after the create of that object, and that of a
// pod after that of its service account. Otherwise there is no order but that of Options.Barriers,
// and times are forgotten. So it is fast where a controller has to wait: for a watch, for a queue,
// for pods to become ready.
//
// # What it does not do
//
// It does not send what users, the scheduler or nodes did in the recorded run; work that depends on
// that (a namespace that is to be deleted first, a pod that a node must let go of) fails, and
// failures are counted. It does not list and watch, so the API server has less to do than with
// controllers: that is what makes it a ceiling. It uses CPU itself, on the same machine.
package ceiling

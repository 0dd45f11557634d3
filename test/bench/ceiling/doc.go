// Package ceiling is the load generator against which the controllers are measured: it sends the
// writes of a run again, with as many workers, and reads nothing. No controller manager with the
// same writes and workers can be faster.
//
// # Record
//
// Record reads the API server's audit log of a run, with objects
// (controlplane.Options.AuditObjects). It keeps the controllers' successful mutating requests:
// those of service accounts of kube-system, and of system:kube-controller-manager. It leaves out
// Leases, reviews and tokens, service accounts of kube-system, dry runs, and refused requests.
// Events are kept apart, and Options.Events says whether they are sent; controllers do not wait for
// theirs.
//
// # Replay
//
// Replay expects a control plane without controllers, on which Options.Prepare creates the objects
// with which the recorded work began. It sends each request as it was recorded (path, query, body;
// protobuf for the types that client-go knows, otherwise JSON), with these changes:
//
//   - a name that the API server generated is given;
//   - the UID of an object is replaced by that of the object in the same place, anywhere in the
//     body: in owners, labels, targets and patches. If the replay does not create that object, its
//     UID is read before the clock starts;
//   - there is no resourceVersion, so that nothing conflicts; for the few resources that require
//     one, it is the latest from an answer;
//   - a delete has no preconditions.
//
// Requests for one object are sent in the log's order, each after the answer to the one before. A
// request that names the UID of an object is sent after the create of that object, and one for a
// pod after that for its service account. Otherwise only Options.Barriers impose an order, and
// times are ignored. So the replay does not wait where a controller must: for a watch, for a queue,
// for pods to become ready.
//
// # What it does not do
//
// It does not send what users, the scheduler or nodes did in the recorded run. Work that depends on
// that (a namespace that must be deleted first, a pod that a node must release) fails, and failures
// are counted. It does not list and watch, so the API server has less to do than with controllers;
// that makes it a ceiling. It uses CPU on the same machine.
package ceiling

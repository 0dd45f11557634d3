// Package harness is what tests and the long programs (chaos, demo, conformance, bench) have in
// common when they run controller managers as processes on a [controlplane.ControlPlane]: starting
// and ending them, asking them, waiting, reading the audit log, and breaking the network.
//
//   - [Start] starts a [Manager]: a member of a fleet, or the stock controller manager. [Run] does
//     so for a test.
//   - [Await] waits for a condition, and says what it saw last. [Eventually] does so for a test.
//   - [Events] reads an audit log, [Follow] reads one that grows.
//   - [Proxy] stands between one manager and the API server, and can cut, delay or change what they
//     say.
//
// Guarantees:
//
//   - A manager is ended by the control plane's Stop, and by the end of the test that started it
//     with Run. Run also requires that it ends by itself when told to, that its log has no panic,
//     and prints the end of the log of a failed test, or keeps all of it in $FLOTILLA_TEST_LOGS.
//   - An error of Await names what was awaited and what its condition said last. A condition that
//     knows better than to wait on returns [ErrGiveUp].
//   - Everything listens on 127.0.0.1 only.
//
// The control plane itself is a package of its own: integration tests need it without any of this.
package harness

// Package harness is shared by the tests and the long programs (chaos, demo, conformance, bench)
// that run controller managers as processes on a [controlplane.ControlPlane]. It starts, stops and
// queries managers, waits for conditions, reads and judges the audit log, and breaks the network.
//
//   - [Start] starts a [Manager]: a member of a fleet, or the stock controller manager. [Run] does
//     so for a test.
//   - [Await] waits for a condition and reports its last error, [AwaitEvery] with an interval of the
//     caller's. [Eventually] does so for a test.
//   - [Events] reads an audit log, [Follow] reads one that grows. [Judge] and [JudgeDisturbed]
//     require of a test's log what the fleet promises; [Report] only says what there is.
//   - [Proxy] sits between one manager and the API server, and can cut, delay or change the
//     traffic.
//
// Guarantees:
//
//   - The control plane's Stop ends a manager; so does the end of the test that started it with
//     Run. Run also requires that the manager exits by itself when told to and that its log has no
//     panic. If the test failed, Run prints the end of the log, or keeps all of it in
//     $FLOTILLA_TEST_LOGS.
//   - An error of Await names the condition and its last error. A condition that can never hold
//     returns [ErrGiveUp].
//   - Everything listens on 127.0.0.1 only.
//
// The control plane is a package of its own because integration tests use it without a manager.
package harness

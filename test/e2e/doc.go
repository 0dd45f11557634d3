// Package e2e runs the flotilla binary, and the stock kube-controller-manager beside it, as
// processes on a real control plane with simulated nodes, and holds what they do against each other
// and against what the design promises.
//
//   - TestSameAsStock: from the same input, the fleet makes of a cluster what the stock controller
//     manager makes of it.
//   - TestFleet: members join, leave, are drained, restarted and killed under work; their logs and
//     metrics say so.
//   - TestFenceRefusesCredentials, TestFencedByAPIServer: the admission policy of deploy/fence, by
//     itself and with a member that is suspended for longer than its Leases last.
//   - TestStockToFleetAndBack, TestSwappedImage, TestLeaderLockPerController: from the stock leader
//     to the fleet and back, all controllers or some, by the stock leader's Lease, with leader
//     migrations too; leaderlocklog_test.go judges them.
//   - TestFreshFleetBegins, TestCoordinatedElection, TestElectionsThatAreRefused: members in a new
//     cluster, and where API servers choose the leader.
//   - TestEndpoints: what the secure port serves, and to whom.
//   - The tests of badinput_test.go: what is said and done about flags and surroundings that are
//     not as they should be.
//
// Tests whose fleets need nothing but Leases share a control plane (main_test.go).
//
// The tests need bin/, which `make build tools` fills. They print what they measure; times depend
// on the machine.
package e2e

// Package e2e runs the flotilla binary, and the stock kube-controller-manager beside it, as
// processes on a real control plane with simulated nodes. It compares the two with each other and
// with the design's promises.
//
//   - TestSameAsStock: from the same input, the fleet and the stock controller manager bring a
//     cluster to the same state.
//   - TestFleet: members join, leave, are drained, restarted and killed under load; their logs and
//     metrics say so.
//   - TestFenceRefusesCredentials, TestFencedByAPIServer: the admission policy of deploy/fence, by
//     itself and with a member that is suspended for longer than its Leases last.
//   - TestStockToFleetAndBack, TestSwappedImage, TestLeaderLockPerController: from the stock leader
//     to the fleet and back, for all controllers or some, by the stock leader's Lease, also with
//     leader migrations; leaderlocklog_test.go judges them.
//   - TestFreshFleetBegins, TestCoordinatedElection, TestCoordinatedElectionIsRefused: members in a
//     new cluster, and where API servers choose the leader.
//   - TestEndpoints: what the secure port serves, and to whom.
//   - The tests of badinput_test.go: how the binary handles wrong flags and broken surroundings.
//
// Tests whose fleets need only Leases share a control plane (main_test.go).
//
// The tests need bin/, which `make build tools` fills. They print what they measure; times depend
// on the machine.
package e2e

// Package e2e runs the flotilla binary, and the stock kube-controller-manager beside it, as processes on a real
// control plane with simulated nodes, and holds what they do against each other and against what the design promises.
//
//   - TestSameAsStock: from the same input, the fleet makes of a cluster what the stock controller manager makes of it.
//   - TestFleet: three members share one cluster; one leaves in order, one is killed, one comes back.
//   - TestFenceRefusesCredentials, TestFencedByAPIServer: the admission policy of deploy/fence, by itself and with a member
//     that is suspended for longer than its Leases last.
//   - TestStockToFleetAndBack, TestWayInWithoutRelease, TestGateStandbyTakesOver, TestGatePerController: from the stock leader to the
//     fleet and back, all controllers or some, by the stock leader's Lease; gatelog_test.go judges them.
//   - TestSwappedImage, TestFreshFleetBegins, TestCoordinatedElection, TestElectionsThatAreRefused:
//     members with the stock one's flags, in a cluster that has a stock leader, in a new one, and
//     where API servers choose the leader.
//   - TestFleetLeaderMigration, TestStockLeaderMigration: leader migrations, of the fleet and of the stock one beside it.
//   - TestEndpoints: what the secure port serves, and to whom.
//   - The tests of badinput_test.go: what is said and done about flags, files and surroundings that are not as they
//     should be.
//
// The tests need bin/, which `make build tools` fills. They print what they measure; times depend on the machine.
package e2e

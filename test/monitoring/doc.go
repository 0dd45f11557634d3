// Package monitoring reads the alerts and the dashboard in deploy/monitoring, for the tests that
// compare them with a fleet.
//
// The tests of this package need promtool (not with -short) and promexpr (hack/build-tools.sh
// promtool promexpr) but no cluster. They check that rules are valid and behave in promtool's unit
// tests, that alerts and runbooks match, and that the dashboard is well formed. The tests in
// test/monitoring/live run a fleet and a Prometheus. They check that every metric and label exists,
// that every panel has data, and that each alert fires for its fault and not without one.
package monitoring

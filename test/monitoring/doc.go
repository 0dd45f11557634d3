// Package monitoring reads what deploy/monitoring ships, alerts and dashboard, for the tests that
// hold it against a fleet.
//
// The tests of this package need promtool (not with -short) and promexpr (hack/build-tools.sh
// promtool promexpr) and no cluster: rules are valid and behave in promtool's unit tests, every
// alert has its runbook and every runbook its alert, the dashboard is well formed. Those of
// test/monitoring/live run a fleet and a Prometheus: every metric and label exists, every panel has
// data, every alert fires when its fault is made, and none without.
package monitoring

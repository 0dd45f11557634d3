// Package live has tests with fleets of three processes on a real control plane, and a real
// Prometheus that scrapes them as deploy/monitoring says. Its token may read /metrics and nothing
// else, and it evaluates the shipped rules.
//
//   - TestHealthy: a rolling restart and a change of plan fire nothing, every metric and label that
//     rules and dashboard name exists, and every panel has data.
//   - TestAlerts: each alert fires for its fault, and clears after it. It takes 20 minutes and runs
//     with -faults.
//
// All durations of rules and scrapes are divided by -factor, so that half an hour becomes three
// minutes. With -factor 1 they stay. The tests need bin/, which `make tools build` and
// hack/build-tools.sh prometheus promexpr fill.
package live

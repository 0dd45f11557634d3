// Package live has tests that run a fleet of three as processes on a real control plane, and a real
// Prometheus that scrapes it as deploy/monitoring says: with a token that may read /metrics and
// nothing else, by the shipped rules.
//
//   - TestHealthy: a rolling restart and a change of plan fire nothing, every metric and label that
//     rules and dashboard name exists, and every panel has data.
//   - TestAlerts: each alert fires when its fault is made, and clears after it. It takes half an
//     hour and runs with -faults.
//
// All durations of rules and scrapes are divided by -factor, so that half an hour becomes three
// minutes; -factor 1 leaves them as they are. The tests need bin/, which `make tools build` and
// hack/build-tools.sh prometheus promexpr fill.
package live

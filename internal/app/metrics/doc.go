// Package metrics makes the metrics of a member that are only for kube-controller-manager: the one
// by which dashboards for the stock controller manager know a leader. It also ends the series of
// workqueues with their shards. The metrics of any member are in pkg/metrics.
package metrics

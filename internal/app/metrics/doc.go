// Package metrics has what kube-controller-manager's /metrics has of a member beside the metrics of
// any member, which are in pkg/metrics: the metric by which dashboards for the stock controller
// manager know a leader. It ends the series of workqueues with their shards.
package metrics

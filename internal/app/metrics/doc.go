// Package metrics makes the metrics that only kube-controller-manager's members have: the one by
// which dashboards for the stock controller manager recognise a leader. It also ends the series of
// workqueues when their shards end. Metrics of every member are in pkg/metrics.
package metrics

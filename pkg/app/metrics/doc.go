// Package metrics puts a member's metrics on /metrics of kube-controller-manager: those of any
// member, which are in pkg/metrics, those of its workqueues, and the one by which dashboards for the
// stock controller manager know a leader.
package metrics

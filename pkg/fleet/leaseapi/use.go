package leaseapi

import (
	"fmt"

	"github.com/flotilla-kube/flotilla/pkg/election"
)

// Use is what a member publishes about its process. All values are 0 or more. It is for people:
// nothing is decided by it.
type Use struct {
	// CPU is the mean processor use since the last report, in thousandths of a processor.
	CPU int64
	// Queued is how many items wait in the workqueues of all controllers.
	Queued int64
	// Work is what the controllers have done since the last report; nil if not reported.
	Work *UseOfWork
	// Health is how the controllers have fared since the last report; nil if not reported.
	Health *Health
}

// Health describes how the controllers of a member fare.
type Health struct {
	// Requests are the completed requests in a thousand seconds, with or without an answer. Errors
	// is how many of them were refused or failed, not counting conflicts.
	Requests, Errors int64
	// Wait50 and Wait99 are the 50th and 99th percentile of the time that items waited in
	// workqueues, in microseconds, to the precision of the buckets; 0 if there were none.
	Wait50, Wait99 int64
}

// String returns all four values separated by slashes, as on a Lease: "9100/35/120/40000".
func (h Health) String() string {
	return fmt.Sprintf("%d/%d/%d/%d", h.Requests, h.Errors, h.Wait50, h.Wait99)
}

// healthOn returns what a member has published on its Lease; nil if it cannot be read. Newer builds
// may publish more values.
func healthOn(lease election.Observation) *Health {
	n := numbers(lease.Annotations[HealthAnnotation], "/")
	if len(n) < 4 || n[1] > n[0] {
		return nil
	}
	return &Health{Requests: n[0], Errors: n[1], Wait50: n[2], Wait99: n[3]}
}

// UseOfWork is what the controllers of a member have done with the items of their workqueues.
type UseOfWork struct {
	// Reconciles and Retries count, in a thousand seconds, the items that were processed, and those
	// that were put back after an error or to be looked at again.
	Reconciles, Retries int64
	// P50 and P99 are the 50th and 99th percentile of the processing time, in microseconds, to the
	// precision of the buckets; 0 if there were none.
	P50, P99 int64
}

// String returns CPU and queued items separated by a slash, as on a Lease, followed by Work if it
// is known: "312/17/4200/12/850/40000". Health is separate.
func (u Use) String() string {
	text := fmt.Sprintf("%d/%d", u.CPU, u.Queued)
	if w := u.Work; w != nil {
		text += fmt.Sprintf("/%d/%d/%d/%d", w.Reconciles, w.Retries, w.P50, w.P99)
	}
	return text
}

// UseOn returns what a member has published on its Lease, and whether it has published anything
// readable.
func UseOn(lease election.Observation) (u Use, published bool) {
	n := numbers(lease.Annotations[UseAnnotation], "/")
	switch len(n) {
	case 2:
	case 6:
		u.Work = &UseOfWork{Reconciles: n[2], Retries: n[3], P50: n[4], P99: n[5]}
	default:
		return Use{}, false
	}
	u.CPU, u.Queued = n[0], n[1]
	u.Health = healthOn(lease)
	return u, true
}

// MayMoveShards reports whether a change of a Lease may move a shard. A renewal does not, nor does
// what a member publishes of its use, memory and weights, which changes all the time. The planner
// moves shards by weights, but not at once.
func MayMoveShards(before, after election.Observation) bool {
	return election.IsMore(before, after, UseAnnotation, HealthAnnotation, MemoryAnnotation, CensusAnnotation, RecentWritesAnnotation)
}

package leaseapi

import (
	"fmt"
	"maps"

	"github.com/flotilla-kube/flotilla/pkg/election"
)

// Use is what a member says of its process, 0 or more each. It is for people: nothing is decided by
// it.
type Use struct {
	// CPU is the mean use of processors since it said so last, in thousandths of one.
	CPU int64
	// Queued is how many items wait in the workqueues of all its controllers.
	Queued int64
	// Work is what its controllers have done since it said so last; nil where it does not say.
	Work *UseOfWork
	// Health is how its controllers have fared since it said so last; nil where it does not say.
	Health *Health
}

// Health is how the controllers of a member fare.
type Health struct {
	// Requests are those that have an answer or will get none, in a thousand seconds. Errors of
	// them were refused, or failed; a conflict is no error.
	Requests, Errors int64
	// Wait50 and Wait99 are how long half of the items of workqueues waited at most, and 99 of 100,
	// in microseconds, as exactly as buckets tell; 0 where there were none.
	Wait50, Wait99 int64
}

// String returns all four with a slash between them, as on a Lease: "9100/35/120/40000".
func (h Health) String() string {
	return fmt.Sprintf("%d/%d/%d/%d", h.Requests, h.Errors, h.Wait50, h.Wait99)
}

// healthOn returns what a member has published on its Lease; nil if that cannot be read. Newer
// builds may say more.
func healthOn(lease election.Observation) *Health {
	n := numbers(lease.Annotations[HealthAnnotation], "/")
	if len(n) < 4 || n[1] > n[0] {
		return nil
	}
	return &Health{Requests: n[0], Errors: n[1], Wait50: n[2], Wait99: n[3]}
}

// UseOfWork is what the controllers of a member have done with the items of their workqueues.
type UseOfWork struct {
	// Reconciles and Retries are how many were processed, and put back after an error or to be
	// looked at again, in a thousand seconds.
	Reconciles, Retries int64
	// P50 and P99 are how long half of them took at most, and 99 of 100, in microseconds, as
	// exactly as buckets tell; 0 where there were none.
	P50, P99 int64
}

// String returns CPU and queued items with a slash between them, as on a Lease, and what the
// controllers have done after another one if it is known: "312/17/4200/12/850/40000". Health is
// apart.
func (u Use) String() string {
	text := fmt.Sprintf("%d/%d", u.CPU, u.Queued)
	if w := u.Work; w != nil {
		text += fmt.Sprintf("/%d/%d/%d/%d", w.Reconciles, w.Retries, w.P50, w.P99)
	}
	return text
}

// UseOn returns what a member has published on its Lease, and whether it has published anything
// that can be read.
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

// MayMoveShards reports whether a change of a Lease may move a shard: neither a renewal does, nor
// what a member says of its use, which changes every time.
func MayMoveShards(before, after election.Observation) bool {
	if !election.IsMore(before, after) {
		return false
	}
	before.Annotations, after.Annotations = maps.Clone(before.Annotations), maps.Clone(after.Annotations)
	for _, name := range []string{UseAnnotation, HealthAnnotation} {
		delete(before.Annotations, name)
		delete(after.Annotations, name)
	}
	return election.IsMore(before, after)
}

package leaderlock

import (
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
)

// leaseNaming returns a copy of lease, or a new Lease if it is nil, that names self as its holder
// for term. It changes only the fields of an election: the Lease belongs to somebody else.
func leaseNaming(
	lease *coordinationv1.Lease, name, self string, term term, duration time.Duration, stamp time.Time,
) *coordinationv1.Lease {
	out := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if lease != nil {
		out = lease.DeepCopy()
	}
	out.Spec.HolderIdentity = &self
	out.Spec.LeaseTransitions = &term.transitions
	// Rounded up: the Lease must never declare less than its holder relies on.
	out.Spec.LeaseDurationSeconds = ptr.To(int32(math.Ceil(duration.Seconds())))
	out.Spec.RenewTime = ptr.To(metav1.NewMicroTime(stamp))
	out.Spec.AcquireTime = nil
	if !term.acquired.IsZero() {
		out.Spec.AcquireTime = ptr.To(metav1.NewMicroTime(term.acquired))
	}
	return out
}

// mostLonger limits the duration that a renewal keeps, relative to the member's own. It is far more
// than any change of flags in one rolling restart, and little if somebody has edited the Lease.
const mostLonger = 10

// declares returns the duration that a renewal declares: the member's own, or what the Lease
// declares if that is longer. Members with longer Leases rely on it, and cannot know that a shorter
// one was written before they read again.
func declares(lease leaserecord.Record, own time.Duration) time.Duration {
	return max(own, min(lease.Duration, mostLonger*own))
}

// stampAfter returns the renewTime to write at now, in a later second than last, the previous one.
// client-go's elector does not see a renewal within the same second, and members whose clocks
// differ might otherwise write the same second for a while.
func stampAfter(last, now time.Time) time.Time {
	next := last.Truncate(time.Second).Add(time.Second)
	if next.After(now) && next.Year() <= 9999 { // 9999 is the last year that a Lease can have.
		return next
	}
	return now
}

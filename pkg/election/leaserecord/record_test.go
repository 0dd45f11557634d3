package leaserecord

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	self      = "a_1"
	leaseName = "f-ns-01"
)

// at returns a time.
func at(seconds int) time.Time { return time.Unix(int64(1_000_000+seconds), 0) }

// held returns a Lease that a process with another clock has acquired.
func held(holder string, term int32) *coordinationv1.Lease {
	return Stamp{}.Held(nil, leaseName, holder, term, 15*time.Second, at(-1_000))
}

func TestFrom(t *testing.T) {
	stamp := metav1.NewMicroTime(at(5))
	for name, tc := range map[string]struct {
		lease *coordinationv1.Lease
		want  Record
	}{
		"no lease": {nil, Record{}},
		"empty": {
			&coordinationv1.Lease{},
			Record{Duration: MinDuration, Problem: "leaseDurationSeconds 0 is outside [1, 600], read as 1"},
		},
		"full": {
			&coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: "f-s", ResourceVersion: "9", Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "1"}},
				Spec: coordinationv1.LeaseSpec{
					HolderIdentity: ptr.To("a_1"), LeaseTransitions: ptr.To[int32](3), LeaseDurationSeconds: ptr.To[int32](15),
					AcquireTime: &stamp, RenewTime: &stamp,
				},
			},
			Record{
				Name: "f-s", Holder: "a_1", Transitions: 3, Duration: 15 * time.Second, AcquireTime: at(5), RenewTime: at(5),
				ResourceVersion: "9", Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "1"},
			},
		},
		"absurd duration": {
			&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: ptr.To[int32](1 << 30)}},
			Record{Duration: MaxDuration, Problem: "leaseDurationSeconds 1073741824 is outside [1, 600], read as 600"},
		},
		"negative duration": {
			&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: ptr.To[int32](-1)}},
			Record{Duration: MinDuration, Problem: "leaseDurationSeconds -1 is outside [1, 600], read as 1"},
		},
		"negative term": {
			&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: ptr.To[int32](1), LeaseTransitions: ptr.To[int32](-4)}},
			Record{Duration: time.Second, Problem: "leaseTransitions -4 is negative, read as 0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, From(tc.lease), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("From() is not as wanted (-want +got):\n%s", diff)
			}
		})
	}
}

// The Lease must never declare less than its holder relies on.
func TestHeldRoundsDurationUp(t *testing.T) {
	for duration, want := range map[time.Duration]int32{time.Second: 1, 1001 * time.Millisecond: 2, 15 * time.Second: 15, 14900 * time.Millisecond: 15} {
		if got := *(Stamp{}).Held(nil, "f-s", self, 1, duration, at(0)).Spec.LeaseDurationSeconds; got != want {
			t.Errorf("Held() for %v declares %d s, want %d", duration, got, want)
		}
	}
}

func TestStopped(t *testing.T) {
	for text, want := range map[string]time.Duration{
		StoppedText(7, 36214*time.Millisecond+3*time.Microsecond): 36214 * time.Millisecond,
		StoppedText(6, time.Second):                               0, // an earlier holder's
		"":                                                        0,
		"7":                                                       0,
		"7 soon":                                                  0,
		"7 -5s":                                                   0,
		"7 1000h":                                                 maxStopped,
	} {
		r := Record{Transitions: 7, Annotations: map[string]string{StoppedAnnotation: text}}
		if got := r.Stopped(); got != want {
			t.Errorf("%q: stopped for %v, want %v", text, got, want)
		}
	}
	before := held(self, 4)
	before.Annotations = map[string]string{StoppedAnnotation: StoppedText(4, time.Second)}
	if next := (Stamp{}).Held(before, leaseName, self, 5, 15*time.Second, at(0)); next.Annotations[StoppedAnnotation] != "" {
		t.Errorf("a new holder keeps the previous one's annotation: %q", next.Annotations[StoppedAnnotation])
	}
}

func TestHeldKeepsUnknownFields(t *testing.T) {
	before := held(self, 4)
	before.ResourceVersion, before.OwnerReferences = "9", []metav1.OwnerReference{{Name: "x"}}
	before.Spec.Strategy = ptr.To(coordinationv1.OldestEmulationVersion)
	original := before.DeepCopy()

	same := (Stamp{}).Held(before, leaseName, self, 4, 15*time.Second, at(0))
	if same.ResourceVersion != "9" || len(same.OwnerReferences) != 1 || same.Spec.Strategy == nil {
		t.Errorf("Held() = %+v, want resourceVersion, owners and strategy as they were", same)
	}
	if !same.Spec.AcquireTime.Equal(before.Spec.AcquireTime) || !same.Spec.RenewTime.Equal(before.Spec.RenewTime) {
		t.Errorf("Held() acquired %v, renewed %v, want the times as they were", same.Spec.AcquireTime, same.Spec.RenewTime)
	}
	if next := (Stamp{}).Held(before, leaseName, self, 5, 15*time.Second, at(0)); !next.Spec.AcquireTime.Time.Equal(at(0)) || !next.Spec.RenewTime.Time.Equal(at(0)) {
		t.Errorf("Held() in a new term acquired %v, renewed %v, want the new time", next.Spec.AcquireTime, next.Spec.RenewTime)
	}
	if diff := cmp.Diff(original, before); diff != "" {
		t.Errorf("Held() changed its argument (-before +after):\n%s", diff)
	}
}

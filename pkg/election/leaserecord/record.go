package leaserecord

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Bounds of a Lease's duration. A declared duration is clamped to them when it is read, and Timing
// must be within them.
const (
	MinDuration = 1 * time.Second
	MaxDuration = 10 * time.Minute
)

// releasedSeconds is the duration written on a released Lease, as in client-go. Nobody waits for
// it: a released Lease is free at once.
const releasedSeconds = 1

// Record is the content of a Lease, made safe to use. Its maps belong to the Lease and must not be
// changed.
type Record struct {
	// Name is the Lease's name.
	Name string
	// Holder is holderIdentity; empty means free.
	Holder string
	// Transitions is leaseTransitions, the term of the current or last holder; at least 0.
	Transitions int32
	// Duration is leaseDurationSeconds, within [MinDuration, MaxDuration]; MinDuration if the Lease
	// has none.
	Duration time.Duration
	// AcquireTime and RenewTime are the writer's timestamps, for people. Never compare them with a
	// clock.
	AcquireTime, RenewTime time.Time
	// ResourceVersion is the version of the Lease that this was read from.
	ResourceVersion string
	// Labels and Annotations are the Lease's own.
	Labels, Annotations map[string]string
	// Problem describes which fields were invalid and what was assumed instead; empty if none were.
	Problem string
}

// From reads a Lease. It accepts anything: a nil Lease gives the zero Record. It replaces
// missing, negative and out-of-bounds fields by the nearest valid value, and says so in Problem.
func From(lease *coordinationv1.Lease) Record {
	if lease == nil {
		return Record{}
	}
	spec := &lease.Spec
	r := Record{
		Name:            lease.Name,
		Holder:          ptr.Deref(spec.HolderIdentity, ""),
		Transitions:     ptr.Deref(spec.LeaseTransitions, 0),
		ResourceVersion: lease.ResourceVersion,
		Labels:          lease.Labels,
		Annotations:     lease.Annotations,
	}
	if spec.AcquireTime != nil {
		r.AcquireTime = spec.AcquireTime.Time
	}
	if spec.RenewTime != nil {
		r.RenewTime = spec.RenewTime.Time
	}
	declared := time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 0)) * time.Second
	r.Duration = min(max(declared, MinDuration), MaxDuration)
	if r.Duration != declared {
		r.Problem = fmt.Sprintf("leaseDurationSeconds %d is outside [%d, %d], read as %d", ptr.Deref(spec.LeaseDurationSeconds, 0),
			int(MinDuration.Seconds()), int(MaxDuration.Seconds()), int(r.Duration.Seconds()))
	}
	if r.Transitions < 0 {
		r.Problem = fmt.Sprintf("leaseTransitions %d is negative, read as 0", r.Transitions)
		r.Transitions = 0
	}
	return r
}

// Annotations of a Lease that changes holders. The next acquisition removes them.
const (
	// NextHolderAnnotation names the incarnation that has asked for the Lease.
	NextHolderAnnotation = "flotilla.dev/next-holder"
	// WritesAnnotation records the last writes of the holder that released the Lease, see
	// Observation.Writes of package election.
	WritesAnnotation = "flotilla.dev/last-writes"
	// StoppedAnnotation records how long the holder's fence had been closed when it wrote this: the
	// term and a duration by its own clock, "7 36.2s". The holder writes it while its work has not
	// returned behind a closed fence, and leaves it with the release.
	StoppedAnnotation = "flotilla.dev/stopped"
)

// StateAnnotation holds, on a member's own Lease, what the member declares itself to be: a State of
// package membership.
const StateAnnotation = "flotilla.dev/state"

// Annotations by which members keep and judge Leases, see package heartbeat.
const (
	// ProtocolAnnotation, on a member's own Lease, is the version of what the member writes on
	// Leases; 1 if absent. Members with different versions must not be in one fleet.
	ProtocolAnnotation = "flotilla.dev/protocol"
	// EndedAnnotation, on a member's Lease, lists the member's incarnations that have ended for
	// good, sorted, comma separated.
	EndedAnnotation = "flotilla.dev/ended"
	// ReleasedAnnotation is the term whose holder released the Lease. A Lease without a holder that
	// lacks it, or has another term, was emptied by somebody else.
	ReleasedAnnotation = "flotilla.dev/released"
)

// Protocol returns the protocol version of the holder of a member's Lease; 1 if the Lease has none
// or an invalid one.
func (r Record) Protocol() int {
	protocol, err := strconv.Atoi(r.Annotations[ProtocolAnnotation])
	if err != nil {
		return 1
	}
	return protocol
}

// Ended returns the incarnations that a member's Lease lists as ended, sorted.
func (r Record) Ended() []string {
	ended := Items(r.Annotations[EndedAnnotation])
	slices.Sort(ended)
	return slices.Compact(ended)
}

// HasEnded reports whether a member's Lease lists the incarnation as ended.
func (r Record) HasEnded(incarnation string) bool {
	text := r.Annotations[EndedAnnotation]
	return text != "" && slices.Contains(Items(text), incarnation)
}

// IsStruck reports whether a member's Lease has no holder because other members listed the last one
// as ended, rather than because it left.
func (r Record) IsStruck() bool {
	return r.Holder == "" && r.Protocol() > 1 && r.Transitions > 0 && r.Duration > releasedSeconds*time.Second
}

// IsReleased reports whether the Lease has no holder because the last one released it.
func (r Record) IsReleased() bool {
	return r.Holder == "" && r.Annotations[ReleasedAnnotation] == strconv.Itoa(int(r.Transitions))
}

// maxStopped bounds what is believed of StoppedAnnotation.
const maxStopped = time.Hour

// Stopped returns how long the fence of the Lease's last holder had been closed, as that holder
// last reported; 0 if it was not, or the holder does not say.
func (r Record) Stopped() time.Duration {
	of, text, _ := strings.Cut(r.Annotations[StoppedAnnotation], " ")
	d, err := time.ParseDuration(text)
	if err != nil || of != strconv.Itoa(int(r.Transitions)) {
		return 0
	}
	return min(max(d, 0), maxStopped)
}

// StoppedText returns the value of StoppedAnnotation.
func StoppedText(term int32, d time.Duration) string {
	return fmt.Sprintf("%d %v", term, d.Round(time.Millisecond))
}

// NextHolder returns the incarnation that has asked for the Lease; empty if none has. It is
// unverified: anybody may have written it.
func (r Record) NextHolder() string {
	return r.Annotations[NextHolderAnnotation]
}

// Stamp is what a holder writes on its Lease besides the spec.
type Stamp struct {
	Labels, Annotations map[string]string
}

// Held returns a copy of lease, or a new Lease if it is nil, that names self as its holder for
// term. A new term sets acquireTime and renewTime and removes the handoff's annotations. Unknown
// fields, labels and annotations stay as they are.
func (s Stamp) Held(lease *coordinationv1.Lease, name, self string, term int32, duration time.Duration, now time.Time) *coordinationv1.Lease {
	fresh := lease == nil || ptr.Deref(lease.Spec.HolderIdentity, "") != self || ptr.Deref(lease.Spec.LeaseTransitions, 0) != term
	out := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if lease != nil {
		out = lease.DeepCopy()
	}
	out.Spec.HolderIdentity = &self
	out.Spec.LeaseTransitions = &term
	out.Spec.LeaseDurationSeconds = ptr.To(Declared(duration))
	if fresh {
		stamped := metav1.NewMicroTime(now)
		out.Spec.AcquireTime, out.Spec.RenewTime = &stamped, &stamped
		delete(out.Annotations, ReleasedAnnotation)
		delete(out.Annotations, NextHolderAnnotation)
		delete(out.Annotations, WritesAnnotation)
		delete(out.Annotations, StoppedAnnotation)
		reinstate(out)
	}
	out.Labels = Overlay(out.Labels, s.Labels)
	out.Annotations = Overlay(out.Annotations, s.Annotations)
	out.Labels = Overlay(out.Labels, markedLabel(out))
	return out
}

// Declared returns leaseDurationSeconds for a duration, rounded up: the Lease must never declare
// less than its holder relies on.
func Declared(duration time.Duration) int32 { return int32(math.Ceil(duration.Seconds())) }

// Asked returns a copy of lease on which self asks for it; empty for nobody.
func Asked(lease *coordinationv1.Lease, self string) *coordinationv1.Lease {
	out := Storable(lease)
	out.Annotations = Overlay(out.Annotations, map[string]string{NextHolderAnnotation: self})
	return out
}

// WithoutHolder returns a copy of lease without a holder and with the annotations left; an empty
// value removes a key. The term stays, because terms must not restart.
func WithoutHolder(
	lease *coordinationv1.Lease, left map[string]string, now time.Time,
) *coordinationv1.Lease {
	out := Storable(lease)
	stamped := metav1.NewMicroTime(now)
	out.Spec.HolderIdentity = ptr.To("")
	out.Spec.LeaseDurationSeconds = ptr.To[int32](releasedSeconds)
	out.Spec.RenewTime = &stamped
	out.Annotations = Overlay(out.Annotations, left)
	return out
}

// Storable returns a copy of lease that passes the API server's validation. The stored Lease may
// predate that validation.
func Storable(lease *coordinationv1.Lease) *coordinationv1.Lease {
	out := lease.DeepCopy()
	if ptr.Deref(out.Spec.LeaseTransitions, 0) < 0 {
		out.Spec.LeaseTransitions = ptr.To[int32](0)
	}
	if ptr.Deref(out.Spec.LeaseDurationSeconds, 1) <= 0 {
		out.Spec.LeaseDurationSeconds = nil
	}
	return out
}

// Overlay writes the entries of over onto base, which it may change; an empty value removes the
// key.
func Overlay(base, over map[string]string) map[string]string {
	if len(over) == 0 {
		return base
	}
	if base == nil {
		base = make(map[string]string, len(over))
	}
	maps.Copy(base, over)
	maps.DeleteFunc(base, func(key, value string) bool {
		_, ours := over[key]
		return ours && value == ""
	})
	return base
}

package election

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

// Bounds of a Lease's duration. What a Lease declares is moved into them when it is read, and
// Timing must lie in them.
const (
	MinDuration = 1 * time.Second
	MaxDuration = 10 * time.Minute
)

// releasedSeconds is the duration written on a released Lease, as client-go writes it. Nobody waits
// for it here: a Lease without a holder is free at once.
const releasedSeconds = 1

// Record is what a Lease says, made safe to use. Its maps belong to the Lease and must not be
// changed.
type Record struct {
	// Name is the Lease's name.
	Name string
	// Holder is holderIdentity; empty means free.
	Holder string
	// Transitions is leaseTransitions, the term of the present or last holder; at least 0.
	Transitions int32
	// Duration is leaseDurationSeconds, within [MinDuration, MaxDuration]; MinDuration if the Lease
	// has none.
	Duration time.Duration
	// AcquireTime and RenewTime are the writer's stamps, for people. Never compare them with a
	// clock.
	AcquireTime, RenewTime time.Time
	// ResourceVersion is the version of the Lease that this was read from.
	ResourceVersion string
	// Labels and Annotations are the Lease's own.
	Labels, Annotations map[string]string
	// Problem says in words which fields were nonsense and what was assumed instead; empty if none
	// were.
	Problem string
}

// RecordFrom reads a Lease. It accepts anything: a nil Lease is the zero Record, and fields that
// are missing, negative or beyond their bounds are replaced by the nearest sane value, with a word
// in Problem.
func RecordFrom(lease *coordinationv1.Lease) Record {
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

// Annotations of a Lease that is to change hands. They go with the next acquisition.
const (
	// NextHolderAnnotation names the incarnation that has asked for the Lease.
	NextHolderAnnotation = "flotilla.dev/next-holder"
	// WritesAnnotation has what the holder that released the Lease wrote last, see Writes.
	WritesAnnotation = "flotilla.dev/last-writes"
	// StoppedAnnotation has for how long the holder had not been able to write on what the Lease
	// stands for when it wrote this: the term and a duration by its own clock, "7 36.2s". It is
	// there while the holder's work does not return behind a closed fence, and is left with the
	// release.
	StoppedAnnotation = "flotilla.dev/stopped"
)

// Annotations by which members keep and judge Leases, see [Heartbeat].
const (
	// ProtocolAnnotation has the version of what a member writes on Leases, on its own Lease.
	// Members of different ones are not to be in one fleet; without it, it is 1.
	ProtocolAnnotation = "flotilla.dev/protocol"
	// EndedAnnotation lists the incarnations of a member that have ended for good, on the member's
	// Lease: sorted, comma separated.
	EndedAnnotation = "flotilla.dev/ended"
	// ReleasedAnnotation has the term whose holder has released the Lease. A Lease without a holder
	// that lacks it, or has another term, was emptied by somebody else.
	ReleasedAnnotation = "flotilla.dev/released"
)

// Protocol returns the version of what the holder of a member's Lease writes; 1 if the Lease has
// none, or nonsense.
func (r Record) Protocol() int {
	protocol, err := strconv.Atoi(r.Annotations[ProtocolAnnotation])
	if err != nil {
		return 1
	}
	return protocol
}

// Ended returns the incarnations that a member's Lease lists as ended, sorted.
func (r Record) Ended() []string {
	ended := list(r.Annotations[EndedAnnotation])
	slices.Sort(ended)
	return slices.Compact(ended)
}

// HasEnded reports whether a member's Lease lists the incarnation as ended.
func (r Record) HasEnded(incarnation string) bool {
	text := r.Annotations[EndedAnnotation]
	return text != "" && slices.Contains(list(text), incarnation)
}

// IsStruck reports whether a member's Lease has no holder because other members have listed the
// last one as ended, and not because that has left.
func (r Record) IsStruck() bool {
	return r.Holder == "" && r.Protocol() > 1 && r.Transitions > 0 && r.Duration > releasedSeconds*time.Second
}

// IsReleased reports whether the Lease has no holder because the last one says so.
func (r Record) IsReleased() bool {
	return r.Holder == "" && r.Annotations[ReleasedAnnotation] == strconv.Itoa(int(r.Transitions))
}

// maxStopped bounds what is believed of StoppedAnnotation.
const maxStopped = time.Hour

// Stopped returns for how long the Lease's last holder had not been able to write when it was heard
// of last; 0 if it could, or does not say.
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

// NextHolder returns the incarnation that has asked for the Lease; empty if none has. Anybody may
// have written it.
func (r Record) NextHolder() string {
	return r.Annotations[NextHolderAnnotation]
}

// stamp is what a holder writes on its Lease besides the spec.
type stamp struct {
	labels, annotations map[string]string
}

// held returns a copy of lease, or a new Lease if it is nil, that names self as its holder for
// term. A new term sets acquireTime and renewTime and removes what the handoff has left. Fields,
// labels and annotations that this package does not know stay as they are.
func (s stamp) held(lease *coordinationv1.Lease, name, self string, term int32, duration time.Duration, now time.Time) *coordinationv1.Lease {
	fresh := lease == nil || ptr.Deref(lease.Spec.HolderIdentity, "") != self || ptr.Deref(lease.Spec.LeaseTransitions, 0) != term
	out := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if lease != nil {
		out = lease.DeepCopy()
	}
	out.Spec.HolderIdentity = &self
	out.Spec.LeaseTransitions = &term
	out.Spec.LeaseDurationSeconds = ptr.To(declared(duration))
	if fresh {
		stamped := metav1.NewMicroTime(now)
		out.Spec.AcquireTime, out.Spec.RenewTime = &stamped, &stamped
		delete(out.Annotations, ReleasedAnnotation)
		delete(out.Annotations, NextHolderAnnotation)
		delete(out.Annotations, WritesAnnotation)
		delete(out.Annotations, StoppedAnnotation)
		reinstate(out)
	}
	out.Labels = overlay(out.Labels, s.labels)
	out.Annotations = overlay(out.Annotations, s.annotations)
	out.Labels = overlay(out.Labels, markedLabel(out))
	return out
}

// declared returns leaseDurationSeconds for a duration, rounded up: the Lease must never promise
// others less than its holder counts on.
func declared(duration time.Duration) int32 { return int32(math.Ceil(duration.Seconds())) }

// asked returns a copy of lease on which self asks for it.
func asked(lease *coordinationv1.Lease, self string) *coordinationv1.Lease {
	out := storable(lease)
	out.Annotations = overlay(out.Annotations, map[string]string{NextHolderAnnotation: self})
	return out
}

// WithoutHolder returns a copy of lease without a holder, with what its holder leaves behind:
// annotations, of which an empty value removes a key. The term stays, because terms must not
// restart.
func WithoutHolder(
	lease *coordinationv1.Lease, left map[string]string, now time.Time,
) *coordinationv1.Lease {
	out := storable(lease)
	stamped := metav1.NewMicroTime(now)
	out.Spec.HolderIdentity = ptr.To("")
	out.Spec.LeaseDurationSeconds = ptr.To[int32](releasedSeconds)
	out.Spec.RenewTime = &stamped
	out.Annotations = overlay(out.Annotations, left)
	return out
}

// storable returns a copy of lease that the API server takes: what is stored may be from before it
// was as strict.
func storable(lease *coordinationv1.Lease) *coordinationv1.Lease {
	out := lease.DeepCopy()
	if ptr.Deref(out.Spec.LeaseTransitions, 0) < 0 {
		out.Spec.LeaseTransitions = ptr.To[int32](0)
	}
	if ptr.Deref(out.Spec.LeaseDurationSeconds, 1) <= 0 {
		out.Spec.LeaseDurationSeconds = nil
	}
	return out
}

// overlay writes the entries of over onto base, which it may change; an empty value removes the
// key.
func overlay(base, over map[string]string) map[string]string {
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

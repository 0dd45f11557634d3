package leaserecord

import (
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Annotations of a member's Lease that the admission policy of deploy/fence reads, so that the API
// server refuses writes of a dead incarnation.
const (
	// CredentialsAnnotation lists the ids of the credentials that the holder may write with,
	// sorted, comma separated.
	CredentialsAnnotation = "flotilla.dev/credential-ids"
	// FencedAnnotation lists the member's fenced incarnations, the latest last, comma separated.
	FencedAnnotation = "flotilla.dev/fenced"
	// FencedCredentialsAnnotation lists the ids of their credentials. The policy reads these.
	FencedCredentialsAnnotation = "flotilla.dev/fenced-credentials"
)

// MarkedLabel is on the Leases that have FencedCredentialsAnnotation, and on no others. The policy
// selects by it, so that it costs almost nothing while no member has died.
const MarkedLabel = "flotilla.dev/marked"

// FencedFor is how long fenced credentials matter. It exceeds the lifetime of any credential:
// service account tokens that controllers request last an hour.
const FencedFor = 2 * time.Hour

// The marks of a member that dies repeatedly must not outgrow the 256 KiB that an object's
// annotations may have: a member that cannot write its Lease never comes back. The oldest are
// dropped first.
const (
	maxFencedIncarnations = 32
	maxFencedCredentials  = 1024
)

// Fenced reports whether the incarnation is marked as fenced on its member's Lease.
func (r Record) Fenced(incarnation string) bool {
	return slices.Contains(Items(r.Annotations[FencedAnnotation]), incarnation)
}

// FencedIncarnations returns the incarnations that are marked as fenced, the latest last.
func (r Record) FencedIncarnations() []string {
	return Items(r.Annotations[FencedAnnotation])
}

// FenceIncarnation returns a copy of a member's Lease that fences the incarnation, and reports
// whether that needs a write. It does not if the incarnation is fenced already. Nor does it if the
// Lease has none of its credentials, because it never published any or because a later incarnation
// holds the Lease. A valid spec is unchanged: a mark is not a heartbeat.
func FenceIncarnation(lease *coordinationv1.Lease, incarnation string) (*coordinationv1.Lease, bool) {
	record := From(lease)
	// A Lease without a holder was released or struck, and nobody else has published on it since.
	if lease == nil || record.Holder != incarnation && record.Holder != "" {
		return lease, false
	}
	out := Storable(lease)
	out.Annotations = Overlay(out.Annotations, MarksFor(record, incarnation))
	out.Labels = Overlay(out.Labels, markedLabel(out))
	if maps.Equal(out.Annotations, lease.Annotations) && maps.Equal(out.Labels, lease.Labels) {
		return lease, false
	}
	return out, true
}

// MarksFor returns the annotations that fence the incarnation, whose credentials the Lease lists,
// in addition to those already fenced. If the incarnation is not known, it is empty. It returns nil
// if the Lease lists no credentials.
func MarksFor(r Record, incarnation string) map[string]string {
	credentials := Items(r.Annotations[CredentialsAnnotation])
	if len(credentials) == 0 {
		return nil
	}
	return map[string]string{
		FencedAnnotation:            joined(Items(r.Annotations[FencedAnnotation]), Items(incarnation), maxFencedIncarnations),
		FencedCredentialsAnnotation: joined(Items(r.Annotations[FencedCredentialsAnnotation]), credentials, maxFencedCredentials),
	}
}

// Unmarked reports whether a member's Lease that was struck or emptied lists credentials that are
// not fenced, and returns the incarnation that they are of, as far as is known. Whoever struck it
// did not mark it, because the policy was not enforced then or the mark was refused. The Lease does
// not name the incarnation: of those listed as ended, it is one that is not marked as fenced; empty
// if none is listed.
func (r Record) Unmarked() (incarnation string, unmarked bool) {
	if !r.IsStruck() {
		return "", false
	}
	fenced := Items(r.Annotations[FencedCredentialsAnnotation])
	isFenced := func(id string) bool { return slices.Contains(fenced, id) }
	if len(slices.DeleteFunc(Items(r.Annotations[CredentialsAnnotation]), isFenced)) == 0 {
		return "", false
	}
	ended := r.Ended()
	if i := slices.IndexFunc(ended, func(incarnation string) bool { return !r.Fenced(incarnation) }); i >= 0 {
		return ended[i], true
	}
	if len(ended) == 0 {
		return "", true
	}
	return ended[len(ended)-1], true
}

// TakeMarksOf gives a Lease that is about to be written the marks of another one, and reports
// whether that changes any.
func TakeMarksOf(lease, other *coordinationv1.Lease) bool {
	marks := map[string]string{}
	for _, name := range []string{FencedAnnotation, FencedCredentialsAnnotation} {
		if there := other.Annotations[name]; there != lease.Annotations[name] {
			marks[name] = there
		}
	}
	lease.Annotations = Overlay(lease.Annotations, marks)
	lease.Labels = Overlay(lease.Labels, markedLabel(lease))
	return len(marks) > 0
}

// markedLabel returns the change of labels that makes MarkedLabel match the annotations.
func markedLabel(lease *coordinationv1.Lease) map[string]string {
	_, labelled := lease.Labels[MarkedLabel]
	_, marked := lease.Annotations[FencedCredentialsAnnotation]
	switch {
	case marked:
		return map[string]string{MarkedLabel: "true"}
	case labelled:
		return map[string]string{MarkedLabel: ""}
	default:
		return nil
	}
}

// joined returns the union of old and more, cut to its last most items, as an annotation.
func joined(old, more []string, most int) string {
	for _, item := range more {
		if !slices.Contains(old, item) {
			old = append(old, item)
		}
	}
	return strings.Join(old[max(0, len(old)-most):], ",")
}

// Items returns the items of an annotation.
func Items(annotation string) []string {
	if annotation == "" {
		return nil
	}
	return strings.Split(annotation, ",")
}

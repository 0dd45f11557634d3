package election

import (
	"maps"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Annotations of a member's Lease by which an API server that runs the admission policy of
// deploy/fence refuses what a dead incarnation still sends.
const (
	// CredentialsAnnotation lists the ids of the credentials that the holder may write with,
	// sorted, comma separated.
	CredentialsAnnotation = "flotilla.dev/credential-ids"
	// FencedAnnotation lists the incarnations of the member that are fenced, the last one last,
	// comma separated.
	FencedAnnotation = "flotilla.dev/fenced"
	// FencedCredentialsAnnotation lists the ids of their credentials, which is what the policy
	// reads.
	FencedCredentialsAnnotation = "flotilla.dev/fenced-credentials"
)

// MarkedLabel is on the Leases that have FencedCredentialsAnnotation, and on no other: the policy
// looks at these alone, so that it costs next to nothing while nobody has died.
const MarkedLabel = "flotilla.dev/marked"

// A member that dies over and over must not outgrow its Lease: annotations have 256 KiB in all, and
// a member that cannot write its Lease never comes back. The oldest go first.
const (
	maxFencedIncarnations = 32
	maxFencedCredentials  = 1024
)

// Fenced reports whether the incarnation is marked as fenced on its member's Lease.
func (r Record) Fenced(incarnation string) bool {
	return slices.Contains(list(r.Annotations[FencedAnnotation]), incarnation)
}

// FencedIncarnations returns the incarnations that are marked as fenced, the last one last.
func (r Record) FencedIncarnations() []string {
	return list(r.Annotations[FencedAnnotation])
}

// FenceIncarnation returns a copy of a member's Lease that fences the incarnation, and whether
// there is anything to write: there is not if it is fenced already, or if the Lease has none of its
// credentials, because it never published any or because a later incarnation holds the Lease. The
// spec stays as it is: a mark is no sign of life.
func FenceIncarnation(lease *coordinationv1.Lease, incarnation string) (*coordinationv1.Lease, bool) {
	record := RecordFrom(lease)
	// A Lease without a holder was released, and nobody else has published on it since.
	if lease == nil || record.Holder != incarnation && record.Holder != "" {
		return lease, false
	}
	out := lease.DeepCopy()
	out.Annotations = overlay(out.Annotations, marksFor(record, incarnation))
	out.Labels = overlay(out.Labels, markedLabel(out))
	if maps.Equal(out.Annotations, lease.Annotations) && maps.Equal(out.Labels, lease.Labels) {
		return lease, false
	}
	return out, true
}

// marksFor returns the annotations that fence the incarnation, whose credentials the Lease lists,
// beside those that are fenced already; nil if it lists none.
func marksFor(r Record, incarnation string) map[string]string {
	credentials := list(r.Annotations[CredentialsAnnotation])
	if len(credentials) == 0 {
		return nil
	}
	return map[string]string{
		FencedAnnotation:            joined(list(r.Annotations[FencedAnnotation]), []string{incarnation}, maxFencedIncarnations),
		FencedCredentialsAnnotation: joined(list(r.Annotations[FencedCredentialsAnnotation]), credentials, maxFencedCredentials),
	}
}

// markedLabel returns the change of labels that keeps MarkedLabel true to the annotations.
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

// joined returns old and what of more is not in it, the last most of them, as an annotation.
func joined(old, more []string, most int) string {
	for _, item := range more {
		if !slices.Contains(old, item) {
			old = append(old, item)
		}
	}
	return strings.Join(old[max(0, len(old)-most):], ",")
}

// list returns the items of an annotation.
func list(annotation string) []string {
	if annotation == "" {
		return nil
	}
	return strings.Split(annotation, ",")
}

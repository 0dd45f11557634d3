package leaserecord

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// RetiredAnnotation marks a Lease that nobody holds and whose subject no longer exists. Its value
// is up to whoever retires it.
const RetiredAnnotation = "flotilla.dev/retired"

// ours is the prefix of this project's label and annotation keys.
const ours = "flotilla.dev/"

// retiredOwner is the UID of an owner that never existed. A garbage collector deletes objects whose
// only owner it is.
const retiredOwner = types.UID("f1071114-0000-4000-8000-000000000000")

// Retired returns an emptied copy of a Lease that has no live holder: without a holder, and of this
// project's labels and annotations only with RetiredAnnotation and ReleasedAnnotation. Anyone who
// still needs the Lease can acquire it at once, with the next term. If collectable is set, the copy
// has an owner that does not exist, so that the cluster's garbage collector deletes it: a fleet
// itself deletes no Leases.
func Retired(lease *coordinationv1.Lease, why string, collectable bool) *coordinationv1.Lease {
	out := Storable(lease)
	foreign := func(key, _ string) bool { return strings.HasPrefix(key, ours) }
	maps.DeleteFunc(out.Labels, foreign)
	maps.DeleteFunc(out.Annotations, foreign)
	out.Annotations = Overlay(out.Annotations, map[string]string{
		RetiredAnnotation:  why,
		ReleasedAnnotation: strconv.Itoa(int(ptr.Deref(out.Spec.LeaseTransitions, 0))),
	})
	out.Spec.HolderIdentity = ptr.To("")
	out.Spec.LeaseDurationSeconds = ptr.To[int32](releasedSeconds)
	if collectable && len(out.OwnerReferences) == 0 {
		out.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease", Name: "retired", UID: retiredOwner,
		}}
	}
	return out
}

// IsRetired reports whether the Lease is retired and nobody holds it.
func (r Record) IsRetired() bool { return r.Holder == "" && r.Annotations[RetiredAnnotation] != "" }

// reinstate makes a retired Lease, in place, one that may be held again.
func reinstate(lease *coordinationv1.Lease) {
	delete(lease.Annotations, RetiredAnnotation)
	lease.OwnerReferences = slices.DeleteFunc(lease.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == retiredOwner })
}

package garbage

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Part is the part of the graph of owners that a collector has.
type Part int

const (
	// OfRange is the part with namespaced owners, whose dependents lie in their namespace.
	OfRange Part = iota + 1
	// OfCluster is the part with cluster-scoped owners, whose dependents may lie anywhere.
	OfCluster
)

// cut removes the other part of the graph from the events that a collector receives.
type cut struct {
	part   Part
	scopes *Scopes
}

// has reports whether a reference belongs to the part. A reference to a kind that is not known yet
// belongs to both: each collector asks the API server before it acts, and both come to the same
// result.
func (c cut) has(ref metav1.OwnerReference) bool {
	switch c.scopes.Of(ref) {
	case Namespaced:
		return c.part == OfRange
	case Cluster:
		return c.part == OfCluster
	default:
		return true
	}
}

// concerns reports whether an object is a node of the part: for a range each namespaced object, for
// the cluster each cluster-scoped one, and those with an owner in the part.
func (c cut) concerns(obj metav1.Object) bool {
	if c.part == OfRange {
		return obj.GetNamespace() != ""
	}
	return obj.GetNamespace() == "" || slices.ContainsFunc(obj.GetOwnerReferences(), c.has)
}

// tell returns the object as a collector receives it, and does not change obj. It is nil for an
// object that is not a node of any range.
//
// For the cluster, namespaced objects have no finalizers of the garbage collector: their own
// dependents are in their range, so the cluster's collector would find none, remove the finalizer,
// and let them go before these.
func (c cut) tell(obj any) any {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		if tombstone.Obj = c.tell(tombstone.Obj); tombstone.Obj == nil {
			return nil
		}
		return tombstone
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return obj // upstream reports that it cannot use it
	}
	if accessor.GetNamespace() == "" {
		if c.part == OfRange {
			return nil
		}
		return obj
	}
	refs, finalizers := accessor.GetOwnerReferences(), accessor.GetFinalizers()
	other := func(ref metav1.OwnerReference) bool { return !c.has(ref) }
	ours := func(f string) bool {
		return c.part == OfCluster && (f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents)
	}
	if !slices.ContainsFunc(refs, other) && !slices.ContainsFunc(finalizers, ours) {
		return obj
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: accessor.GetName(), Namespace: accessor.GetNamespace(), UID: accessor.GetUID(), ResourceVersion: accessor.GetResourceVersion(),
		OwnerReferences: slices.DeleteFunc(slices.Clone(refs), other), Finalizers: slices.DeleteFunc(slices.Clone(finalizers), ours),
		DeletionTimestamp: accessor.GetDeletionTimestamp(),
	}}
}

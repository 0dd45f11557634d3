package garbage

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
)

// RangeClient returns the client of a range's collector: it refuses to write objects outside of the
// range. A collector tries that for an owner whose kind has just become known and turns out to be
// cluster-scoped: such an owner belongs to the cluster's collector. in reports whether a namespace
// lies in the range.
func RangeClient(c metadata.Interface, in func(namespace string) bool) metadata.Interface {
	return client{c, func(r resource) metadata.ResourceInterface { return rangeResource{r, in} }}
}

// ClusterClient returns the client of the cluster's collector, which does not see what depends on
// namespaced objects. It deletes an object with an owner that waits for its dependents as upstream
// does if the object has dependents: in the foreground, so that they go first. If such an owner is
// namespaced, it leaves the object to the range, whose collector sees circles.
//
// A cluster-scoped object that names an owner of a namespaced kind is read without owners, so the
// collector never decides about it. mapper must be the collector's own, so that both agree on which
// kinds are namespaced.
func ClusterClient(c metadata.Interface, mapper meta.RESTMapper) metadata.Interface {
	waiting := lru.New(waitingOwners)
	return client{c, func(r resource) metadata.ResourceInterface { return clusterResource{r, mapper, waiting} }}
}

// waitingOwners is how many waiting owners are remembered as such. The collector looks at all
// owners of an object just before it deletes it, so a few for each of its workers are enough.
const waitingOwners = 4096

// client hands out wrapped clients of resources.
type client struct {
	metadata.Interface
	wrap func(resource) metadata.ResourceInterface
}

// Resource implements metadata.Interface.
func (c client) Resource(gvr schema.GroupVersionResource) metadata.Getter {
	inner := c.Interface.Resource(gvr)
	return getter{c.wrap(resource{inner, c.Interface, gvr, ""}), func(namespace string) metadata.ResourceInterface {
		return c.wrap(resource{inner.Namespace(namespace), c.Interface, gvr, namespace})
	}}
}

type getter struct {
	metadata.ResourceInterface
	in func(namespace string) metadata.ResourceInterface
}

// Namespace implements metadata.Getter.
func (g getter) Namespace(namespace string) metadata.ResourceInterface { return g.in(namespace) }

// resource is one resource, in a namespace or in none.
type resource struct {
	metadata.ResourceInterface
	all       metadata.Interface
	gvr       schema.GroupVersionResource
	namespace string
}

// Get implements metadata.ResourceInterface. An object that is being deleted has no owners here.
//
// Upstream looks at the owners of an object only if its graph says that nobody has deleted the
// object yet (garbagecollector.go: attemptToDeleteItem). But a graph that knows an object only from
// a dependent cannot say so, and then the collector may remove a reference of the object to itself,
// for which stock waits. So the client says what the graph will say: there is nothing to decide by
// owners.
func (r resource) Get(ctx context.Context, name string, options metav1.GetOptions, subresources ...string) (*metav1.PartialObjectMetadata, error) {
	obj, err := r.ResourceInterface.Get(ctx, name, options, subresources...)
	if err == nil && obj.DeletionTimestamp != nil {
		obj = withoutOwners(obj)
	}
	return obj, err
}

// withoutOwners returns a copy of an object that has no owners.
func withoutOwners(obj *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	without := *obj
	without.OwnerReferences = nil
	return &without
}

// Patch implements metadata.ResourceInterface. Custom resources do not support strategic merge
// patches. Upstream then replaces the owner references by those in its graph
// (garbagecollector/patch.go: unblockOwnerReferencesJSONMergePatch), which lacks the other part's
// here. So Patch applies the strategic patch to the object as it is.
func (r resource) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*metav1.PartialObjectMetadata, error) {
	patched, err := r.ResourceInterface.Patch(ctx, name, pt, data, options, subresources...)
	if pt != types.StrategicMergePatchType || !errors.IsUnsupportedMediaType(err) {
		return patched, err
	}
	live, err := r.ResourceInterface.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	merge, err := mergePatch(live, data)
	if err != nil {
		return nil, err
	}
	return r.ResourceInterface.Patch(ctx, name, types.MergePatchType, merge, options, subresources...)
}

// mergePatch returns the JSON merge patch that does the same to an object's owner references as a
// strategic one. It fails with a conflict if the patch is for another object of the same name.
func mergePatch(live *metav1.PartialObjectMetadata, strategic []byte) ([]byte, error) {
	before, err := json.Marshal(live)
	if err != nil {
		return nil, fmt.Errorf("patching owner references: %w", err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, strategic, metav1.PartialObjectMetadata{})
	if err != nil {
		return nil, fmt.Errorf("patching owner references: %w", err)
	}
	var patched metav1.PartialObjectMetadata
	if err := json.Unmarshal(after, &patched); err != nil {
		return nil, fmt.Errorf("patching owner references: %w", err)
	}
	if patched.UID != live.UID {
		return nil, errors.NewConflict(schema.GroupResource{}, live.Name, fmt.Errorf("the patch is for UID %s, the object has %s", patched.UID, live.UID))
	}
	var merge struct {
		Metadata struct {
			ResourceVersion string                  `json:"resourceVersion"`
			OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
		} `json:"metadata"`
	}
	merge.Metadata.ResourceVersion, merge.Metadata.OwnerReferences = live.ResourceVersion, patched.OwnerReferences
	return json.Marshal(merge)
}

// rangeResource is a resource as a range's collector sees it.
type rangeResource struct {
	resource
	in func(namespace string) bool
}

func (r rangeResource) outside(name string) error {
	if r.namespace != "" && r.in(r.namespace) {
		return nil
	}
	return fmt.Errorf("%s %q in namespace %q is outside of the range, whose garbage collector leaves it alone", r.gvr.GroupResource(), name, r.namespace)
}

// Delete implements metadata.ResourceInterface.
func (r rangeResource) Delete(ctx context.Context, name string, options metav1.DeleteOptions, subresources ...string) error {
	if err := r.outside(name); err != nil {
		return err
	}
	return r.resource.Delete(ctx, name, options, subresources...)
}

// Patch implements metadata.ResourceInterface.
func (r rangeResource) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*metav1.PartialObjectMetadata, error) {
	if err := r.outside(name); err != nil {
		return nil, err
	}
	return r.resource.Patch(ctx, name, pt, data, options, subresources...)
}

// clusterResource is a resource as the cluster's collector sees it.
type clusterResource struct {
	resource
	mapper meta.RESTMapper
	// waiting has, by UID, the places of owners that were waiting for their dependents.
	waiting *lru.Cache
}

// Get implements metadata.ResourceInterface. A cluster-scoped object that names an owner of a
// namespaced kind has no owners here.
//
// Upstream refuses to decide about such an object if it knows that the object is cluster-scoped. A
// graph that knows it only from a namespaced dependent has it in the dependent's namespace
// (graph_builder.go: addDependentToOwners). Upstream then looks for the owner there, finds none,
// and deletes the object, or removes the reference (garbagecollector.go: isDangling).
func (r clusterResource) Get(ctx context.Context, name string, options metav1.GetOptions, subresources ...string) (*metav1.PartialObjectMetadata, error) {
	obj, err := r.resource.Get(ctx, name, options, subresources...)
	if err != nil {
		return nil, err
	}
	if waits(obj) {
		r.waiting.Add(obj.UID, owner{r.gvr, r.namespace, name})
	}
	if r.namespace != "" {
		return obj, nil
	}
	for _, ref := range obj.OwnerReferences {
		switch namespaced, err := r.namesNamespaced(ref); {
		case err != nil:
			return nil, fmt.Errorf("%s %q names an owner of kind %s: %w", r.gvr.GroupResource(), name, ref.Kind, err)
		case namespaced:
			return withoutOwners(obj), nil
		}
	}
	return obj, nil
}

// namesNamespaced reports whether a reference is to a namespaced kind; false for an unknown kind:
// upstream looks at its owner again until the kind is known, or the owner is known to be absent. An
// error says that the scope could not be found out. The caller must stop then: upstream asks the
// mapper again, and may get an answer.
func (r clusterResource) namesNamespaced(ref metav1.OwnerReference) (bool, error) {
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	mapping, err := r.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	switch {
	case meta.IsNoMatchError(err):
		return false, nil
	case err != nil:
		return false, err
	}
	return mapping.Scope.Name() == meta.RESTScopeNameNamespace, nil
}

// owner is the place of an owner.
type owner struct {
	gvr             schema.GroupVersionResource
	namespace, name string
}

func waits(obj *metav1.PartialObjectMetadata) bool {
	return obj.DeletionTimestamp != nil && slices.Contains(obj.Finalizers, metav1.FinalizerDeleteDependents)
}

// Delete implements metadata.ResourceInterface. If an owner waits, upstream deletes an object with
// dependents in the foreground, whatever its finalizers. Here the collector sees no dependents, and
// would choose a policy by the finalizers, so its choice does not count.
func (r clusterResource) Delete(ctx context.Context, name string, options metav1.DeleteOptions, subresources ...string) error {
	if r.namespace == "" || r.waiting.Len() == 0 {
		return r.resource.Delete(ctx, name, options, subresources...)
	}
	item, err := r.ResourceInterface.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	waiting, err := r.waitingOwners(ctx, item)
	if err != nil {
		return err
	}
	for _, o := range waiting {
		if o.namespace != "" {
			return fmt.Errorf("%s %s/%s is left to the garbage collector of its range, because its owner %s waits for its dependents",
				r.gvr.GroupResource(), r.namespace, name, o.name)
		}
		options.PropagationPolicy = ptr.To(metav1.DeletePropagationForeground)
	}
	// After a conflict upstream looks at the owners, and deletes whatever the version. Here the
	// look at waiting owners has come between, so look again.
	if p := options.Preconditions; p == nil || p.ResourceVersion == nil {
		now, err := r.ResourceInterface.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !equality.Semantic.DeepEqual(now.OwnerReferences, item.OwnerReferences) {
			return errors.NewConflict(r.gvr.GroupResource(), name, fmt.Errorf("its owners have just changed"))
		}
	}
	return r.resource.Delete(ctx, name, options, subresources...)
}

// waitingOwners returns the owners of an object that wait for their dependents now.
func (r clusterResource) waitingOwners(ctx context.Context, item *metav1.PartialObjectMetadata) ([]owner, error) {
	var waiting []owner
	for _, ref := range item.OwnerReferences {
		known, ok := r.waiting.Get(ref.UID)
		if !ok {
			continue
		}
		o := known.(owner)
		live, err := r.all.Resource(o.gvr).Namespace(o.namespace).Get(ctx, o.name, metav1.GetOptions{})
		switch {
		case errors.IsNotFound(err):
			r.waiting.Remove(ref.UID)
		case err != nil:
			return nil, err
		case live.UID == ref.UID && waits(live):
			waiting = append(waiting, o)
		}
	}
	return waiting, nil
}

package controllers

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/controllers/slim"
	"github.com/flotilla-kube/flotilla/pkg/controllers/wire"
)

// trim drops what no controller reads before objects are cached: from whole objects the same as
// upstream, from metadata everything that neither the garbage collector, nor the storage version
// migrator, nor the quota controller reads. None of them writes back what it has cached as
// metadata.
func trim(obj any) (any, error) {
	if partial, ok := obj.(*metav1.PartialObjectMetadata); ok {
		partial.ObjectMeta = identified(&partial.ObjectMeta)
		return partial, nil
	}
	if accessor, err := meta.Accessor(obj); err == nil && accessor.GetManagedFields() != nil {
		accessor.SetManagedFields(nil)
	}
	return obj, nil
}

// identified returns what controllers read of an object's metadata: its identity, for the graph's
// nodes, its owners, and whether and how it is being deleted (garbagecollector/graph_builder.go:
// identityFromEvent, processGraphChanges and deletionStartsWithFinalizer); its version
// (storageversionmigrator/storageversionmigrator.go:309). Quota only counts.
func identified(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		OwnerReferences: m.OwnerReferences, Finalizers: m.Finalizers, DeletionTimestamp: m.DeletionTimestamp,
	}
}

// managedFields is the field of ObjectMeta that trim drops from whole objects, and identifying are
// those that [identified] keeps (apimachinery's pkg/apis/meta/v1/generated.proto).
const managedFields protowire.Number = 17

var identifying = []protowire.Number{1, 3, 5, 6, 9, 13, 14}

// trimmedOnTheWire drops from watches what trim would drop, before it is decoded. It is in the way
// of every request that fills a cache of whole objects, and identifiedOnTheWire of those for
// metadata. So where an API server leaves managed fields out on request (KEP-5958: a parameter of
// the Accept header, which Kubernetes 1.37 does not know), these two are the place to ask for that.
func trimmedOnTheWire(next http.RoundTripper) http.RoundTripper {
	return wire.Drop(next, func(field protowire.Number) bool { return field == managedFields })
}

// identifiedOnTheWire does the same for watches of metadata.
func identifiedOnTheWire(next http.RoundTripper) http.RoundTripper {
	return wire.Drop(next, func(field protowire.Number) bool { return !slices.Contains(identifying, field) })
}

// slimCopies returns the functions that make slim copies, for the controllers whose row in the
// catalogue says so.
func slimCopies() map[schema.GroupVersionResource]func(any) any {
	return map[schema.GroupVersionResource]func(any) any{slim.Pods: slim.Pod, slim.Nodes: slim.Node}
}

// contextOf returns the context for a controller, whose informers hold only what it reads.
func (i *Instance) contextOf(name string) (app.ControllerContext, error) {
	row, _ := catalogue.Lookup(name)
	c := i.context
	if slices.Contains(row.Needs, catalogue.NeedOneCache) {
		both := i.informers.ObjectOrMetadata(row.TypedKinds...)
		c.InformerFactory, c.ObjectOrMetadataInformerFactory = both.Typed(), both
	}
	if len(row.Slim) > 0 {
		slimmed, err := i.informers.Slimmed(row.Slim...)
		if err != nil {
			return c, fmt.Errorf("building %s: %w", name, err)
		}
		c.InformerFactory = slimmed
		return c, nil
	}
	if len(row.FieldSelectors) == 0 {
		return c, nil
	}
	parts := make(map[schema.GroupVersionResource]string, len(row.FieldSelectors))
	for _, part := range row.FieldSelectors {
		parts[part.Resource] = part.Selector
	}
	narrowed, err := i.informers.Narrowed(parts)
	if err != nil {
		return c, fmt.Errorf("building %s: %w", name, err)
	}
	c.InformerFactory = narrowed
	return c, nil
}

// buildOrder sorts controllers by name, and puts last those that need to see what the others have
// asked for.
func buildOrder(controllers []string) []string {
	last := func(name string) int {
		if row, _ := catalogue.Lookup(name); slices.Contains(row.Needs, catalogue.NeedOneCache) {
			return 1
		}
		return 0
	}
	slices.SortFunc(controllers, func(a, b string) int { return cmp.Or(cmp.Compare(last(a), last(b)), cmp.Compare(a, b)) })
	return controllers
}

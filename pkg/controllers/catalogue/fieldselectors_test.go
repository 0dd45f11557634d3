package catalogue

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/quota/v1/install"
)

// coreRecorder records which kinds of the core group are asked for by type.
type coreRecorder struct {
	informers.SharedInformerFactory
	asked map[reflect.Type]bool
}

func (r *coreRecorder) Core() core.Interface { return core.New(r, "", nil) }

func (r *coreRecorder) InformerFor(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	r.asked[reflect.TypeOf(obj)] = true
	return r.SharedInformerFactory.InformerFor(obj, newFunc)
}

// TestPartsAreAskedFor checks that a row has a part of Secrets or ConfigMaps if, and only if, its
// controller reads them. A new controller upstream fails here until somebody has checked what it
// reads of them.
func TestPartsAreAskedFor(t *testing.T) {
	w := newFixture(t)
	types := map[schema.GroupVersionResource]reflect.Type{
		secrets: reflect.TypeFor[*v1.Secret](), configMaps: reflect.TypeFor[*v1.ConfigMap](),
	}
	for _, row := range All() {
		parts := map[schema.GroupVersionResource]string{}
		for _, part := range row.FieldSelectors {
			if _, known := types[part.Resource]; !known || part.Selector == "" || part.Why == "" {
				t.Errorf("%s: part %+v needs a resource that this test knows, a selector and a reason", row.Name, part)
			}
			if parts[part.Resource] != "" {
				t.Errorf("%s: two parts of %v", row.Name, part.Resource)
			}
			parts[part.Resource] = part.Selector
		}
		if slices.Contains(row.Needs, NeedRootClient) {
			if _, ok := parts[secrets]; len(parts) != 1 || !ok {
				t.Errorf("%s: parts %v, want one, of Secrets", row.Name, parts)
			}
			continue // pkg/controllers builds it, from Secrets.
		}
		c := w.context(t)
		recorder := &coreRecorder{SharedInformerFactory: c.InformerFactory, asked: map[reflect.Type]bool{}}
		c.InformerFactory = recorder
		if _, err := w.build(t, c, row.Name); err != nil {
			t.Fatal(err)
		}
		for resource, typ := range types {
			if _, part := parts[resource]; part != recorder.asked[typ] {
				t.Errorf("%s: asks for %s: %t, has a part of them: %t. See what it reads, and name it in the row's FieldSelectors",
					row.Name, resource.Resource, recorder.asked[typ], part)
			}
		}
	}
}

// TestCastsAreUpstreams gives upstream's evaluators and update filter the metadata of each kind.
// Those that need more are the row's TypedKinds.
func TestCastsAreUpstreams(t *testing.T) {
	newFixture(t) // It sets the feature gates.
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	quota, err := install.NewQuotaConfigurationForControllers(func(schema.GroupVersionResource) (cache.GenericLister, error) {
		return nil, fmt.Errorf("not asked")
	}, factory)
	if err != nil {
		t.Fatal(err)
	}
	partial := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "name"}}
	cast := map[schema.GroupResource]bool{}
	for _, evaluator := range quota.Evaluators() {
		if _, err := evaluator.Usage(partial); err != nil {
			cast[evaluator.GroupResource()] = true
		}
	}
	filter := install.DefaultUpdateFilter()
	for gvk := range scheme.Scheme.AllKnownTypes() {
		gvr, _ := meta.UnsafeGuessKindToResource(gvk)
		func() {
			defer func() {
				if recover() != nil {
					cast[gvr.GroupResource()] = true
				}
			}()
			filter(gvr, partial, partial)
		}()
	}
	row, _ := Lookup(names.ResourceQuotaController)
	want := map[schema.GroupResource]bool{}
	for _, resource := range row.TypedKinds {
		want[resource] = true
	}
	if diff := gocmp.Diff(cast, want); diff != "" {
		t.Errorf("upstream casts (-), TypedKinds of the row (+):\n%s", diff)
	}
	if len(cast) == 0 {
		t.Error("upstream casts nothing", slices.Collect(maps.Keys(cast)))
	}
}

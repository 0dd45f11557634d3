package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"

	"github.com/flotilla-kube/flotilla/pkg/informer"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// servedKind is a resource that the API server serves for watching and for which client-go's
// factory has an informer.
type servedKind struct {
	gvr        schema.GroupVersionResource
	gvk        schema.GroupVersionKind
	namespaced bool
}

func servedKinds(t *testing.T, client kubernetes.Interface) []servedKind {
	t.Helper()
	_, lists, err := client.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	stock := informers.NewSharedInformerFactory(client, 0)
	var kinds []servedKind
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range list.APIResources {
			gvr := gv.WithResource(resource.Name)
			if _, err := stock.ForResource(gvr); err == nil && slices.Contains(resource.Verbs, "watch") {
				kinds = append(kinds, servedKind{gvr, gv.WithKind(resource.Kind), resource.Namespaced})
			}
		}
	}
	if len(kinds) < 80 {
		t.Errorf("found %d kinds, fewer than there were in 1.37: %v", len(kinds), kinds)
	}
	return kinds
}

// TestEveryKindIsServed compares the factory's table of kinds, which comes from client-go's
// clientset, with the API server's. Each kind with an informer in client-go must have one here, of
// the right scope, and two shards must partition its objects.
func TestEveryKindIsServed(t *testing.T) {
	client, err := kubernetes.NewForConfig(plane.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	objectMetadata, err := metadata.NewForConfig(plane.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	pool, err := informer.NewPool(informer.PoolConfig{Client: client, Metadata: objectMetadata})
	if err != nil {
		t.Fatal(err)
	}
	ranges, err := shard.EqualRanges(2)
	if err != nil {
		t.Fatal(err)
	}
	first, second := pool.NewFactory(ranges[0], nil), pool.NewFactory(ranges[1], nil)
	t.Cleanup(first.Shutdown)
	t.Cleanup(second.Shutdown)
	kinds := servedKinds(t, client)
	for _, k := range kinds {
		checkInformerFor(t, pool, first, k)
		checkInformerFor(t, pool, second, k)
	}
	first.StartWithContext(context.WithoutCancel(t.Context()))
	second.StartWithContext(context.WithoutCancel(t.Context()))
	for _, k := range kinds {
		eventually(t, func() error {
			want, err := live(t.Context(), objectMetadata, k.gvr)
			if err != nil {
				return err
			}
			return k.compare(t, want, first, second)
		})
	}
}

// checkInformerFor fails unless both ways to the informer return the same one, and it is shared if
// all shards see the same objects.
func checkInformerFor(t *testing.T, pool *informer.Pool, f *informer.Factory, k servedKind) {
	t.Helper()
	i, err := f.ForResource(k.gvr)
	if err != nil {
		t.Fatal(err)
	}
	example, err := scheme.Scheme.New(k.gvk)
	if err != nil {
		t.Fatal(err)
	}
	if i.Informer() != f.InformerFor(example, nil) {
		t.Errorf("ForResource(%v) and InformerFor(%T) are different informers", k.gvr, example)
	}
	if got := slices.Contains(pool.Resources(), k.gvr); got == k.namespaced {
		t.Errorf("informer of %v is shared: %t, but the resource is namespaced: %t", k.gvr, got, k.namespaced)
	}
}

// compare returns an error unless the two factories' informers have all wanted objects: either both
// the same, or each its part.
func (k servedKind) compare(t *testing.T, want content, factories ...*informer.Factory) error {
	union, sum := content{}, 0
	for _, f := range factories {
		i, err := f.ForResource(k.gvr)
		if err != nil {
			t.Fatal(err)
		}
		if !i.Informer().HasSynced() {
			return fmt.Errorf("%v has not been listed yet", k.gvr)
		}
		got := contentOf(i.Informer().GetStore().List())
		if !k.namespaced && k.gvr != namespacesResource {
			if err := want.diff(got); err != nil {
				return fmt.Errorf("%v: %w", k.gvr, err)
			}
		}
		sum += len(got)
		maps.Copy(union, got)
	}
	if k.namespaced && sum != len(union) {
		t.Fatalf("%v: %d objects in two caches are %d different ones", k.gvr, sum, len(union))
	}
	if err := want.diff(union); err != nil {
		return fmt.Errorf("%v: %w", k.gvr, err)
	}
	return nil
}

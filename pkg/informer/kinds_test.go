package informer

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/store"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

func TestNewPoolWantsClients(t *testing.T) {
	if _, err := NewPool(PoolConfig{}); err == nil || !strings.Contains(err.Error(), "Client and Metadata") {
		t.Errorf("got error %v, want one that names what is missing", err)
	}
}

// TestEachKindHasOneInformer checks that every way to ask for a kind returns the same informer.
func TestEachKindHasOneInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newTestPool(t, &apiServer{}, clock.RealClock{}, 0)
		low, _ := halves(t, pool)
		want := low.InformerFor(&v1.ConfigMap{}, nil)
		// The accessor returns another type with the same store.
		if low.Core().V1().ConfigMaps().Informer().GetIndexer() != want.GetIndexer() {
			t.Error("the typed accessor leads to another informer")
		}
		for _, f := range []informerFactory{low, low.ObjectOrMetadata()} {
			if i, err := f.ForResource(configMaps); err != nil || i.Informer() != want {
				t.Errorf("ForResource of %T leads to another informer, error %v", f, err)
			}
		}
		if _, ok := inner(want).(*store.Informer); !ok {
			t.Errorf("informer of a namespaced kind is %T", want)
		}
		if i := low.InformerFor(&v1.Node{}, nil); reflect.TypeOf(inner(i)) != reflect.TypeFor[*view]() {
			t.Errorf("informer of a cluster-scoped kind is %T", i)
		}
		everything := pool.NewFactory(shard.Everything(), nil)
		defer everything.Shutdown()
		if i := everything.InformerFor(&v1.ConfigMap{}, nil); reflect.TypeOf(inner(i)) != reflect.TypeFor[*view]() {
			t.Errorf("informer of a shard that has everything is %T", i)
		}
	})
}

type informerFactory interface {
	ForResource(schema.GroupVersionResource) (informers.GenericInformer, error)
}

func TestUnknownKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		low, _ := halves(t, newTestPool(t, &apiServer{}, clock.RealClock{}, 0))
		if _, err := low.ForResource(berths); err == nil {
			t.Error("got a typed informer of a custom resource")
		}
		defer func() {
			if recover() == nil {
				t.Error("InformerFor took a type that is not of the clientset")
			}
		}()
		low.InformerFor(&metav1.PartialObjectMetadata{}, nil)
	})
}

func TestCustomResourcesByTheirScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		harbours := schema.GroupVersionResource{Group: berths.Group, Version: "v1", Resource: "harbours"}
		lost := schema.GroupVersionResource{Group: berths.Group, Version: "v1", Resource: "lost"}
		pool := newTestPool(t, &apiServer{}, clock.RealClock{}, 0)
		f := pool.NewFactory(shard.Range{End: 1}, func(gvr schema.GroupVersionResource) (bool, error) {
			switch gvr {
			case berths:
				return true, nil
			case harbours:
				return false, nil
			}
			return false, errors.New("gone")
		})
		defer f.Shutdown()
		for _, gvr := range []schema.GroupVersionResource{berths, harbours, lost, nodes} {
			i, err := f.ObjectOrMetadata().ForResource(gvr)
			if err != nil {
				t.Fatal(err)
			}
			if i.Informer() == nil || i.Lister() == nil {
				t.Errorf("no informer or lister of %v", gvr)
			}
		}
		checkShared(t, pool, harbours, nodes)
	})
}

// TestObjectOrMetadata checks that a kind's whole objects are returned if they must be, or are
// cached, and otherwise its metadata, and that the first answer stays.
func TestObjectOrMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
		podMetrics := schema.GroupVersionResource{Group: "metrics.k8s.io", Version: "v1", Resource: "pods"}
		low, _ := halves(t, newTestPool(t, &apiServer{}, clock.RealClock{}, 0))
		low.InformerFor(&v1.ConfigMap{}, nil)
		narrowed(t, low, tokens).Core().V1().Secrets().Informer()
		both := low.ObjectOrMetadata(pods.GroupResource(), berths.GroupResource())
		for range 2 {
			for gvr, want := range map[schema.GroupVersionResource]any{
				pods: &v1.Pod{}, configMaps: &v1.ConfigMap{}, // needed whole, and cached whole anyway
				secrets: &metav1.PartialObjectMetadata{}, nodes: &metav1.PartialObjectMetadata{}, // a part is cached; nothing is cached
				berths: &metav1.PartialObjectMetadata{}, podMetrics: &metav1.PartialObjectMetadata{}, // not built in
			} {
				i, err := both.ForResource(gvr)
				if err != nil {
					t.Fatal(err)
				}
				if got := exampleOf(i.Informer()); reflect.TypeOf(got) != reflect.TypeOf(want) {
					t.Errorf("%v is answered with %T, want %T", gvr, got, want)
				}
				if typed, err := both.Typed().ForResource(gvr); err != nil || typed.Informer() != i.Informer() {
					t.Errorf("%v: the typed factory has another informer, error %v", gvr, err)
				}
			}
			// Another caller comes later.
			low.InformerFor(&v1.Secret{}, nil)
			low.InformerFor(&v1.Node{}, nil)
		}
		if i, err := low.ObjectOrMetadata().ForResource(pods); err != nil || reflect.TypeOf(exampleOf(i.Informer())) != reflect.TypeFor[*v1.Pod]() {
			t.Errorf("pods are not answered with what is cached of them anyway: error %v", err)
		}
	})
}

func exampleOf(i cache.SharedIndexInformer) any {
	i = inner(i)
	if v, ok := i.(*view); ok {
		return v.shared.Example()
	}
	return i.(*store.Informer).Example()
}

func TestWaitForCacheSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		low, _ := halves(t, newTestPool(t, &apiServer{}, clock.RealClock{}, 0))
		there, down := newFakeResource(t), newFakeResource(t)
		down.Down.Store(true)
		typ := reflect.TypeFor[*v1.ConfigMap]()
		low.informer(sharedKey{resource: configMaps}, typ, true, there, &v1.ConfigMap{})
		if !low.HasSynced() {
			t.Error("a factory without running informers waits for something")
		}
		low.StartWithContext(t.Context())
		if result := low.WaitForCacheSyncWithContext(t.Context()); result.Err != nil || !result.Synced[typ] {
			t.Errorf("got %v, want config maps to have synced", result)
		}
		low.reading(nodes, down, &v1.Node{})
		if !low.HasSynced() {
			t.Error("a factory waits for an informer that it has not started")
		}
		low.StartWithContext(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if result := low.WaitForCacheSyncWithContext(ctx); result.Err == nil || low.HasSynced() {
			t.Errorf("got %v, synced %t, while nodes cannot be listed", result, low.HasSynced())
		}
	})
}

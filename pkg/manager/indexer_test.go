package manager

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// TestIndexesOfControllersAreApart indexes one cache by the same name from two controllers.
func TestIndexesOfControllersAreApart(t *testing.T) {
	shared := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	value := func(of string) cache.IndexFunc { return func(any) ([]string, error) { return []string{of}, nil } }
	a, b := namedIndexer{shared, "a"}, namedIndexer{shared, "a-b"}
	for _, n := range []namedIndexer{a, b} {
		// As controller-runtime does: with the index of namespaces, which already exists.
		if err := n.AddIndexers(cache.Indexers{"field": value(n.owner), cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}); err != nil {
			t.Fatal(err)
		}
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	if err := shared.Add(object); err != nil {
		t.Fatal(err)
	}
	for _, n := range []namedIndexer{a, b} {
		if values := n.ListIndexFuncValues("field"); !slices.Equal(values, []string{n.owner}) {
			t.Errorf("the values of %s are %v", n.owner, values)
		}
		found, err := n.ByIndex("field", n.owner)
		keys, keysErr := n.IndexKeys("field", n.owner)
		same, sameErr := n.Index("field", object)
		if len(found) != 1 || len(keys) != 1 || len(same) != 1 || err != nil || keysErr != nil || sameErr != nil {
			t.Errorf("%s finds %d, %d and %d objects (%v, %v, %v), want one each", n.owner, len(found), len(keys), len(same), err, keysErr, sameErr)
		}
		if found, err := n.ByIndex(cache.NamespaceIndex, "shop"); len(found) != 1 || err != nil {
			t.Errorf("%s finds %d objects in the namespace, %v", n.owner, len(found), err)
		}
		if names := slices.Sorted(maps.Keys(n.GetIndexers())); !slices.Equal(names, []string{"field", cache.NamespaceIndex}) {
			t.Errorf("the indexes of %s are %v", n.owner, names)
		}
	}
}

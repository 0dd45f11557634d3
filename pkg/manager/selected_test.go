package manager

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func labelled(name, value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": value}}}
}

// TestSelectionFollowsControllerRuntimesRules uses selectors of one kind, and defaults for the
// others.
func TestSelectionFollowsControllerRuntimesRules(t *testing.T) {
	web, other := labelled("a", "web"), labelled("b", "other")
	set := func(value string) labels.Selector { return labels.SelectorFromSet(labels.Set{"app": value}) }
	secret := corev1.SchemeGroupVersion.WithKind("Secret")
	for _, tc := range []struct {
		name    string
		options cache.Options
		gvk     schema.GroupVersionKind
		want    []bool // of web and other
		all     bool
	}{
		{name: "none", gvk: secret, want: []bool{true, true}, all: true},
		{name: "everything", options: cache.Options{DefaultLabelSelector: labels.Everything()}, gvk: secret, want: []bool{true, true}, all: true},
		{name: "default", options: cache.Options{DefaultLabelSelector: set("web")}, gvk: secret, want: []bool{true, false}},
		{name: "of the kind", options: cache.Options{
			DefaultLabelSelector: set("web"), ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: set("other")}},
		}, gvk: secret, want: []bool{false, true}},
		{name: "of another kind", options: cache.Options{
			ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Label: set("other")}},
		}, gvk: secret, want: []bool{true, true}, all: true},
		{name: "by name, and the default label", options: cache.Options{
			DefaultLabelSelector: set("web"),
			ByObject:             map[client.Object]cache.ByObject{&corev1.Secret{}: {Field: fields.OneTermEqualSelector(nameField, "b")}},
		}, gvk: secret, want: []bool{false, false}},
		{name: "by namespace", options: cache.Options{
			DefaultFieldSelector: fields.OneTermNotEqualSelector(namespaceField, "shop"),
		}, gvk: secret, want: []bool{false, false}},
	} {
		s, err := selectionOf(tc.options, scheme.Scheme, tc.gvk)
		if err != nil {
			t.Fatal(err)
		}
		if got := []bool{s.has(web), s.has(other)}; !slices.Equal(got, tc.want) || s.isAll() != tc.all {
			t.Errorf("%s: selects %v, all: %t; want %v, %t", tc.name, got, s.isAll(), tc.want, tc.all)
		}
		if tc.want[1] != s.has(toolscache.DeletedFinalStateUnknown{Obj: other}) {
			t.Errorf("%s: one that was deleted is selected: %t", tc.name, !tc.want[1])
		}
	}
}

// TestSelectedIndexer checks that every way to read finds the selected objects and no others.
func TestSelectedIndexer(t *testing.T) {
	shared := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
	web, other := labelled("a", "web"), labelled("b", "other")
	for _, o := range []any{web, other} {
		if err := shared.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	i := selectedIndexer{shared, selection{label: labels.SelectorFromSet(labels.Set{"app": "web"})}}
	for what, objs := range map[string]func() ([]any, error){
		"List":    func() ([]any, error) { return i.List(), nil },
		"ByIndex": func() ([]any, error) { return i.ByIndex(toolscache.NamespaceIndex, "shop") },
		"Index":   func() ([]any, error) { return i.Index(toolscache.NamespaceIndex, other) },
	} {
		if got, err := objs(); err != nil || len(got) != 1 || got[0] != any(web) {
			t.Errorf("%s finds %v, %v; want the one that is selected", what, got, err)
		}
	}
	for what, keys := range map[string]func() ([]string, error){
		"ListKeys":  func() ([]string, error) { return i.ListKeys(), nil },
		"IndexKeys": func() ([]string, error) { return i.IndexKeys(toolscache.NamespaceIndex, "shop") },
	} {
		if got, err := keys(); err != nil || !slices.Equal(got, []string{"shop/a"}) {
			t.Errorf("%s finds %v, %v; want the one that is selected", what, got, err)
		}
	}
	for _, o := range []*corev1.Secret{web, other} {
		_, byObject, _ := i.Get(o)
		_, byKey, _ := i.GetByKey("shop/" + o.Name)
		if want := o == web; byObject != want || byKey != want {
			t.Errorf("%s is found: %t and %t, want %t", o.Name, byObject, byKey, want)
		}
	}
}

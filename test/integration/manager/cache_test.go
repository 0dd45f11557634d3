package manager

import (
	"context"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/flotilla-kube/flotilla/pkg/flotilla"
)

// seen records the reconciled namespaces by shard.
type seen struct {
	mu sync.Mutex
	in map[string][]string
}

func (s *seen) note(shard, namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.in == nil {
		s.in = map[string][]string{}
	}
	if !slices.Contains(s.in[shard], namespace) {
		s.in[shard] = append(s.in[shard], namespace)
	}
}

func (s *seen) of(shard string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.in[shard])
}

// reconciles sets up a controller of labelled ConfigMaps that records its calls.
func (s *seen) reconciles(shard *flotilla.Shard, mgr ctrlmanager.Manager) error {
	return builder.ControllerManagedBy(mgr).Named("configmap").For(&corev1.ConfigMap{}).Complete(
		reconcile.Func(func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
			if r.Name == "a" {
				s.note(shard.String(), r.Namespace)
			}
			return reconcile.Result{}, nil
		}))
}

// listNamespaces returns the namespaces in which the cached client finds labelled objects.
func listNamespaces(t *testing.T, c ctrlclient.Reader, list ctrlclient.ObjectList, of func() []metav1.Object) []string {
	t.Helper()
	if err := c.List(t.Context(), list, ctrlclient.HasLabels{label}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range of() {
		names = append(names, o.GetNamespace())
	}
	return names
}

func pointers[T any, P interface {
	*T
	metav1.Object
}](items []T) []metav1.Object {
	var all []metav1.Object
	for i := range items {
		all = append(all, P(&items[i]))
	}
	return all
}

func TestCacheHoldsItsRange(t *testing.T) {
	t.Parallel()
	var managers shards
	var reconciled seen
	f, _ := begin(t, plane.AdminConfig(), func(f *flotilla.Fleet) { f.Namespaced("a", managers.build(reconciled.reconciles)) })
	awaitReady(t, f)
	all := managers.elected(t)
	if len(all) != ranges {
		t.Fatalf("there are %d managers, want %d", len(all), ranges)
	}
	for name, s := range all {
		t.Run(name, func(t *testing.T) {
			want := owned(s.Shard)
			if len(want) == 0 || len(want) == teams {
				t.Fatalf("the shard has %d of %d teams", len(want), teams)
			}
			c := s.mgr.GetClient()
			typed := &corev1.ConfigMapList{}
			requireSame(t, "ConfigMaps", listNamespaces(t, c, typed, func() []metav1.Object { return pointers(typed.Items) }), want)
			// A kind that nobody watches yet: its informer starts here.
			late := &corev1.SecretList{}
			requireSame(t, "Secrets", listNamespaces(t, c, late, func() []metav1.Object { return pointers(late.Items) }), want)
			meta := &metav1.PartialObjectMetadataList{}
			meta.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMapList"})
			requireSame(t, "metadata", listNamespaces(t, c, meta, func() []metav1.Object { return pointers(meta.Items) }), want)
			untyped := &unstructured.UnstructuredList{}
			untyped.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMapList"})
			requireSame(t, "unstructured", listNamespaces(t, s.mgr.GetCache(), untyped, func() []metav1.Object { return pointers(untyped.Items) }), want)

			spaces := &corev1.NamespaceList{}
			if err := c.List(t.Context(), spaces, ctrlclient.HasLabels{label}); err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, space := range spaces.Items {
				names = append(names, space.Name)
			}
			requireSame(t, "Namespaces", names, want)
			var classes schedulingv1.PriorityClassList
			if err := c.List(t.Context(), &classes); err != nil || len(classes.Items) < 2 {
				t.Errorf("there are %d cluster-scoped objects, %v; want all", len(classes.Items), err)
			}
			requireForeignIsRead(t, s)
		})
	}
	// All of each shard's, although the handlers were added before it was owned.
	for name, s := range all {
		requireEventuallySame(t, &reconciled, name, owned(s.Shard))
	}
}

// requireForeignIsRead checks that existing objects outside the range are found, and no others.
func requireForeignIsRead(t *testing.T, s shardOf) {
	t.Helper()
	c, other := s.mgr.GetClient(), foreign(s.Shard)
	var m corev1.ConfigMap
	if err := c.Get(t.Context(), ctrlclient.ObjectKey{Namespace: other, Name: "a"}, &m); err != nil {
		t.Errorf("a ConfigMap outside the range: %v", err)
	}
	if err := c.Get(t.Context(), ctrlclient.ObjectKey{Namespace: other, Name: "none"}, &m); !apierrors.IsNotFound(err) {
		t.Errorf("a missing ConfigMap outside the range: %v", err)
	}
	var space corev1.Namespace
	if err := c.Get(t.Context(), ctrlclient.ObjectKey{Name: other}, &space); err != nil {
		t.Errorf("a Namespace outside the range: %v", err)
	}
	var list corev1.SecretList
	if err := c.List(t.Context(), &list, ctrlclient.InNamespace(other)); err != nil || len(list.Items) != 1 {
		t.Errorf("a list of a namespace outside the range has %d objects, %v; want one", len(list.Items), err)
	}
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	if err := c.Get(t.Context(), ctrlclient.ObjectKey{Namespace: other, Name: "a"}, meta); err != nil || meta.Kind != "ConfigMap" {
		t.Errorf("metadata outside the range: kind %q, %v", meta.Kind, err)
	}
}

// TestHandlersOfMetadataAreToldTheKind has a controller that watches metadata only, whose map
// function depends on the kind.
func TestHandlersOfMetadataAreToldTheKind(t *testing.T) {
	t.Parallel()
	var managers shards
	var reconciled seen
	f, _ := begin(t, plane.AdminConfig(), func(f *flotilla.Fleet) {
		f.Namespaced("a", managers.build(func(s *flotilla.Shard, mgr ctrlmanager.Manager) error {
			byKind := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o ctrlclient.Object) []reconcile.Request {
				if o.GetName() != "a" || o.GetObjectKind().GroupVersionKind().Kind != "Secret" {
					return nil
				}
				return []reconcile.Request{{NamespacedName: ctrlclient.ObjectKeyFromObject(o)}}
			})
			return builder.ControllerManagedBy(mgr).Named("secrets").
				WatchesMetadata(&corev1.Secret{}, byKind).
				Complete(reconcile.Func(func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
					reconciled.note(s.String(), r.Namespace)
					return reconcile.Result{}, nil
				}))
		}))
	})
	awaitReady(t, f)
	for name, s := range managers.get() {
		requireEventuallySame(t, &reconciled, name, owned(s.Shard))
	}
}

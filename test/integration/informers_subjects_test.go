package integration

import (
	"context"
	"fmt"
	"maps"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// subject is a resource that the tests write and compare.
type subject struct {
	gvr  schema.GroupVersionResource
	kind string
	// namespaced is false for cluster-scoped kinds. Every shard sees all objects of those, except
	// of Namespaces.
	namespaced bool
	// custom resources are read as metadata.
	custom bool
	// with are the fields that an object needs besides its metadata.
	with map[string]any
}

var (
	namespacesResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	configMapsResource = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	crdsResource       = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

const customGroup = "test.flotilla.dev"

// subjects are the kinds that the property tests write at random.
var subjects = []subject{
	configMapSubject,
	{gvr: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, kind: "Secret", namespaced: true},
	{gvr: schema.GroupVersionResource{Version: "v1", Resource: "services"}, kind: "Service", namespaced: true,
		with: map[string]any{"spec": map[string]any{"clusterIP": "None"}}},
	{gvr: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, kind: "Deployment", namespaced: true,
		with: map[string]any{"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"app": "a"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": "a"}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}},
			},
		}}},
	// The API server has no watch cache for events.
	{gvr: schema.GroupVersionResource{Version: "v1", Resource: "events"}, kind: "Event", namespaced: true},
	{gvr: schema.GroupVersionResource{Group: customGroup, Version: "v1", Resource: "berths"}, kind: "Berth", namespaced: true, custom: true},
	{gvr: schema.GroupVersionResource{Group: customGroup, Version: "v1", Resource: "harbours"}, kind: "Harbour", custom: true},
	{gvr: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, kind: "Node"},
	{gvr: schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses"}, kind: "PriorityClass",
		with: map[string]any{"value": int64(1)}},
	namespaceSubject,
}

var (
	namespaceSubject = subject{gvr: namespacesResource, kind: "Namespace"}
	configMapSubject = subject{gvr: configMapsResource, kind: "ConfigMap", namespaced: true}
)

func (s subject) isNamespace() bool { return s.gvr == namespacesResource }

// partitioned reports whether each shard has a part of the kind, rather than all of it.
func (s subject) partitioned() bool { return s.namespaced || s.isNamespace() }

// object returns a new object of the kind.
func (s subject) object(name types.NamespacedName) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: maps.Clone(s.with)}
	if object.Object == nil {
		object.Object = map[string]any{}
	}
	object.SetAPIVersion(s.gvr.GroupVersion().String())
	object.SetKind(s.kind)
	object.SetNamespace(name.Namespace)
	object.SetName(name.Name)
	if s.kind == "Event" {
		object.Object["involvedObject"] = map[string]any{"namespace": name.Namespace}
	}
	return object
}

// defineCustomResources defines the custom resources among the subjects until the test ends.
func defineCustomResources(t testing.TB, config *rest.Config) {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	definitions := client.Resource(crdsResource)
	for _, s := range subjects {
		if !s.custom {
			continue
		}
		scope := "Cluster"
		if s.namespaced {
			scope = "Namespaced"
		}
		definition := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": s.gvr.GroupResource().String()},
			"spec": map[string]any{
				"group": s.gvr.Group, "scope": scope,
				"names": map[string]any{"plural": s.gvr.Resource, "kind": s.kind},
				"versions": []any{map[string]any{
					"name": s.gvr.Version, "served": true, "storage": true,
					"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
				}},
			},
		}}
		if _, err := definitions.Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { undefine(t, client, s.gvr) })
	}
	for _, s := range subjects {
		eventually(t, func() error {
			_, err := client.Resource(s.gvr).List(t.Context(), metav1.ListOptions{})
			return err
		})
	}
}

// undefine waits until the resource is gone and no longer served: a definition that comes back
// sooner may meet requests that are answered by the old one.
func undefine(t testing.TB, client dynamic.Interface, gvr schema.GroupVersionResource) {
	ctx := context.WithoutCancel(t.Context())
	definitions, name := client.Resource(crdsResource), gvr.GroupResource().String()
	if err := definitions.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	eventually(t, func() error {
		_, err := definitions.Get(ctx, name, metav1.GetOptions{})
		_, listErr := client.Resource(gvr).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) && apierrors.IsNotFound(listErr) {
			return nil
		}
		return fmt.Errorf("%s is still there, or cannot be read: %v, %v", name, err, listErr)
	})
}

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/flotilla-kube/flotilla/pkg/controllers"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
)

// TestKindThatCannotBeListed has a kind whose conversion webhook does not answer, as when its pods
// are down. A range is prepared and counts as running all the same, so that a member can become
// ready, and take and hand over ranges. The controllers that read the kind catch up once it can be
// listed.
func TestKindThatCannotBeListed(t *testing.T) {
	client, err := dynamic.NewForConfig(plane.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	repair := breakKind(t, client)
	for _, warm := range []bool{true, false} {
		t.Run(fmt.Sprintf("prepared %t", warm), func(t *testing.T) {
			c, _ := newConfig(t)
			process, err := controllers.NewProcess(c, controllers.NewEndpoints())
			if err != nil {
				t.Fatal(err)
			}
			isRunning := make(chan struct{})
			all := specs(t, 2)
			spec := all[slices.IndexFunc(all, func(s controllers.Spec) bool { return s.ID.Ring == catalogue.NamespacesRing })]
			spec.Controllers = []string{names.ResourceQuotaController, names.GarbageCollectorController, names.DeploymentController}
			spec.Running = func() { close(isRunning) }
			r := startAs(t, process, spec, warm)
			waitFor(t, "the range to run", func() bool {
				select {
				case <-isRunning:
					return true
				default:
					return false
				}
			})
			if r.Informers().HasSynced() {
				t.Error("all caches are full, so nothing was tested")
			}
			if !warm {
				repair()
				waitFor(t, "all caches", r.Informers().HasSynced)
			}
		})
	}
}

// breakKind defines a kind that has an object and cannot be listed, and returns a function that
// makes it possible.
func breakKind(t *testing.T, client dynamic.Interface) (repair func()) {
	t.Helper()
	const space, plural = "unlistable", "rafts"
	kind := func(version string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: customGroup, Version: version, Resource: plural}
	}
	version := func(name string, stored bool) map[string]any {
		return map[string]any{
			"name": name, "served": true, "storage": stored,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		}
	}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + customGroup},
		"spec": map[string]any{
			"group": customGroup, "scope": "Namespaced",
			"names":    map[string]any{"plural": plural, "kind": "Raft"},
			"versions": []any{version("v1beta1", true)},
		},
	}}
	definitions := client.Resource(crdsResource)
	if _, err := definitions.Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { undefine(t, definitions, definition.GetName()) })
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": space}}}
	if _, err := client.Resource(v1.SchemeGroupVersion.WithResource("namespaces")).Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	raft := &unstructured.Unstructured{Object: map[string]any{"apiVersion": customGroup + "/v1beta1", "kind": "Raft", "metadata": map[string]any{"name": "one"}}}
	eventually(t, func() error {
		_, err := client.Resource(kind("v1beta1")).Namespace(space).Create(t.Context(), raft, metav1.CreateOptions{})
		return err
	})
	conversion := func(value string) {
		t.Helper()
		patch := fmt.Sprintf(`{"spec":{"conversion":%s}}`, value)
		if _, err := definitions.Patch(context.WithoutCancel(t.Context()), definition.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		now, err := definitions.Get(t.Context(), definition.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := unstructured.SetNestedSlice(now.Object, []any{version("v1", true), version("v1beta1", false)}, "spec", "versions"); err != nil {
			return err
		}
		_, err = definitions.Update(t.Context(), now, metav1.UpdateOptions{})
		return err
	})
	conversion(`{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"service":{"namespace":"default","name":"nobody"}}}}`)
	repaired := false
	repair = func() {
		if !repaired {
			repaired = true
			conversion(`{"strategy":"None","webhook":null}`)
		}
	}
	t.Cleanup(repair)
	eventually(t, func() error {
		if _, err := client.Resource(kind("v1")).List(t.Context(), metav1.ListOptions{}); err == nil || apierrors.IsNotFound(err) {
			return errors.Join(errors.New("it can be listed, or is not there"), err)
		}
		return nil
	})
	return repair
}

package harness

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/flotilla-kube/flotilla/test/controlplane"
)

var definitionsResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// UnreadableKind defines a namespaced kind that cannot be listed, as when the pods of its conversion
// webhook are down: its only object, in namespace default, is stored in another version. repair makes
// it readable. The end of the test does so too, and removes the kind.
func UnreadableKind(t testing.TB, plane *controlplane.ControlPlane, gvr schema.GroupVersionResource, kind string) (repair func()) {
	t.Helper()
	const old = "v1beta1"
	client, err := dynamic.NewForConfig(plane.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	definitions, name := client.Resource(definitionsResource), gvr.GroupResource().String()
	version := func(name string, stored bool) any {
		return map[string]any{
			"name": name, "served": true, "storage": stored,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		}
	}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"group": gvr.Group, "scope": "Namespaced", "names": map[string]any{"plural": gvr.Resource, "kind": kind},
			"versions": []any{version(old, true)},
		},
	}}
	if _, err := definitions.Create(ctx, definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	convert := func(conversion string) {
		t.Helper()
		if _, err := definitions.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"conversion":`+conversion+`}}`), metav1.PatchOptions{}); err != nil {
			t.Errorf("kind %s: conversion: %v", name, err)
		}
	}
	repaired := false
	repair = func() {
		if !repaired {
			repaired = true
			convert(`{"strategy":"None","webhook":null}`)
		}
	}
	t.Cleanup(func() {
		repair()
		if err := definitions.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := Await(ctx, Patience, "kind "+name+" is gone", func(ctx context.Context) error {
			if _, err := definitions.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there, or cannot be read (%v)", err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})

	one := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gvr.Group + "/" + old, "kind": kind, "metadata": map[string]any{"name": "one"},
	}}
	Eventually(t, Patience, "kind "+name+" has an object", func(ctx context.Context) error {
		_, err := client.Resource(gvr.GroupResource().WithVersion(old)).Namespace(metav1.NamespaceDefault).Create(ctx, one, metav1.CreateOptions{})
		return err
	})
	Eventually(t, Patience, "kind "+name+" is stored in another version", func(ctx context.Context) error {
		now, err := definitions.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := unstructured.SetNestedSlice(now.Object, []any{version(gvr.Version, true), version(old, false)}, "spec", "versions"); err != nil {
			return err
		}
		_, err = definitions.Update(ctx, now, metav1.UpdateOptions{})
		return err
	})
	convert(`{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"service":{"namespace":"default","name":"nobody"}}}}`)
	Eventually(t, Patience, "kind "+name+" cannot be listed", func(ctx context.Context) error {
		if _, err := client.Resource(gvr).List(ctx, metav1.ListOptions{}); err == nil || apierrors.IsNotFound(err) {
			return errors.Join(errors.New("it can be listed, or is not there"), err)
		}
		return nil
	})
	return repair
}

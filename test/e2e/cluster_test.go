package e2e

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/jsonpath"

	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

//go:embed testdata/*.yaml
var testdata embed.FS

// cluster is a control plane as a kubectl user sees it.
type cluster struct {
	client    dynamic.Interface
	discovery discovery.DiscoveryInterface
	mapper    *restmapper.DeferredDiscoveryRESTMapper
}

func newCluster(t *testing.T, plane *controlplane.ControlPlane) *cluster {
	t.Helper()
	config := plane.AdminConfig()
	config.WarningHandler = rest.NoWarnings{} // about deprecated APIs, which are tested too
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	server, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{client: client, discovery: server, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(server))}
}

// resource returns the client for a resource such as "pods", in a namespace or, if that is empty,
// in none.
func (c *cluster) resource(t *testing.T, resource, namespace string) dynamic.ResourceInterface {
	t.Helper()
	r, err := c.mapper.ResourceFor(schema.GroupVersionResource{Resource: resource})
	if err != nil {
		t.Fatal(err)
	}
	return c.client.Resource(r).Namespace(namespace)
}

// create creates the objects of a file in order.
func (c *cluster) create(t *testing.T, file string) {
	t.Helper()
	content, err := testdata.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		harness.Eventually(t, harness.Patience, "create "+object.GetKind()+" "+object.GetName(), func(ctx context.Context) error {
			return c.createOne(ctx, object)
		})
	}
}

// createOne also fails for reasons that waiting may fix, such as a missing resource or service
// account.
func (c *cluster) createOne(ctx context.Context, object *unstructured.Unstructured) error {
	client, err := c.clientFor(object.GroupVersionKind(), object.GetNamespace())
	if err != nil {
		return err
	}
	owners := object.GetOwnerReferences()
	for i, owner := range owners {
		if owners[i].UID, err = c.uid(ctx, owner, object.GetNamespace()); err != nil {
			return err
		}
	}
	if len(owners) > 0 {
		object.SetOwnerReferences(owners)
	}
	_, err = client.Create(ctx, object, metav1.CreateOptions{})
	if err == nil || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return err
	}
	return fmt.Errorf("%w: %w", harness.ErrGiveUp, err)
}

func (c *cluster) clientFor(kind schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		c.mapper.Reset()
	}
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return c.client.Resource(mapping.Resource), nil
	}
	return c.client.Resource(mapping.Resource).Namespace(namespace), nil
}

func (c *cluster) uid(ctx context.Context, owner metav1.OwnerReference, namespace string) (types.UID, error) {
	client, err := c.clientFor(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind), namespace)
	if err != nil {
		return "", err
	}
	object, err := client.Get(ctx, owner.Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return object.GetUID(), nil
}

// patch merges JSON into an object, named "name" or "namespace/name".
func (c *cluster) patch(t *testing.T, resource, object, json string, subresources ...string) {
	t.Helper()
	namespace, name := split(object)
	_, err := c.resource(t, resource, namespace).Patch(t.Context(), name, types.MergePatchType, []byte(json), metav1.PatchOptions{}, subresources...)
	if err != nil {
		t.Fatalf("patch %s %s: %v", resource, object, err)
	}
}

func (c *cluster) delete(t *testing.T, resource, object string, policy metav1.DeletionPropagation) {
	t.Helper()
	namespace, name := split(object)
	if err := c.resource(t, resource, namespace).Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		t.Fatalf("delete %s %s: %v", resource, object, err)
	}
}

func split(object string) (namespace, name string) {
	if namespace, name, ok := strings.Cut(object, "/"); ok {
		return namespace, name
	}
	return "", object
}

// expectation is what a field of an object should become. The path is a template as for kubectl's
// -o jsonpath.
type expectation struct {
	resource, object, path, want string
}

// As an expectation's want, gone means that the object should be deleted, and something that the
// field should not be empty.
const (
	gone      = "gone"
	something = "something"
)

// meets returns a condition that holds once all expectations are met.
func (c *cluster) meets(t *testing.T, expectations []expectation) func(context.Context) error {
	return func(ctx context.Context) error {
		var unmet []error
		for _, e := range expectations {
			got, err := c.read(ctx, t, e)
			if err != nil {
				return err
			}
			if got != e.want && (e.want != something || got == "" || got == gone) {
				unmet = append(unmet, fmt.Errorf("%s %s: %s is %q, want %q", e.resource, e.object, e.path, got, e.want))
			}
		}
		return errors.Join(unmet...)
	}
}

func (c *cluster) read(ctx context.Context, t *testing.T, e expectation) (string, error) {
	namespace, name := split(e.object)
	object, err := c.resource(t, e.resource, namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return gone, nil
	}
	if err != nil || e.want == gone {
		return "there", err
	}
	template := jsonpath.New(e.object).AllowMissingKeys(true)
	if err := template.Parse(e.path); err != nil {
		return "", fmt.Errorf("%w: %w", harness.ErrGiveUp, err)
	}
	var text bytes.Buffer
	if err := template.Execute(&text, object.Object); err != nil {
		return "", nil // such as an index that does not exist yet
	}
	return text.String(), nil
}

// unlike are resources that record how a state came about, not what it is.
var unlike = map[string]bool{"events": true, "leases": true, "componentstatuses": true}

// dump returns all objects of all resources except those in unlike.
func (c *cluster) dump(ctx context.Context) ([]unstructured.Unstructured, error) {
	lists, err := c.discovery.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	var all []unstructured.Unstructured
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if unlike[r.Name] || strings.Contains(r.Name, "/") || !strings.Contains(r.Verbs.String(), "list") {
				continue
			}
			objects, err := c.client.Resource(version.WithResource(r.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("listing %s: %w", r.Name, err)
			}
			for _, object := range objects.Items {
				if !ofAPIServer(object) {
					all = append(all, object)
				}
			}
		}
	}
	return all, nil
}

// ofAPIServer reports whether an object belongs to the API server and has the port that it listens
// on.
func ofAPIServer(object unstructured.Unstructured) bool {
	return object.GetNamespace() == metav1.NamespaceDefault && object.GetName() == "kubernetes"
}

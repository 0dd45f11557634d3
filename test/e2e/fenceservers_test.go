package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// extensionServers runs the admission plugin that extension API servers have, with the rights that
// the example of Kubernetes gives them: policies and namespaces, no Leases. It refuses everybody's
// writes, unless the server may read the policy's parameters, or the policy excludes its resources.
// Both are what deploy/fence/README.md offers. The policy is installed, and members are marked.
func extensionServers(t *testing.T, plane *controlplane.ControlPlane) {
	admin := harness.Client(t, plane)
	const policies = "extension-server-policies"
	ctx := t.Context()
	if _, err := admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: policies},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const lacking, reading = "lacking", "reading"
	bind(t, plane, lacking, policies)
	bind(t, plane, reading, policies)
	bind(t, plane, reading, "flotilla-fence-params")

	without := newExtensionServer(t, plane.AdminConfig(), lacking)
	harness.Eventually(t, harness.Patience, "a server that may not read Leases refuses", func(ctx context.Context) error {
		if err := without.create(ctx); err == nil || !strings.Contains(err.Error(), "not yet synced") {
			return fmt.Errorf("create: %w, want it refused because Leases are not yet synced", err)
		}
		return nil
	})
	with := newExtensionServer(t, plane.AdminConfig(), reading)
	harness.Eventually(t, harness.Patience, "a server that may read them accepts", with.create)

	kubectl := exec.CommandContext(ctx, harness.Binary(t, plane, "kubectl"), "--kubeconfig", plane.AdminKubeconfig(), "patch",
		"validatingadmissionpolicy", "flotilla-fence", "--type=merge", "--patch",
		`{"spec": {"matchConstraints": {"excludeResourceRules": [{"apiGroups": ["`+flunders.Group+`"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}]}}}`)
	if out, err := kubectl.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	harness.Eventually(t, harness.Patience, "the same server accepts what the policy excludes", without.create)
}

// flunders is what the extension server stores.
var flunders = schema.GroupVersionKind{Group: "wardle.example.com", Version: "v1", Kind: "Flunder"}

// extensionServer is the part of an extension API server that applies the cluster's policies.
type extensionServer struct{ plugin *validating.Plugin }

// newExtensionServer starts one that reads the cluster as a user.
func newExtensionServer(t *testing.T, config *rest.Config, name string) extensionServer {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Impersonate.UserName = name
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	plugin, err := validating.NewPlugin(nil)
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	plugin.SetExternalKubeClientSet(client)
	plugin.SetDynamicClient(dynamicClient)
	plugin.SetExternalKubeInformerFactory(factory)
	server, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	plugin.SetRESTMapper(restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(server)))
	plugin.SetUnconditionalAuthorizer(authorizerfactory.NewAlwaysAllowAuthorizer())
	plugin.SetDrainedNotification(t.Context().Done())
	if err := plugin.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	factory.StartWithContext(t.Context())
	return extensionServer{plugin}
}

// create asks the plugin whether an ordinary user may create an object.
func (s extensionServer) create(ctx context.Context) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(flunders)
	object.SetName("one")
	resource := flunders.GroupVersion().WithResource("flunders")
	attributes := admission.NewAttributesRecord(object, nil, flunders, "", "one", resource, "", admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "somebody"})
	return s.plugin.Validate(ctx, attributes, admission.NewObjectInterfacesFromScheme(runtime.NewScheme()))
}

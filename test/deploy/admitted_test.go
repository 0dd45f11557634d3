package deploy

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/test/controlplane"
)

const enforce = "pod-security.kubernetes.io/enforce"

// TestAdmitted sends every manifest to the API server.
func TestAdmitted(t *testing.T) {
	c := startCluster(t, controlplane.Options{})
	c.kubectl(t, "", "create", "namespace", hostedNamespace)
	manifests := map[string]string{
		"self-hosted":         kustomize(t, selfHosted),
		"hosted":              kustomize(t, hosted),
		"hosted cluster":      kustomize(t, hostedCluster),
		"chart":               chart(t, system),
		"chart, hosted":       chart(t, hostedNamespace, "--set=mode=hosted"),
		"static pod":          mirror(readFile(t, filepath.Join(root, staticPod)), "cp-0"),
		"fence":               kustomize(t, "deploy/fence"),
		"shadow":              kustomize(t, "deploy/shadow"),
		"base, unchanged":     kustomize(t, "deploy/base"),
		"rights, unchanged":   kustomize(t, "deploy/rbac"),
		"monitoring":          withoutDefinitions(t, kustomize(t, monitoring)),
		"chart, monitoring":   withoutDefinitions(t, chart(t, system, "--set=monitoring.enabled=true")),
		"chart, autoscaling":  chart(t, system, "--set=autoscaling.enabled=true"),
		"chart, another name": withoutDefinitions(t, chart(t, hostedNamespace, "--set=mode=hosted,fullnameOverride=shop,monitoring.enabled=true")),
	}
	for _, name := range slices.Sorted(maps.Keys(manifests)) {
		t.Run(name, func(t *testing.T) {
			out, warnings, err := c.tryKubectl(t, manifests[name], "apply", "--server-side", "--dry-run=server", "-f", "-")
			if err != nil || warnings != "" {
				t.Errorf("%v\n%s%s", err, out, warnings)
			}
			if strings.Count(out, "serverside-applied (server dry run)") == 0 {
				t.Errorf("nothing was applied: %s", out)
			}
		})
	}
	t.Run("restricted pods", func(t *testing.T) { c.requireRestricted(t, manifests) })
}

// mirror returns the mirror pod that a kubelet would create for a static pod.
func mirror(pod, node string) string {
	return strings.NewReplacer(
		"metadata:\n", "metadata:\n  annotations: {kubernetes.io/config.mirror: x}\n", "spec:\n", "spec:\n  nodeName: "+node+"\n",
	).Replace(pod)
}

// withoutDefinitions removes objects whose definitions this API server does not have.
func withoutDefinitions(t *testing.T, manifests string) string {
	t.Helper()
	var rest []string
	for _, document := range strings.Split(manifests, "\n---\n") {
		if !strings.Contains(document, "monitoring.coreos.com/") {
			rest = append(rest, document)
		}
	}
	return strings.Join(rest, "\n---\n")
}

// requireRestricted requires that pods of the templates are admitted under the Pod Security level
// restricted, and that one with capabilities is refused.
func (c *cluster) requireRestricted(t *testing.T, manifests map[string]string) {
	const namespace = "restricted"
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{enforce: "restricted"}}}
	if _, err := c.client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: fleetName}}
	if _, err := c.client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	create := func(spec corev1.PodSpec) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fleetName}, Spec: spec}
		_, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	for _, name := range []string{"self-hosted", "hosted", "chart", "chart, hosted"} {
		spec := into[appsv1.StatefulSet](t, manifests[name], "StatefulSet").Spec.Template.Spec
		if err := create(spec); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		spec.Containers[0].SecurityContext.Capabilities.Drop = nil
		if err := create(spec); !apierrors.IsForbidden(err) {
			t.Errorf("%s with capabilities was not refused: %v", name, err)
		}
	}
}

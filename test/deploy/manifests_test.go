package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	kubeadmscheme "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/scheme"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/controlplane"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/staticpod"
)

const (
	selfHosted      = "deploy/overlays/self-hosted"
	hosted          = "deploy/overlays/hosted"
	hostedCluster   = "deploy/overlays/hosted/cluster"
	monitoring      = "deploy/monitoring"
	hostedNamespace = "flotilla-hosted"
	staticPod       = "deploy/static-pod/flotilla.yaml"
)

// kustomize renders a folder below the root.
func kustomize(t *testing.T, folder string) string {
	t.Helper()
	out, errOut, err := run(t, "", tool(t, "kubectl", "make tools"), "kustomize", folder)
	if err != nil {
		t.Fatalf("kubectl kustomize %s: %v\n%s", folder, err, errOut)
	}
	return out
}

// chart renders the chart.
func chart(t *testing.T, namespace string, flags ...string) string {
	t.Helper()
	args := append([]string{"template", fleetName, "deploy/chart", "--namespace=" + namespace}, flags...)
	out, errOut, err := run(t, "", tool(t, "helm", "hack/build-tools.sh helm"), args...)
	if err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, errOut)
	}
	return out
}

// parse returns the manifests' objects by kind, namespace and name.
func parse(t *testing.T, manifests string) map[string]*unstructured.Unstructured {
	t.Helper()
	objects := map[string]*unstructured.Unstructured{}
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(u); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		if len(u.Object) == 0 {
			continue
		}
		key := fmt.Sprintf("%s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName())
		if objects[key] != nil {
			t.Errorf("%s occurs twice", key)
		}
		objects[key] = u
	}
}

// into decodes the only object of a kind into its type.
func into[T any](t *testing.T, manifests, kind string) *T {
	t.Helper()
	for key, u := range parse(t, manifests) {
		if strings.HasPrefix(key, kind+" ") {
			typed := new(T)
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, typed, true); err != nil {
				t.Fatalf("%s: %v", key, err)
			}
			return typed
		}
	}
	t.Fatalf("there is no %s", kind)
	return nil
}

// imageReference returns the image that all manifests name.
func imageReference(t *testing.T) string {
	t.Helper()
	return into[corev1.Pod](t, readFile(t, filepath.Join(root, staticPod)), "Pod").Spec.Containers[0].Image
}

// TestChartIsTheOverlays compares the chart's objects with the overlays', one by one, without
// helm's own labels.
func TestChartIsTheOverlays(t *testing.T) {
	for _, tc := range []struct {
		name, rendered, overlay string
		atLeast                 int
	}{
		{"self-hosted", chart(t, system), kustomize(t, selfHosted), 5},
		{"hosted", chart(t, hostedNamespace, "--set=mode=hosted"), kustomize(t, hosted), 5},
		{"shadow", chart(t, system, "--set=shadow.enabled=true", "--set=fullnameOverride=flotilla-shadow"), kustomize(t, "deploy/shadow"), 4},
		{"monitoring", chart(t, system, "--set=monitoring.enabled=true"), kustomize(t, selfHosted) + "\n---\n" + kustomize(t, monitoring), 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want, got := parse(t, tc.overlay), parse(t, tc.rendered)
			for key, u := range got {
				labels := u.GetLabels()
				if labels["app.kubernetes.io/managed-by"] != "Helm" || !strings.HasPrefix(labels["helm.sh/chart"], "flotilla-") {
					t.Errorf("%s lacks helm's labels: %v", key, labels)
				}
				withoutStandardLabels(u.Object)
			}
			for _, u := range want {
				withoutStandardLabels(u.Object)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("overlay (-), chart (+):\n%s", diff)
			}
			if len(want) < tc.atLeast {
				t.Errorf("only %d objects, want at least %d", len(want), tc.atLeast)
			}
		})
	}
}

// withoutStandardLabels removes what every object of the chart has and no overlay has: the release
// in selectors, and labels about an object's origin. test/chart checks these.
func withoutStandardLabels(x any) {
	switch x := x.(type) {
	case map[string]any:
		for _, name := range []string{"instance", "version", "component", "part-of", "managed-by"} {
			delete(x, "app.kubernetes.io/"+name)
		}
		delete(x, "helm.sh/chart")
		for _, value := range x {
			withoutStandardLabels(value)
		}
		// The objects of deploy/monitoring are not named after the members.
		if kind := x["kind"]; kind != nil && x["metadata"] != nil {
			if u := (&unstructured.Unstructured{Object: x}); u.GetName() != fleetName || kind == "ServiceMonitor" || kind == "PrometheusRule" {
				unstructured.RemoveNestedField(x, "metadata", "labels", "app.kubernetes.io/name")
			}
			if labels, _, _ := unstructured.NestedMap(x, "metadata", "labels"); len(labels) == 0 {
				unstructured.RemoveNestedField(x, "metadata", "labels")
			}
		}
	case []any:
		for _, value := range x {
			withoutStandardLabels(value)
		}
	}
}

// TestChartFlags replaces some of the chart's flags and adds others.
func TestChartFlags(t *testing.T) {
	values := filepath.Join(t.TempDir(), "values.yaml")
	text := "flags: {profiling: true, kube-api-burst: 1000000, cluster-cidr: 10.0.0.0/8}\nleaderLocks: [none]\nreplicas: 5\n"
	if err := os.WriteFile(values, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	set := into[appsv1.StatefulSet](t, chart(t, system, "--values="+values), "StatefulSet")
	args := set.Spec.Template.Spec.Containers[0].Args
	for _, want := range []string{"--profiling=true", "--kube-api-burst=1000000", "--cluster-cidr=10.0.0.0/8", "--leader-lock=none"} {
		if !slices.Contains(args, want) {
			t.Errorf("no %s in %q", want, args)
		}
	}
	if slices.Contains(args, "--profiling=false") {
		t.Errorf("the flag that was replaced is still in %q", args)
	}
	if *set.Spec.Replicas != 5 {
		t.Errorf("%d replicas, want 5", *set.Spec.Replicas)
	}
}

// kubeadmPod generates the manifest from a configuration with kubeadm's own code and our patch.
func kubeadmPod(t *testing.T, configuration []byte) *corev1.Pod {
	t.Helper()
	// Only the first document counts. Decoding sets kubeadm's defaults.
	first, _, _ := bytes.Cut(configuration, []byte("\n---\n"))
	config := &kubeadm.ClusterConfiguration{}
	if err := runtime.DecodeInto(kubeadmscheme.Codecs.UniversalDecoder(), first, config); err != nil {
		t.Fatal(err)
	}
	specs := controlplane.GetStaticPodSpecs(config, &kubeadm.APIEndpoint{}, nil)
	pod := specs[stockName]
	patched, err := staticpod.PatchStaticPod(&pod, filepath.Join(root, "deploy/static-pod/patches"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return patched
}

// withoutFolders removes the volumes that kubeadm adds only if its machine has such folders.
func withoutFolders(pod *corev1.Pod) *corev1.Pod {
	optional := []string{"etc-ca-certificates", "usr-local-share-ca-certificates", "usr-share-ca-certificates", "etc-pki-ca-trust", "etc-pki-tls-certs", "etc-pki"}
	pod = pod.DeepCopy()
	pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return slices.Contains(optional, v.Name) })
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return slices.Contains(optional, m.Name) })
	return pod
}

// TestStaticPodIsKubeadms compares the static pod with what kubeadm writes.
func TestStaticPodIsKubeadms(t *testing.T) {
	plain := []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.37.1\n")
	want, got := kubeadmPod(t, plain), into[corev1.Pod](t, readFile(t, filepath.Join(root, staticPod)), "Pod")
	if diff := cmp.Diff(withoutFolders(want), withoutFolders(got)); diff != "" {
		t.Errorf("kubeadm (-), deploy/static-pod (+):\n%s", diff)
	}
	if !strings.HasPrefix(want.Spec.Containers[0].Image, "ghcr.io/flotilla-kube/") || bytes.Contains(plain, []byte("flotilla")) {
		t.Errorf("the patch did not set the image, which is %s", want.Spec.Containers[0].Image)
	}
}

// TestReadinessOutlastsATakeover checks that a takeover does not make a member unready, although
// its probe fails for a few seconds. In a rollout, Kubernetes 1.37 deletes at once all old pods of
// a parallel StatefulSet that are not ready.
func TestReadinessOutlastsATakeover(t *testing.T) {
	const least = 45 * time.Second
	for _, overlay := range []string{selfHosted, hosted} {
		spec := into[appsv1.StatefulSet](t, kustomize(t, overlay), "StatefulSet").Spec
		probe := spec.Template.Spec.Containers[0].ReadinessProbe
		if took := time.Duration(probe.PeriodSeconds*probe.FailureThreshold) * time.Second; took < least {
			t.Errorf("%s: a member is not ready after %v of bad answers, want %v at least", overlay, took, least)
		}
	}
}

// TestStartupOutlastsTheWait checks that the kubelet lets a member wait for the API server: it
// compares the probe with what the program's source says.
func TestStartupOutlastsTheWait(t *testing.T) {
	source := readFile(t, filepath.Join(root, "internal/app/lookup.go"))
	found := regexp.MustCompile(`lookupPatience = (\d+) \* time\.Minute`).FindStringSubmatch(source)
	if found == nil {
		t.Fatal("internal/app/lookup.go does not say how long a member waits")
	}
	minutes, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	for _, overlay := range []string{selfHosted, hosted} {
		spec := into[appsv1.StatefulSet](t, kustomize(t, overlay), "StatefulSet").Spec
		probe := spec.Template.Spec.Containers[0].StartupProbe
		if took := time.Duration(probe.PeriodSeconds*probe.FailureThreshold) * time.Second; took <= time.Duration(minutes)*time.Minute {
			t.Errorf("%s: a member is ended %v after its start, while it waits for %d min", overlay, took, minutes)
		}
	}
}

// TestShadowMayOnlyRead checks that deploy/shadow grants only reads and access reviews, and no
// resource on which get acts.
func TestShadowMayOnlyRead(t *testing.T) {
	role := into[rbacv1.ClusterRole](t, kustomize(t, "deploy/shadow"), "ClusterRole")
	if len(role.Rules) < 4 {
		t.Errorf("only %d rules", len(role.Rules))
	}
	asks := []string{"subjectaccessreviews", "selfsubjectaccessreviews", "tokenreviews"}
	for _, rule := range role.Rules {
		for _, verb := range rule.Verbs {
			all := slices.Contains(rule.Resources, "*")
			core := slices.Contains(rule.APIGroups, "") || slices.Contains(rule.APIGroups, "*")
			switch {
			case verb == "list" || verb == "watch":
			case verb == "get" && !(all && core):
				for _, resource := range rule.Resources {
					if _, sub, is := strings.Cut(resource, "/"); is && sub != "scale" && sub != "status" {
						t.Errorf("it may get %s", resource)
					}
				}
			case verb == "create" && !slices.ContainsFunc(rule.Resources, func(r string) bool { return !slices.Contains(asks, r) }):
			default:
				t.Errorf("it may %s %v of %v", verb, rule.Resources, rule.APIGroups)
			}
		}
	}
}

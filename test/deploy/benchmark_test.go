package deploy

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestBenchmark checks the flags of each manifest against the CIS Kubernetes Benchmark, 1.3.1 to
// 1.3.7.
func TestBenchmark(t *testing.T) {
	configuration, err := os.ReadFile(filepath.Join(root, "deploy/static-pod/kubeadm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	ofPods := func(manifests string) []string {
		return into[appsv1.StatefulSet](t, manifests, "StatefulSet").Spec.Template.Spec.Containers[0].Args
	}
	static := func(pod *corev1.Pod) []string { return pod.Spec.Containers[0].Command[1:] }
	for name, tc := range map[string]struct {
		args    []string
		address string
		open    []string // Not followed, as README.md says.
	}{
		"self-hosted":       {ofPods(kustomize(t, selfHosted)), "$(POD_IP)", nil},
		"hosted":            {ofPods(kustomize(t, hosted)), "$(POD_IP)", nil},
		"chart":             {ofPods(chart(t, system)), "$(POD_IP)", nil},
		"hosted chart":      {ofPods(chart(t, hostedNamespace, "--set=mode=hosted")), "$(POD_IP)", nil},
		"kubeadm.yaml":      {static(kubeadmPod(t, configuration)), "127.0.0.1", nil},
		"static pod, plain": {static(into[corev1.Pod](t, readFile(t, filepath.Join(root, staticPod)), "Pod")), "127.0.0.1", []string{"1.3.1", "1.3.2"}},
	} {
		if got := findings(tc.args, tc.address); !slices.Equal(got, tc.open) {
			t.Errorf("%s: %v are not followed by %q; README.md says %v", name, got, tc.args, tc.open)
		}
	}
}

// findings returns the recommendations that the flags do not follow. The benchmark assumes one
// host. address is where the port must be bound, and must not be all addresses.
func findings(args []string, address string) []string {
	flags := map[string]string{}
	for _, arg := range args {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		flags[name] = value
	}
	threshold, err := strconv.Atoi(flags["terminated-pod-gc-threshold"])
	ip := net.ParseIP(flags["bind-address"])
	var open []string
	for i, holds := range []bool{
		err == nil && threshold > 0,
		flags["profiling"] == "false",
		flags["use-service-account-credentials"] == "true",
		flags["service-account-private-key-file"] != "",
		flags["root-ca-file"] != "",
		!strings.Contains(flags["feature-gates"], "RotateKubeletServerCertificate=false"),
		flags["bind-address"] == address && (ip == nil || !ip.IsUnspecified()),
	} {
		if !holds {
			open = append(open, fmt.Sprintf("1.3.%d", i+1))
		}
	}
	return open
}

// TestFindings plants one fault at a time.
func TestFindings(t *testing.T) {
	good := []string{
		"--terminated-pod-gc-threshold=1", "--profiling=false", "--use-service-account-credentials=true",
		"--service-account-private-key-file=/k", "--root-ca-file=/c", "--feature-gates=X=true", "--bind-address=127.0.0.1",
	}
	if got := findings(good, "127.0.0.1"); got != nil {
		t.Errorf("findings of good flags: %v", got)
	}
	for i, bad := range []string{
		"--terminated-pod-gc-threshold=0", "--profiling=true", "--use-service-account-credentials=false", "--x", "--x",
		"--feature-gates=RotateKubeletServerCertificate=false", "--bind-address=0.0.0.0",
	} {
		args := slices.Clone(good)
		args[i] = bad
		if got, want := findings(args, "127.0.0.1"), []string{fmt.Sprintf("1.3.%d", i+1)}; !slices.Equal(got, want) {
			t.Errorf("findings with %s: %v, want %v", bad, got, want)
		}
	}
	if got := findings([]string{"--bind-address=::"}, "::"); !slices.Contains(got, "1.3.7") {
		t.Errorf("all addresses pass: %v", got)
	}
}

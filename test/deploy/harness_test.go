package deploy

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
	"github.com/flotilla-kube/flotilla/test/kubelet"
)

const (
	root      = "../.."
	stockName = "kube-controller-manager"
	fleetName = "flotilla"
	system    = "kube-system"
)

// cluster is a control plane with nodes whose kubelets run processes.
type cluster struct {
	*controlplane.ControlPlane
	client kubernetes.Interface
	image  kubelet.Image
}

// startCluster starts a control plane that is stopped at the end of the test.
func startCluster(t *testing.T, opts controlplane.Options) *cluster {
	t.Helper()
	opts.APIServerArgs = append(opts.APIServerArgs, "--audit-policy-file="+writeAuditPolicy(t))
	plane := harness.StartPlane(t, opts)
	t.Cleanup(func() {
		if t.Failed() {
			showLogs(t, plane)
		}
	})
	return &cluster{ControlPlane: plane, client: harness.Client(t, plane), image: buildImage(t)}
}

// showLogs prints the ends of the members' logs.
func showLogs(t *testing.T, plane *controlplane.ControlPlane) {
	logs, _ := filepath.Glob(filepath.Join(plane.Dir(), "pod-*.log"))
	for _, name := range logs {
		t.Log(harness.Tail(name))
	}
}

// startNode runs a kubelet of processes as a control-plane node until the end of the test, and
// returns its log.
func (c *cluster) startNode(t *testing.T, name, host string) *nodeLog {
	t.Helper()
	config, err := c.ConfigFor("system:node:"+name, "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	log := &nodeLog{out: t.Output()}
	const role = "node-role.kubernetes.io/control-plane"
	node, err := kubelet.New(kubelet.Options{
		Node: name, Config: config, Dir: t.TempDir(), Host: host, Plane: c.ControlPlane, Log: log,
		Labels: map[string]string{role: ""},
		Taints: []corev1.Taint{{Key: role, Effect: corev1.TaintEffectNoSchedule}},
		Image: func(reference string) (kubelet.Image, error) {
			if want := imageReference(t); reference != want {
				return kubelet.Image{}, fmt.Errorf("image %s: this registry has only %s", reference, want)
			}
			return c.image, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return log
}

// kubectl runs kubectl as the administrator and returns its output.
func (c *cluster) kubectl(t *testing.T, input string, args ...string) string {
	t.Helper()
	out, warnings, err := c.tryKubectl(t, input, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s%s", strings.Join(args, " "), err, out, warnings)
	}
	return out
}

func (c *cluster) tryKubectl(t *testing.T, input string, args ...string) (out, warnings string, err error) {
	t.Helper()
	path, err := c.Binary("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	return run(t, input, path, append([]string{"--kubeconfig=" + c.AdminKubeconfig()}, args...)...)
}

// run runs a program in the repository's root.
func run(t *testing.T, input, path string, args ...string) (out, errOut string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir, cmd.Stdin = root, strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// tool returns the path of a binary in bin/.
func tool(t *testing.T, name, target string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, "bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("bin/%s is missing: run '%s' (%v)", name, target, err)
	}
	return path
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// eventually waits until the condition returns nil.
func eventually(t *testing.T, what string, condition harness.Condition) {
	t.Helper()
	t.Logf("%s after %v", what, harness.Eventually(t, harness.Patience, what, condition))
}

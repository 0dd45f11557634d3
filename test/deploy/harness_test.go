package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/kubelet"
)

const (
	root      = "../.."
	stockName = "kube-controller-manager"
	fleetName = "flotilla"
	system    = "kube-system"

	// patience is for what takes seconds on an idle machine, and half a minute at most.
	patience       = 4 * time.Minute
	pollInterval   = 200 * time.Millisecond
	requestTimeout = 20 * time.Second
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
	opts.Log = t.Output()
	opts.APIServerArgs = append(opts.APIServerArgs, "--audit-policy-file="+writeAuditPolicy(t))
	plane, err := controlplane.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			showLogs(t, plane)
		}
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	client, err := kubernetes.NewForConfig(plane.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{ControlPlane: plane, client: client, image: buildImage(t)}
}

// showLogs prints what the members said last.
func showLogs(t *testing.T, plane *controlplane.ControlPlane) {
	logs, _ := filepath.Glob(filepath.Join(plane.Dir(), "pod-*.log"))
	for _, name := range logs {
		text := readFile(t, name)
		t.Logf("end of %s:\n%s", name, text[max(0, len(text)-3000):])
	}
}

// startNode has a kubelet of processes play a control-plane node until the end of the test, and returns what it logs.
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

// kubectl runs kubectl as the administrator and returns what it prints.
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

// errGiveUp ends eventually at once.
var errGiveUp = errors.New("giving up")

// eventually waits until the condition returns nil.
func eventually(t *testing.T, what string, condition func(context.Context) error) {
	t.Helper()
	began, last := time.Now(), errors.New("not tried")
	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, patience, true, func(context.Context) (bool, error) {
		// Its own time, so that its error does not say that the time was over.
		ctx, cancel := context.WithTimeout(t.Context(), requestTimeout)
		defer cancel()
		last = condition(ctx)
		if errors.Is(last, errGiveUp) {
			return false, last
		}
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: not within %v: %v", what, patience, last)
	}
	t.Logf("%s after %v", what, time.Since(began).Round(100*time.Millisecond))
}

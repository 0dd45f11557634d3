package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
	"github.com/flotilla-kube/flotilla/test/kubelet"
)

const nodeName = "control-plane-0"

// standIns are the blocks that this test replaces by an action of its own.
var standIns = []string{"stop-stock", "start-stock"}

// fixture is what the reader of the handbook has before the first command.
type fixture struct {
	*controlplane.ControlPlane
	client kubernetes.Interface
	bin    string
	stock  *harness.Manager
}

// newFixture starts a cluster with a stock leader. It is stopped at the end of the test.
func newFixture(t *testing.T, log io.Writer) *fixture {
	t.Helper()
	if err := kubelet.Supported(); err != nil {
		t.Fatal(err)
	}
	plane := harness.StartPlane(t, controlplane.Options{Scheduler: true, Nodes: 3, ShardedListAndWatch: true, AuditObjects: true, Dir: *keep})
	w := &fixture{ControlPlane: plane, bin: t.TempDir(), client: harness.Client(t, plane)}
	w.linkBinaries(t)
	if err := w.startStock(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.startNode(t, log)
	harness.Eventually(t, harness.Patience, "the stock controller manager leads", func(ctx context.Context) error {
		_, err := w.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, harness.Stock, metav1.GetOptions{})
		return err
	})
	return w
}

// linkBinaries makes a folder with the commands that a reader has.
func (w *fixture) linkBinaries(t *testing.T) {
	t.Helper()
	commands := []string{"kubectl", "flotilla"}
	if *until == 0 {
		commands = append(commands, "helm")
	}
	for _, name := range commands {
		path, err := w.Binary(name)
		if err != nil {
			t.Fatalf("%v (flotilla: 'make build')", err)
		}
		names := []string{name}
		if name == "flotilla" {
			names = append(names, "kubectl-flotilla")
		}
		for _, name := range names {
			if err := os.Symlink(path, filepath.Join(w.bin, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// startNode starts the control-plane node, whose pods are processes.
func (w *fixture) startNode(t *testing.T, log io.Writer) {
	t.Helper()
	binary, err := w.Binary("flotilla")
	if err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(t.TempDir(), "image")
	if out, err := exec.CommandContext(t.Context(), filepath.Join(root, "deploy/image/rootfs.sh"), binary, image).CombinedOutput(); err != nil {
		t.Fatalf("rootfs.sh: %v\n%s", err, out)
	}
	config, err := w.ConfigFor("system:node:"+nodeName, "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	const role = "node-role.kubernetes.io/control-plane"
	node, err := kubelet.New(kubelet.Options{
		Node: nodeName, Labels: map[string]string{role: ""}, Taints: []corev1.Taint{{Key: role, Effect: corev1.TaintEffectNoSchedule}},
		Config: config, Dir: podDir(t), Plane: w.ControlPlane, Log: log,
		Image: func(reference string) (kubelet.Image, error) {
			if !strings.Contains(reference, "/flotilla:") {
				return kubelet.Image{}, fmt.Errorf("image %q: only flotilla exists", reference)
			}
			return kubelet.Image{Root: image, Entrypoint: []string{"/usr/local/bin/flotilla"}}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := node.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	harness.Eventually(t, harness.Patience, "the node registers", func(ctx context.Context) error {
		_, err := w.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		return err
	})
}

// podDir returns a short path that other users may enter: pods run as users of their own.
func podDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "flotilla-docs-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (w *fixture) startStock(context.Context) error {
	var err error
	w.stock, err = harness.Start(w.ControlPlane, harness.Spec{Name: harness.Stock, Binary: harness.Stock})
	return err
}

// standIn does what the pages tell their reader to do on a node.
func (w *fixture) standIn(ctx context.Context) func(name string) error {
	return func(name string) error {
		switch name {
		case "stop-stock":
			return w.stock.Stop(ctx)
		case "start-stock":
			return w.startStock(ctx)
		}
		return errors.New("no stand-in has this name")
	}
}

// copyTree copies the working tree without build output and git's files.
func copyTree(t *testing.T) string {
	t.Helper()
	to := t.TempDir()
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		switch {
		case rel == ".git" && !entry.IsDir():
			return nil // A linked worktree has .git as a file.
		case rel == "bin" || rel == ".git" || rel == "_output":
			return fs.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		case !entry.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // It was a temporary file.
		}
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), content, 0o755) // Some files are scripts.
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func contextWithin(t *testing.T, within time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(t.Context()), within)
}

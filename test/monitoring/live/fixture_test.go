package live

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
	"github.com/flotilla-kube/flotilla/test/monitoring"
)

var factor = flag.Int("factor", 10, "divide all durations of rules and scrapes by this number")

const (
	// reader is the ServiceAccount, the Secret with its token, and the role in deploy/monitoring.
	reader = "flotilla-metrics-reader"
	// leaderLock is the stock leader's Lease.
	leaderLock = "kube-controller-manager"
)

// names are the members. The last one goes through the proxy.
var names = []string{"flotilla-0", "flotilla-1", "flotilla-2"}

// fixture is a control plane with a fleet, and a Prometheus that scrapes it.
type fixture struct {
	root    string
	plane   *controlplane.ControlPlane
	client  kubernetes.Interface
	members map[string]*harness.Manager
	// started are all members that were started. They outlive the subtest that started them.
	started []*harness.Manager
	ports   map[string]int
	// binaries holds the binaries of members that do not run bin/flotilla.
	binaries map[string]string
	proxy    *proxy
	prom     *prometheus
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	root, err := monitoring.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"prometheus", "promexpr", "kubectl", "flotilla"} {
		if _, err := os.Stat(filepath.Join(root, "bin", name)); err != nil {
			t.Fatalf("bin/%s is missing: run 'make tools build' and 'hack/build-tools.sh prometheus promexpr'", name)
		}
	}
	plane := harness.StartPlane(t, controlplane.Options{Nodes: 2, Scheduler: true, ShardedListAndWatch: true, AuditObjects: true, KeepDir: os.Getenv("FLOTILLA_KEEP") != ""})
	w := &fixture{root: root, plane: plane, client: harness.Client(t, plane), members: map[string]*harness.Manager{}, ports: map[string]int{}, binaries: map[string]string{}}
	w.proxy = startProxy(t, plane)
	t.Cleanup(func() {
		for _, m := range w.started {
			m.Finish(t)
		}
	})
	for _, name := range names {
		w.port(t, name)
	}
	return w
}

// port returns the port of a member's name, whichever process uses it.
func (w *fixture) port(t *testing.T, name string) int {
	t.Helper()
	if w.ports[name] == 0 {
		port, err := controlplane.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		w.ports[name] = port
	}
	return w.ports[name]
}

// start starts a member with the default timings of Leases. The plan stays as it is.
func (w *fixture) start(t *testing.T, name string, flags ...string) {
	t.Helper()
	spec := harness.Member(name,
		// Scrapes must not depend on the API server, which authenticates the reader.
		"--authentication-token-webhook-cache-ttl=1h", "--authorization-webhook-cache-authorized-ttl=1h")
	spec.Port, spec.Binary = w.port(t, name), w.binaries[name]
	if name == names[2] {
		spec.Flags = append(spec.Flags, "--kubeconfig="+w.proxy.kubeconfig)
	}
	spec.Flags = append(spec.Flags, flags...)
	m, err := harness.Start(w.plane, spec)
	if err != nil {
		t.Fatal(err)
	}
	w.members[name], w.started = m, append(w.started, m)
}

func (w *fixture) startAll(t *testing.T, flags ...string) {
	t.Helper()
	for _, name := range names {
		w.start(t, name, flags...)
	}
	w.settle(t)
}

// settle waits until every member runs what it should.
func (w *fixture) settle(t *testing.T) {
	t.Helper()
	harness.Eventually(t, harness.Patience, "all members run what they should", func(ctx context.Context) error {
		for _, m := range w.members {
			if err := m.Complete(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// stop ends a member in good order.
func (w *fixture) stop(t *testing.T, name string) {
	t.Helper()
	m := w.members[name]
	delete(w.members, name)
	m.MustStop(t)
}

func (w *fixture) stopAll(t *testing.T) {
	t.Helper()
	var stopping sync.WaitGroup
	for _, m := range w.members {
		// All at once: otherwise the first one's shards would move to the second.
		stopping.Go(func() { m.MustStop(t) })
	}
	stopping.Wait()
	clear(w.members)
}

// command runs a binary of bin/ as an administrator and returns its output.
func (w *fixture) command(t *testing.T, stdin []byte, name string, args ...string) []byte {
	t.Helper()
	out, err := w.try(t.Context(), stdin, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// try is command for one that may fail.
func (w *fixture) try(ctx context.Context, stdin []byte, name string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, filepath.Join(w.root, "bin", name), args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+w.plane.AdminKubeconfig())
	var stdout, stderr bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.Bytes(), nil
}

// install applies deploy/monitoring and returns the reader's token and the ServiceMonitor. It
// leaves out objects that only clusters with the Prometheus operator know.
func (w *fixture) install(t *testing.T) (token string, monitor serviceMonitor) {
	t.Helper()
	var known [][]byte
	for _, document := range bytes.Split(w.command(t, nil, "kubectl", "kustomize", filepath.Join(w.root, "deploy/monitoring")), []byte("\n---\n")) {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatal(err)
		}
		switch {
		case kind.Kind == "ServiceMonitor":
			if err := yaml.Unmarshal(document, &monitor); err != nil {
				t.Fatal(err)
			}
		case !strings.HasPrefix(kind.APIVersion, "monitoring.coreos.com/"):
			known = append(known, document)
		}
	}
	w.command(t, bytes.Join(known, []byte("\n---\n")), "kubectl", "apply", "--server-side", "-f", "-")
	harness.Eventually(t, harness.Patience, "the reader has a token", func(ctx context.Context) error {
		secret, err := w.client.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, reader, metav1.GetOptions{})
		if err == nil && len(secret.Data["token"]) == 0 {
			err = errors.New("not yet")
		}
		if err == nil {
			token = string(secret.Data["token"])
		}
		return err
	})
	return token, monitor
}

// work creates namespaces with a Deployment each, so that controllers have something to do.
func (w *fixture) work(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		namespace := fmt.Sprintf("work-%d", i)
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		if _, err := w.client.CoreV1().Namespaces().Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		labels := map[string]string{"app": "web"}
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "web", Image: "web"}},
			}},
		}}
		if _, err := w.client.AppsV1().Deployments(namespace).Create(t.Context(), deployment, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// leases returns the Leases of shards whose names begin with a prefix, sorted.
func (w *fixture) leases(t *testing.T, prefix string) []string {
	t.Helper()
	list, err := w.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, lease := range list.Items {
		if strings.HasPrefix(lease.Name, prefix) {
			found = append(found, lease.Name)
		}
	}
	slices.Sort(found)
	return found
}

package examples

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	namespaces = 40
	// takeover limits the takeover of a killed member's shards: the lease duration, plus time for a
	// busy machine.
	takeover = 15*time.Second + harness.Patience
)

// example is one of the programs. Each serves a resource with one text, and creates a ConfigMap of
// the same name for each object.
type example struct {
	// name is the name of its directory, fleet that of the fleet, of its namespace and of its
	// account.
	name, fleet string
	resource    schema.GroupVersionResource
	kind        string
	// html returns the ConfigMap's content for a text.
	html func(text string) string
	// flags returns flags to serve its probes at an address.
	flags func(address string) []string
	// warm are parts of the log line that says that a shard came with warm caches.
	warm []string
}

var clientGo = example{
	name: "client-go", fleet: "pages", kind: "Page",
	resource: schema.GroupVersionResource{Group: "example.flotilla.dev", Version: "v1", Resource: "pages"},
	html:     func(text string) string { return "<p>" + text + "</p>" },
	flags:    func(address string) []string { return []string{"--listen=" + address} },
	warm:     []string{`"Acquired shard"`, `how="handoff"`, `caches="warm"`},
}

var controllerRuntime = example{
	name: "controller-runtime", fleet: "websites", kind: "Website",
	resource: schema.GroupVersionResource{Group: "web.example.com", Version: "v1", Resource: "websites"},
	html:     func(text string) string { return "<h1>" + text + "</h1>" },
	flags: func(address string) []string {
		return []string{"--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=" + address}
	},
	warm: []string{`"msg":"Acquired shard"`, `"how":"handoff"`, `"caches":"warm"`},
}

func TestClientGo(t *testing.T) { t.Parallel(); clientGo.run(t) }

func TestControllerRuntime(t *testing.T) { t.Parallel(); controllerRuntime.run(t) }

// run kills a member of the example's fleet under load.
func (e example) run(t *testing.T) {
	binary := e.build(t)
	plane := harness.StartPlane(t, controlplane.Options{AuditObjects: true})
	client := harness.Client(t, plane)
	e.apply(t, plane)
	kubeconfig := e.kubeconfig(t, plane, client)
	objects, err := dynamic.NewForConfig(plane.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	members := map[string]*controlplane.Process{}
	for i := range 3 {
		name := fmt.Sprintf("%s-%d", e.fleet, i)
		members[name] = e.start(t, plane, binary, kubeconfig, name)
	}
	e.create(t, client, objects)
	e.requireDone(t, client, "first", harness.Patience)

	e.requireShards(t, client, slices.Collect(maps.Keys(members)))
	e.requireStatus(t, plane, slices.Collect(maps.Keys(members)))
	killed := members[e.fleet+"-1"]
	e.requireWarm(t, killed)
	if err := killed.Kill(); err != nil {
		t.Fatal(err)
	}
	delete(members, e.fleet+"-1")
	e.change(t, objects, "second")
	e.requireDone(t, client, "second", takeover)
	for name, member := range members {
		if err := member.Stop(t.Context()); err != nil {
			t.Errorf("%s: %v, see %s", name, err, harness.Tail(member.LogPath()))
		} else if err := member.Wait(); err != nil {
			t.Errorf("%s ended with %v, see %s", name, err, harness.Tail(member.LogPath()))
		}
	}
	e.judge(t, plane)
}

// build builds the program in a copy outside of this repository, and checks that neither its
// packages nor its go.sum have k8s.io/kubernetes.
func (e example) build(t *testing.T) (binary string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "examples", e.name))); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), "go", args...)
		command.Dir, command.Env = dir, append(os.Environ(), "GOWORK=off")
		var complaints bytes.Buffer
		command.Stderr = &complaints
		out, err := command.Output()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, complaints.String())
		}
		return string(out)
	}
	run("mod", "edit", "-replace", "github.com/flotilla-kube/flotilla="+root)
	binary = filepath.Join(dir, e.fleet)
	run("build", "-trimpath", "-o", binary, ".")
	for _, name := range strings.Fields(run("list", "-deps", ".")) {
		if name == "k8s.io/kubernetes" || strings.HasPrefix(name, "k8s.io/kubernetes/") {
			t.Errorf("the program is built with %s", name)
		}
	}
	sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(sums), "k8s.io/kubernetes ") {
		t.Error("the go.sum of the program has k8s.io/kubernetes")
	}
	return binary
}

// apply applies the example's manifests. Its StatefulSet stays without pods.
func (e example) apply(t *testing.T, plane *controlplane.ControlPlane) {
	t.Helper()
	for _, name := range []string{"crd.yaml", "deploy.yaml"} {
		command := exec.CommandContext(t.Context(), harness.Binary(t, plane, "kubectl"), "--kubeconfig", plane.AdminKubeconfig(), "apply", "-f",
			filepath.Join("../../examples", e.name, name))
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("kubectl apply: %v\n%s", err, out)
		}
	}
}

// kubeconfig writes one for the example's own account.
func (e example) kubeconfig(t *testing.T, plane *controlplane.ControlPlane, client kubernetes.Interface) string {
	t.Helper()
	token, err := client.CoreV1().ServiceAccounts(e.fleet).CreateToken(t.Context(), e.fleet, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(plane.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.ClientCertificate, user.ClientCertificateData, user.ClientKey, user.ClientKeyData = "", nil, "", nil
		user.Token = token.Status.Token
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// start starts a member, and waits until it is ready.
func (e example) start(t *testing.T, plane *controlplane.ControlPlane, binary, kubeconfig, name string) *controlplane.Process {
	t.Helper()
	port, err := controlplane.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	listen := fmt.Sprintf("127.0.0.1:%d", port)
	process, err := plane.StartProcess(name, binary, append(e.flags(listen), "--kubeconfig="+kubeconfig, "--namespace="+e.fleet, "--member="+name))
	if err != nil {
		t.Fatal(err)
	}
	member := harness.Attach(process, "http://"+listen, http.DefaultClient)
	harness.Eventually(t, takeover, name+" is ready", member.Ready)
	return process
}

// requireShards waits until each of the members holds a shard.
func (e example) requireShards(t *testing.T, client kubernetes.Interface, members []string) {
	t.Helper()
	harness.Eventually(t, takeover, "each member holds a shard", func(ctx context.Context) error {
		leases, err := client.CoordinationV1().Leases(e.fleet).List(ctx, metav1.ListOptions{LabelSelector: leaseapi.ShardLabel})
		if err != nil {
			return err
		}
		for _, name := range members {
			if !slices.ContainsFunc(leases.Items, func(l coordinationv1.Lease) bool {
				return leaserecord.MemberOf(ptr.Deref(l.Spec.HolderIdentity, "")) == name
			}) {
				return fmt.Errorf("%s holds none of %d", name, len(leases.Items))
			}
		}
		return nil
	})
}

// requireWarm requires that shards handed to a member came with caches that had seen the last
// owner's writes.
func (e example) requireWarm(t *testing.T, member *controlplane.Process) {
	t.Helper()
	log, err := os.ReadFile(member.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	if !harness.HasLine(string(log), e.warm...) {
		t.Errorf("no shard was handed to %s with warm caches, see %s", member.Name(), harness.Tail(member.LogPath()))
	}
}

// requireStatus waits until this project's command finds nothing wrong with the fleet.
func (e example) requireStatus(t *testing.T, plane *controlplane.ControlPlane, members []string) {
	t.Helper()
	harness.Eventually(t, harness.Patience, "flotilla status finds nothing wrong", func(ctx context.Context) error {
		command := exec.CommandContext(ctx, harness.Binary(t, plane, harness.Fleet), "status",
			"--kubeconfig", plane.AdminKubeconfig(), "--fleet-name", e.fleet, "-n", e.fleet)
		out, err := command.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w:\n%s", err, out)
		}
		for _, name := range members {
			if !strings.Contains(string(out), name) {
				return fmt.Errorf("it does not name %s:\n%s", name, out)
			}
		}
		return nil
	})
}

// namespace varies early, because names that differ only in their last letters are close together
// in the keyspace, and so in one range until the planner has cut it.
func namespace(i int) string { return fmt.Sprintf("%02d-the-team", i) }

// create creates an object in each namespace.
func (e example) create(t *testing.T, client kubernetes.Interface, objects dynamic.Interface) {
	t.Helper()
	err := harness.InParallel(namespaces, func(i int) error {
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace(i)}}
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), space, metav1.CreateOptions{}); err != nil {
			return err
		}
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": e.resource.GroupVersion().String(), "kind": e.kind,
			"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"text": "first"},
		}}
		_, err := objects.Resource(e.resource).Namespace(namespace(i)).Create(t.Context(), object, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// change gives each object another text.
func (e example) change(t *testing.T, objects dynamic.Interface, text string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"text": text}})
	if err != nil {
		t.Fatal(err)
	}
	err = harness.InParallel(namespaces, func(i int) error {
		_, err := objects.Resource(e.resource).Namespace(namespace(i)).Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// requireDone waits until each ConfigMap is what it should be.
func (e example) requireDone(t *testing.T, client kubernetes.Interface, text string, within time.Duration) {
	t.Helper()
	took := harness.Eventually(t, within, "every ConfigMap has the text "+text, func(ctx context.Context) error {
		done := map[string]bool{}
		maps, err := client.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, m := range maps.Items {
			done[m.Namespace] = done[m.Namespace] || m.Name == "a" && m.Data["index.html"] == e.html(text)
		}
		for i := range namespaces {
			if !done[namespace(i)] {
				return fmt.Errorf("the one in %s does not", namespace(i))
			}
		}
		return nil
	})
	t.Logf("%d objects done after %v", namespaces, took)
}

// judge checks in the audit log that each write came from the owner of its namespace.
func (e example) judge(t *testing.T, plane *controlplane.ControlPlane) {
	t.Helper()
	report := harness.Judge(t, plane, audit.Options{Fleet: e.fleet, Namespace: e.fleet})
	var all []string
	for i := range namespaces {
		all = append(all, namespace(i))
	}
	if none := report.Unwritten(all); len(none) > 0 {
		t.Errorf("no member wrote in %v", none)
	}
	_, expired := report.Gaps()
	if report.ByVersion == 0 {
		t.Error("no write was compared with its Lease by the version of its object")
	}
	if writes := report.ByVersion + report.ByTime; writes < 2*namespaces || len(expired) == 0 {
		t.Errorf("judged %d writes and %d takeovers, want %d or more, and the killed member's", writes, len(expired), 2*namespaces)
	}
	t.Logf("%d writes, each by the owner of its namespace; %d shards taken over, the last %v after the last renewal",
		report.ByVersion+report.ByTime, len(expired), audit.Percentile(expired, 100))
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// TestBadInputIsRefused runs the binary with flags that cannot work: one that does not parse, one
// that is invalid, and one that only the last check refuses. The process exits by itself, without
// an API server, after a line that names the flag and the value. Tests of internal/app cover the
// other flags in process.
func TestBadInputIsRefused(t *testing.T) {
	t.Parallel()
	flotilla, err := filepath.Abs("../../bin/flotilla")
	if err != nil {
		t.Fatal(err)
	}
	nowhere := clientcmdapi.NewConfig()
	nowhere.Clusters["nowhere"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	nowhere.Contexts["nowhere"] = &clientcmdapi.Context{Cluster: "nowhere"}
	nowhere.CurrentContext = "nowhere"
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*nowhere, kubeconfig); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		flag string
		// want lists what one line of the output must contain. Quotes are escaped there.
		want []string
	}{
		{"unknown flag", "--sharts=3", []string{"unknown flag: --sharts"}},
		{"no shards", "--shards=0", []string{"command failed", "--shards 0: must be from 1 to"}},
		{"not covered", "--leader-lock=kcm-jobs=job-controller", []string{"command failed", "--controllers enables", "deployment-controller", "no --leader-lock covers"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
			defer cancel()
			command := exec.CommandContext(ctx, flotilla, "--kubeconfig="+kubeconfig, "--secure-port=0", "--member-name=m", test.flag)
			output, err := command.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() < 1 {
				t.Errorf("it ended with %v, want a status above 0", err)
			}
			if !harness.HasLine(string(output), test.want...) {
				t.Errorf("no line of the output has %q:\n%s", test.want, output)
			}
		})
	}
}

// TestAPIServerAbsent starts members while the API server is away: they wait for it and say so, one
// before it looks up how requests are authenticated. Stock makes the same look-up, and ends.
func TestAPIServerAbsent(t *testing.T) {
	t.Parallel()
	plane := sharedPlane(t)
	port, err := controlplane.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	good, err := plane.Kubeconfig("system:kube-controller-manager")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := harness.Redirect(good, kubeconfig, "https://"+address); err != nil {
		t.Fatal(err)
	}
	start := func(spec harness.Spec) *harness.Manager {
		spec.Kubeconfig = kubeconfig
		return harness.Run(t, plane, spec)
	}
	// A token is authenticated without a look-up.
	knows := start(memberOf("early", "knows", append([]string{"--authentication-skip-lookup"}, quick...)...))
	asks := start(memberOf("early", "asks", quick...))
	stock := start(harness.Spec{Name: "stock", Binary: harness.Stock})

	harness.Eventually(t, harness.Patience, "what it waits for", knows.Logs("Waiting to list and watch Leases", address, "connection refused"))
	harness.Eventually(t, harness.Patience, "not ready", knows.Answers("/readyz", http.StatusInternalServerError))
	harness.Eventually(t, harness.Patience, "but alive", knows.Answers("/livez", http.StatusOK))
	harness.Eventually(t, harness.Patience, "what it waits for", asks.Logs("Waiting for the API server, to look up", address, "connection refused"))
	if code := stock.MustExit(t, harness.Patience); code == 0 {
		t.Error("stock ended with status 0")
	}
	if !harness.HasLine(stock.MustLog(t), address, "connection refused") {
		t.Errorf("the log of stock does not say what cannot be reached, %s:\n%s", address, stock.MustLog(t))
	}

	way, err := harness.NewProxyAt(address, plane, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { way.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	for _, m := range []*harness.Manager{knows, asks} {
		harness.Eventually(t, harness.Patience, m.Name()+" is ready once the API server is there", m.Ready)
	}
	for _, m := range []*harness.Manager{knows, asks} {
		if err := m.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestLeaseNamespaceMissing checks that a member waits for the namespace of its Leases and says so.
// The member has its own identity, because it needs Leases where the stock controller manager may
// not have them.
func TestLeaseNamespaceMissing(t *testing.T) {
	t.Parallel()
	plane := sharedPlane(t)
	client := harness.Client(t, plane)
	kubeconfig, err := plane.Kubeconfig("early")
	if err != nil {
		t.Fatal(err)
	}
	bind(t, plane, "early", "system:kube-controller-manager")
	allowLeases(t, plane, "fleet-leases", "early")
	m := harness.Run(t, plane, harness.Member("early", append([]string{"--kubeconfig=" + kubeconfig, "--leader-elect-resource-namespace=fleet-leases"}, quick...)...))
	harness.Eventually(t, harness.Patience, "the log says that the namespace is missing", m.Logs("Request for the Lease failed", `namespaces \"fleet-leases\" not found`))
	harness.Eventually(t, harness.Patience, "not ready", m.Answers("/readyz", http.StatusInternalServerError))
	harness.Eventually(t, harness.Patience, "the reason", m.Says("/readyz/fleet", "has not joined", `namespaces "fleet-leases" not found`))
	harness.Eventually(t, harness.Patience, "but alive", m.Answers("/livez", http.StatusOK))

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fleet-leases"}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	took := harness.Eventually(t, harness.Patience, "ready once the namespace is there", m.Ready)
	t.Logf("ready %v after the namespace was created", took)
}

// TestNoPermissionOnLeases checks that a member that cannot read Leases waits and says so, and that
// one that cannot keep its own Lease exits with the reason.
func TestNoPermissionOnLeases(t *testing.T) {
	t.Parallel()
	plane := sharedPlane(t)
	nobody, err := plane.Kubeconfig("nobody")
	if err != nil {
		t.Fatal(err)
	}
	m := harness.Run(t, plane, memberOf("nobodies", "nobody", append([]string{"--kubeconfig=" + nobody}, quick...)...))
	harness.Eventually(t, harness.Patience, "the log names what is forbidden", m.Logs("Waiting to list and watch Leases", "cannot list resource", "leases"))
	harness.Eventually(t, harness.Patience, "not ready", m.Answers("/readyz", http.StatusInternalServerError))
	harness.Eventually(t, harness.Patience, "the reason", m.Says("/readyz/fleet", "has not joined", "cannot list resource"))
	allowLeases(t, plane, "anywhere", "nobody")
	// The user may write Leases and nothing else.
	took := harness.Eventually(t, harness.Patience, "Leases are taken once it is allowed", m.Logs("Could not start the shard's work", "nobodies-namespaces-"))
	t.Logf("the first shard was acquired %v after Leases were allowed", took)

	// Upstream's roles allow creating Leases everywhere, and updating them only in kube-system.
	m = harness.Run(t, plane, harness.Member("stranger", append([]string{"--leader-elect-resource-namespace=default"}, quick...)...))
	if code := m.MustExit(t, harness.Patience); code == 0 {
		t.Error("a member that cannot keep its Lease ended with status 0")
	}
	if !harness.HasLine(m.MustLog(t), "command failed", "membership lost", "flotilla-member-stranger", "is forbidden") {
		t.Errorf("the log does not say why:\n%s", m.MustLog(t))
	}
}

// allowLeases grants a user, in all namespaces, the controller manager's rights in kube-system.
func allowLeases(t *testing.T, plane *controlplane.ControlPlane, name, user string) {
	t.Helper()
	rbac := harness.Client(t, plane).RbacV1()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "leases-" + name},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
			Verbs: []string{"get", "list", "watch", "create", "update"},
		}},
	}
	if _, err := rbac.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bind(t, plane, user, role.Name)
}

// bind binds a user to a ClusterRole.
func bind(t *testing.T, plane *controlplane.ControlPlane, user, role string) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user + "-" + strings.ReplaceAll(role, ":", "-")},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := harness.Client(t, plane).RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

package e2e

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/pkg/controllers"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// TestBadInputIsRefused starts a member with input that cannot work and requires that it ends with an error that names
// the field, the value and what is allowed.
func TestBadInputIsRefused(t *testing.T) {
	t.Parallel()
	plane := startPlane(t, controlplane.Options{})
	garbage := filepath.Join(t.TempDir(), "garbage.pem")
	if err := os.WriteFile(garbage, []byte("no PEM at all\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		flags []string
		// want must all be in one line of the output.
		want []string
	}{
		{"unknown flag", []string{"--sharts=3"}, []string{"unknown flag: --sharts"}},
		{"unknown controller", []string{"--controllers=*,replicaste-controller"}, []string{"replicaste-controller", "not in the list of known controllers"}},
		{"no shards", []string{"--shards=0"}, []string{"--shards 0: must be from 1 to"}},
		{"negative shards", []string{"--shards=-1"}, []string{"--shards -1: must be from 1 to"}},
		{"absurd shards", []string{"--shards=1000000"}, []string{"--shards 1000000: must be from 1 to"}},
		{"shards not a number", []string{"--shards=many"}, []string{"many", "--shards"}},
		{"fleet name", []string{"--fleet-name=My_Fleet"}, []string{"--fleet-name", "My_Fleet", "DNS label"}},
		{"member name", []string{"--member-name=a/b"}, []string{"--member-name", "a/b", "DNS subdomain"}},
		{"rebalance delay", []string{"--rebalance-delay=-1s"}, []string{"--rebalance-delay -1s: must be from 0s to"}},
		{"lease timings", []string{"--leader-elect-lease-duration=5s", "--leader-elect-renew-deadline=10s"}, []string{"--leader-elect-renew-deadline 10s", "5s"}},
		{"resource lock", []string{"--leader-elect-resource-lock=endpoints"}, []string{"--leader-elect-resource-lock", "endpoints", "leases"}},
		{"leader migration", []string{"--enable-leader-migration", "--leader-migration-config=" + garbage}, []string{"couldn't get version/kind"}},
		{"missing key", []string{"--service-account-private-key-file=/nowhere/sa.key"}, []string{"--service-account-private-key-file", "/nowhere/sa.key", "PEM"}},
		{"unreadable key", []string{"--service-account-private-key-file=" + t.TempDir()}, []string{"--service-account-private-key-file", "is a directory"}},
		{"garbage key", []string{"--service-account-private-key-file=" + garbage}, []string{"--service-account-private-key-file", garbage, "PEM"}},
		{"missing CA", []string{"--root-ca-file=/nowhere/ca.crt"}, []string{"--root-ca-file", "/nowhere/ca.crt", "certificate"}},
		{"garbage CA", []string{"--root-ca-file=" + garbage}, []string{"--root-ca-file", garbage, "certificate"}},
		{"missing kubeconfig", []string{"--kubeconfig=/nowhere/kubeconfig"}, []string{"/nowhere/kubeconfig"}},
		{"garbage kubeconfig", []string{"--kubeconfig=" + garbage}, []string{"error loading config"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := startMember(t, plane, "m-"+strings.ToLower(strings.ReplaceAll(test.name, " ", "-")), test.flags...)
			if code := m.exit(t, patience); code == 0 {
				t.Error("ended with status 0")
			}
			if !hasLine(m.log(t), test.want...) {
				t.Errorf("no line of the output has %q:\n%s", test.want, m.log(t))
			}
		})
	}
}

// TestAPIServerAbsent waits as upstream does, and says what for.
func TestAPIServerAbsent(t *testing.T) {
	t.Parallel()
	plane := startPlane(t, controlplane.Options{})
	if err := plane.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	// Delegated authentication would fail even earlier, as upstream's does; without it the waiting is seen.
	m := startMember(t, plane, "absent", "--authentication-skip-lookup", "--secure-port=0")
	if code := m.exit(t, patience); code == 0 {
		t.Error("ended with status 0")
	}
	if !hasLine(m.log(t), "waited 10s for the API server at https://127.0.0.1") {
		t.Errorf("the log does not say what was waited for:\n%s", m.log(t))
	}
	for name, binaryName := range map[string]string{"plain": fleetName, "stock": stockName} {
		m := startManager(t, plane, binaryName, name)
		if code := m.exit(t, patience); code == 0 {
			t.Errorf("%s ended with status 0", name)
		}
		if !hasLine(m.log(t), plane.AdminConfig().Host, "connection refused") {
			t.Errorf("the log of %s does not say what cannot be reached:\n%s", name, m.log(t))
		}
	}
}

// TestLeaseNamespaceMissing is waited for, and said.
func TestLeaseNamespaceMissing(t *testing.T) {
	t.Parallel()
	plane := startPlane(t, controlplane.Options{})
	client := newClient(t, plane)
	allowLeases(t, plane, "fleet-leases", "system:kube-controller-manager")
	m := startMember(t, plane, "early", append([]string{"--leader-elect-resource-namespace=fleet-leases"}, quick...)...)
	eventually(t, patience, "the log says that the namespace is missing", m.logs(t, "Request for the Lease failed", `namespaces \"fleet-leases\" not found`))
	ready := httpClient(t, plane.AdminConfig())
	eventually(t, patience, "not ready", m.answers(ready, "/readyz", http.StatusInternalServerError))
	eventually(t, patience, "the reason", m.says(ready, "/readyz/fleet", "has not joined", `namespaces "fleet-leases" not found`))
	eventually(t, patience, "but alive", m.answers(ready, "/livez", http.StatusOK))

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fleet-leases"}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	took := eventually(t, patience, "ready once the namespace is there", m.answers(ready, "/readyz", http.StatusOK))
	t.Logf("ready %v after the namespace was created", took)
}

// TestNoPermissionOnLeases is waited for and said where Leases cannot be read, and ends the process with the reason where
// its own Lease cannot be kept.
func TestNoPermissionOnLeases(t *testing.T) {
	t.Parallel()
	plane := startPlane(t, controlplane.Options{})
	nobody, err := plane.Kubeconfig("nobody")
	if err != nil {
		t.Fatal(err)
	}
	ready := httpClient(t, plane.AdminConfig())
	m := startMember(t, plane, "nobody", append([]string{"--kubeconfig=" + nobody}, quick...)...)
	eventually(t, patience, "the log names what is forbidden", m.logs(t, "Waiting to list and watch Leases", "cannot list resource", "leases"))
	eventually(t, patience, "not ready", m.answers(ready, "/readyz", http.StatusInternalServerError))
	eventually(t, patience, "the reason", m.says(ready, "/readyz/fleet", "has not joined", "cannot list resource"))
	allowLeases(t, plane, "anywhere", "nobody")
	// It has the Lease then, and may do nothing else.
	took := eventually(t, patience, "Leases are taken once it is allowed", m.logs(t, "Could not start the shard's work", "flotilla-namespaces-"))
	t.Logf("the first shard was acquired %v after Leases were allowed", took)

	// Upstream's roles let it create Leases everywhere, and update them in kube-system only.
	m = startMember(t, plane, "stranger", append([]string{"--leader-elect-resource-namespace=default"}, quick...)...)
	if code := m.exit(t, patience); code == 0 {
		t.Error("a member that cannot keep its Lease ended with status 0")
	}
	if !hasLine(m.log(t), "command failed", "membership lost", "flotilla-member-stranger", "is forbidden") {
		t.Errorf("the log does not say why:\n%s", m.log(t))
	}
}

// allowLeases grants a user what the controller manager has in kube-system, in all namespaces.
func allowLeases(t *testing.T, plane *controlplane.ControlPlane, name, user string) {
	t.Helper()
	rbac := newClient(t, plane).RbacV1()
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
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := rbac.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestAnotherShardCountAndASecondProcess has members whose flags differ from those of a fleet that runs: another number of shards
// counts for nothing, since the fleet has a plan, and a name that is taken is waited for.
func TestAnotherShardCountAndASecondProcess(t *testing.T) {
	t.Parallel()
	plane := startPlane(t, controlplane.Options{})
	client := httpClient(t, plane.AdminConfig())
	first := startMember(t, plane, "first", append([]string{"--shards=4"}, quick...)...)
	eventually(t, patience, "the first member is ready", first.answers(client, "/readyz", http.StatusOK))

	other := startMember(t, plane, "other", append([]string{"--shards=8"}, quick...)...)
	eventually(t, patience, "a member with another number of shards is ready", other.answers(client, "/readyz", http.StatusOK))
	plan, err := controllers.DefaultPlan(4)
	if err != nil {
		t.Fatal(err)
	}
	f := &fleetRun{plane: plane, plan: plan, client: newClient(t, plane), members: map[string]*manager{"first": first, "other": other}}
	eventually(t, patience, "both hold shards of the fleet's plan", func(ctx context.Context) error {
		holders, err := f.readHolders(ctx)
		if err != nil {
			return err
		}
		return f.checkHolders(holders)
	})
	leases, err := f.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{LabelSelector: fleet.ShardLabel})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(leases.Items), len(plan.Shards()); got != want {
		t.Errorf("there are Leases of %d shards, want those %d of the fleet's plan", got, want)
	}
	other.stop(t)

	second := startManager(t, plane, fleetName, "second", append([]string{"--member-name=first", "--shards=4"}, quick...)...)
	eventually(t, patience, "the second process of a name says that it waits", second.logs(t, "Waiting for the member's Lease", "first_"))
	eventually(t, patience, "and is not ready", second.answers(client, "/readyz", http.StatusInternalServerError))
	eventually(t, patience, "for this reason", second.says(client, "/readyz/fleet", "its Lease is held by first_"))
	if status, body, err := first.get(t.Context(), client, "/readyz"); err != nil || status != http.StatusOK {
		t.Errorf("the first member is not ready any more: %d %s %v", status, body, err)
	}
	began := time.Now()
	first.stop(t)
	eventually(t, patience, "the second takes the first one's place", second.answers(client, "/readyz", http.StatusOK))
	t.Logf("the second process was ready %v after the first was told to stop", time.Since(began).Round(10*time.Millisecond))
}

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/internal/app/shadow"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// shadowed is a shadow process.
type shadowed struct{ *harness.Manager }

// startShadow starts a shadow with a unique User-Agent.
func startShadow(t *testing.T, plane *controlplane.ControlPlane, name, kubeconfig string, flags ...string) shadowed {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(harness.Binary(t, plane, harness.Fleet), path); err != nil {
		t.Fatal(err)
	}
	return shadowed{harness.Run(t, plane, harness.Spec{Name: name, Binary: path, Kubeconfig: kubeconfig, Flags: flags})}
}

// report returns the shadow's report.
func (s shadowed) report(ctx context.Context) (r shadow.Report, err error) {
	status, body, err := s.Get(ctx, "/shadow?output=json")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("/shadow answers with %d: %s", status, body)
	}
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal([]byte(body), &r)
}

// reports waits until the report is as it should be, and returns it.
func (s shadowed) reports(t *testing.T, what string, is func(shadow.Report) bool) (r shadow.Report) {
	t.Helper()
	harness.Eventually(t, harness.Patience, what, func(ctx context.Context) (err error) {
		if r, err = s.report(ctx); err == nil && !is(r) {
			var b strings.Builder
			err = errors.Join(r.Text(&b), errors.New(b.String()))
		}
		return err
	})
	return r
}

// finish stops the shadow and returns what it prints at the end.
func (s shadowed) finish(t *testing.T) string {
	t.Helper()
	s.MustTerminate(t)
	if status := s.MustExit(t, harness.Patience); status != 0 {
		t.Errorf("%s ended with status %d", s.Name(), status)
	}
	_, report, printed := strings.Cut(s.MustLog(t), "SHADOW of member ")
	if !printed {
		t.Errorf("%s has printed no report", s.Name())
	}
	return report
}

// TestShadow runs shadows next to a working stock leader, and checks the audit log for their
// requests.
func TestShadow(t *testing.T) {
	t.Parallel()
	m := startMigration(t, stockLease)
	m.startStock(t)
	m.works(t)
	leader, err := m.holder(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	shadow1 := startShadow(t, m.plane, "shadow-1", "", "--shadow")
	harness.Eventually(t, harness.Patience, "the caches are full", shadow1.Ready)
	m.works(t)
	deploy(t, m.client, "worked-off")
	harness.Eventually(t, harness.Patience, "the stock leader makes a ReplicaSet", func(ctx context.Context) error {
		sets, err := m.client.AppsV1().ReplicaSets(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "app=worked-off"})
		if err == nil && len(sets.Items) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
	if holder, err := m.holder(t.Context()); err != nil || holder != leader {
		t.Errorf("%s led before, and then %s: %v", leader, holder, err)
	}
	// Garbage collectors request more kinds as they start, and the shadow is not ready before these
	// are there.
	r := shadow1.reports(t, "the rights are known, and it is ready", func(r shadow.Report) bool {
		return r.Rights.Allowed > 100 && r.Rights.Unanswered == 0 && r.Ready
	})
	for _, right := range r.Rights.Missing {
		t.Errorf("the stock leader's identities lack a right: %+v", right)
	}
	if r.Leaked != 0 {
		t.Fatalf("%d writes came as far as the fence", r.Leaked)
	}
	if r.Memory.Objects == 0 || r.Memory.Live == 0 || r.Reads.Open < 30 || r.Reads.Events == 0 || len(r.NotRun) == 0 {
		t.Errorf("the report is %+v", r.Member)
	}

	m.stopStock(t, m.stock...)
	// Its phase is the first thing that the volume controller writes.
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "left-alone"}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp/left-alone"}},
	}}
	if _, err := m.client.CoreV1().PersistentVolumes().Create(t.Context(), volume, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	deploy(t, m.client, "left-alone")
	r = shadow1.reports(t, "the shadow would make a ReplicaSet, and tries again", func(r shadow.Report) bool {
		w, found := wouldCreate(r, "replicasets.apps")
		return found && w.Attempts > int64(w.Objects) && slices.ContainsFunc(w.Examples, func(name string) bool { return strings.HasPrefix(name, "default/left-alone-") })
	})
	if w, _ := wouldCreate(r, "replicasets.apps"); w.Client != "deployment-controller" || w.Objects > 2+m.marks {
		t.Errorf("it would write %+v, want at most one ReplicaSet for each of %d Deployments", w, 2+m.marks)
	}
	for _, w := range r.Writes {
		if w.Client == "persistent-volume-binder" {
			t.Errorf("a controller that acts outside the API server runs: %+v", w)
		}
	}
	// The leader has made all others by the time of a second attempt.
	r = shadow1.reports(t, "the ReplicaSet that no leader makes is lasting", func(r shadow.Report) bool {
		w, _ := wouldCreate(r, "replicasets.apps")
		return w.Lasting > 0
	})
	if w, _ := wouldCreate(r, "replicasets.apps"); w.Lasting != 1 {
		t.Errorf("it would write %+v, want 1 lasting: that of the Deployment made after the leader had ended", w)
	}
	printed := shadow1.finish(t)
	if !strings.Contains(printed, "create replicasets.apps") || !strings.Contains(printed, "deployment-controller") {
		t.Errorf("the report that is printed does not say what the shadow would write:\n%s", printed)
	}

	m.requireReads(t)
	m.requireFailureSeen(t)

	blind := m.startBlind(t)
	harness.Eventually(t, harness.Patience, "it reports what it may not read", blind.Says("/readyz/fleet", "the API server refuses list secrets"))
	r = blind.reports(t, "it lacks rights", func(r shadow.Report) bool { return r.Rights.Unanswered == 0 && len(r.Rights.Missing) > 5 })
	for _, lacks := range []string{"list secrets", "create leases.coordination.k8s.io", "create serviceaccounts/token"} {
		if !slices.ContainsFunc(r.Rights.Missing, func(right shadow.Right) bool { return right.Verb+" "+right.Name() == lacks }) {
			t.Errorf("the right to %s is not missing", lacks)
		}
	}
	blind.finish(t)
	m.requireUnseen(t, "shadow-1", "reader", "blind", "mistaken")
}

// wouldCreate returns what controllers would have created of the resource.
func wouldCreate(r shadow.Report, resource string) (shadow.Write, bool) {
	i := slices.IndexFunc(r.Writes, func(w shadow.Write) bool { return w.Verb == "create" && w.Name() == resource })
	if i < 0 {
		return shadow.Write{}, false
	}
	return r.Writes[i], true
}

func deploy(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
	if _, err := client.AppsV1().Deployments(metav1.NamespaceDefault).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// requireReads runs a shadow as in deploy/shadow: those rights suffice, and the shadow reports the
// rights of a member.
func (m *migration) requireReads(t *testing.T) {
	t.Helper()
	apply := exec.CommandContext(t.Context(), harness.Binary(t, m.plane, "kubectl"), "apply", "-f", "../../deploy/shadow/rbac.yaml")
	apply.Env = []string{"KUBECONFIG=" + m.plane.AdminKubeconfig(), "HOME=" + t.TempDir()}
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	kubeconfig, err := m.plane.Kubeconfig("system:serviceaccount:kube-system:flotilla-shadow", "system:serviceaccounts", "system:serviceaccounts:kube-system")
	if err != nil {
		t.Fatal(err)
	}
	// The shadow counts what is refused from its start on, and the API server may learn of the
	// rights late.
	harness.Eventually(t, harness.Patience, "the rights are in force", func(ctx context.Context) error {
		ask := exec.CommandContext(ctx, harness.Binary(t, m.plane, "kubectl"), "auth", "can-i", "list", "nodes")
		ask.Env = []string{"KUBECONFIG=" + kubeconfig, "HOME=" + t.TempDir()}
		if out, err := ask.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	reader := startShadow(t, m.plane, "reader", kubeconfig, "--shadow=1/3", "--shadow-rights-of=system:kube-controller-manager")
	harness.Eventually(t, harness.Patience, "the caches are full", reader.Ready)
	r := reader.reports(t, "the rights are known", func(r shadow.Report) bool { return r.Rights.Allowed > 50 && r.Rights.Unanswered == 0 })
	if len(r.Rights.Missing) > 0 || r.Reads.Refused > 0 {
		t.Errorf("a member lacks %+v, and the shadow may not read %v of %+v", r.Rights.Missing, r.Reads.Refused, r.ByRead)
	}
	reader.finish(t)
}

// requireFailureSeen runs a shadow with a flag that one of its shards can only reject when it
// begins: a node has addresses outside of --cluster-cidr. No member could run that shard, so the
// shadow must not pass for ready.
func (m *migration) requireFailureSeen(t *testing.T) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}, Spec: corev1.NodeSpec{PodCIDR: "10.42.0.0/24", PodCIDRs: []string{"10.42.0.0/24"}}}
	if _, err := m.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	mistaken := startShadow(t, m.plane, "mistaken", "", "--shadow", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16")
	harness.Eventually(t, harness.Patience, "it reports the shard that cannot run", mistaken.Says("/readyz/fleet", "shard cluster/nodes cannot run"))
	if printed := mistaken.finish(t); !strings.Contains(printed, "Caches:      NOT FULL: ") || !strings.Contains(printed, "shard cluster/nodes cannot run") {
		t.Errorf("the report that is printed does not say which shard cannot run:\n%s", printed)
	}
}

// startBlind starts a shadow as a user who may read everything but Secrets, and ask for rights.
func (m *migration) startBlind(t *testing.T) shadowed {
	t.Helper()
	const user = "blind"
	read := []string{"get", "list", "watch"}
	everything, err := m.client.Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	var core []string
	groups := []string{}
	for _, list := range everything {
		group, _, grouped := strings.Cut(list.GroupVersion, "/")
		if grouped {
			groups = append(groups, group)
			continue
		}
		for _, resource := range list.APIResources {
			if resource.Name != "secrets" {
				core = append(core, resource.Name)
			}
		}
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: core, Verbs: read},
		{APIGroups: groups, Resources: []string{"*"}, Verbs: read},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
		{NonResourceURLs: []string{"*"}, Verbs: []string{"get"}},
	}}
	if _, err := m.client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := m.client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := m.plane.Kubeconfig(user)
	if err != nil {
		t.Fatal(err)
	}
	return startShadow(t, m.plane, user, kubeconfig, "--shadow=1/2")
}

// requireUnseen requires that shadows have sent no request that could change anything, and appear
// in no Lease.
func (m *migration) requireUnseen(t *testing.T, names ...string) {
	t.Helper()
	requireOnlyReads(t, m.plane, names...)
	leases, err := m.client.CoordinationV1().Leases(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, lease := range leases.Items {
		if strings.HasPrefix(lease.Name, harness.Fleet) {
			t.Errorf("there is a Lease %s, held by %q", lease.Name, ptr.Deref(lease.Spec.HolderIdentity, ""))
		}
	}
}

// requireOnlyReads requires that shadows have sent no request that could change anything.
func requireOnlyReads(t *testing.T, plane *controlplane.ControlPlane, names ...string) {
	t.Helper()
	asked, others := 0, 0
	err := harness.EventsOf(plane.AuditLog(), func(e *harness.Event) error {
		switch {
		case !slices.Contains(names, e.Process()):
			others++
		case e.ObjectRef != nil && e.ObjectRef.APIGroup == "authorization.k8s.io" && strings.HasSuffix(e.ObjectRef.Resource, "subjectaccessreviews") && e.Verb == "create":
			asked++
		case slices.Contains([]string{"get", "list", "watch"}, e.Verb):
		default:
			t.Errorf("a shadow has sent %v", e)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if asked < 100 || others < 10 {
		t.Errorf("the audit log has %d questions of shadows about rights and %d requests of others: the test reads it wrongly", asked, others)
	}
}

// TestShadowOfAFleet runs shadows next to a fleet of one member: one of a fleet of one, one of the
// first of four members, which has the groups, and one of the second. They use the fleet's plan,
// and a smaller part means fewer cached objects. None of them writes anything.
func TestShadowOfAFleet(t *testing.T) {
	t.Parallel()
	plane := sharedPlane(t)
	client := harness.Client(t, plane)
	const name = "shadowed"
	for i := range 40 {
		namespace := fmt.Sprintf("%s-%d", name, i)
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"a", "b", "c"} {
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret}}
			if _, err := client.CoreV1().Secrets(namespace).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	member := harness.Run(t, plane, memberOf(name, "m", "--shards=8"))
	harness.Eventually(t, harness.Patience, "the fleet runs", member.Ready)
	var all []shadow.Report
	for i, part := range []string{"--shadow", "--shadow=1/4", "--shadow=2/4"} {
		s := startShadow(t, plane, fmt.Sprintf("shadow-of-%d", i), "", part, "--fleet-name="+name)
		r := s.reports(t, "its caches are full", func(r shadow.Report) bool { return r.Ready })
		if want := "generation 1 of the running fleet"; r.Plan != want {
			t.Errorf("%s uses %q, want %q", part, r.Plan, want)
		}
		if r.Leaked != 0 {
			t.Errorf("%s: %d writes came as far as the fence", part, r.Leaked)
		}
		s.finish(t)
		all = append(all, r)
	}
	requireOnlyReads(t, plane, "shadow-of-0", "shadow-of-1", "shadow-of-2")
	one, first, second := all[0], all[1], all[2]
	if len(one.Shards) < 8 || !slices.Contains(first.Shards, "cluster/nodes") || len(first.Shards) >= len(one.Shards) || len(second.Shards) != 2 {
		t.Errorf("the shadow of one member has %v, of the first of four %v, of the second %v", one.Shards, first.Shards, second.Shards)
	}
	if n := one.Memory.Objects; first.Memory.Objects == 0 || first.Memory.Objects >= n || second.Memory.Objects == 0 || 2*second.Memory.Objects >= n {
		t.Errorf("the shadow of one member has %d objects, of the first of four %d, of the second %d", n, first.Memory.Objects, second.Memory.Objects)
	}
	if err := member.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	leases, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	members := 0
	for _, lease := range leases.Items {
		if strings.HasPrefix(lease.Name, name+"-member-") {
			members++
		}
	}
	if members != 1 {
		t.Errorf("the fleet has %d members, want one", members)
	}
}

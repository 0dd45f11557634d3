package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/flotilla-kube/flotilla/internal/cli"
	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// TestStatus causes each problem that a fleet may have, and requires that 'flotilla status' names
// it and exits with the matching status. Before and after, status must say that all is well.
// --watch must have reported all of it.
func TestStatus(t *testing.T) {
	t.Parallel()
	plane := sharedPlane(t)
	s := &statusRun{operator: newOperator(t, plane, "status"), plane: plane, client: harness.Client(t, plane)}
	for name, ring := range map[string]string{"fleet-0": catalogue.NamespacesRing, "fleet-1": catalogue.NamespacesRing, "fleet-2": catalogue.ClusterRing} {
		if m := s.start(t, name, ring); ring == catalogue.ClusterRing {
			s.dead = m
		}
	}
	s.well(t)
	s.watched, s.events = s.watch(t, "status", "--watch"), s.watch(t, "events", "--watch")

	s.disagreeing(t)
	s.twoHolders(t)
	s.stuck(t)
	s.unowned(t)

	says(t, "status --watch", s.watched, "Error: PlanRefused: member fleet-0", "MemberDisagrees: member fleet-1", "over: PlanRefused: fleet-0",
		"Error: TwoHolders: ", "Warning: HandoffStuck: ", "Error: RingUnserved: ring cluster", "silent: member fleet-2", "expired: shard cluster/",
		"over: RingUnserved: cluster", "joined: member fleet-2")
	says(t, "events --watch", s.events, "plan-changed: plan status-plan: plan generation 3 after 2", "taken-over: shard cluster/nodes: ")
	s.asPlugin(t)
	s.asViewer(t)
}

// statusRun is a fleet under observation.
type statusRun struct {
	*operator
	plane  *controlplane.ControlPlane
	client kubernetes.Interface
	// dead is the member to kill. watched and events return the output of status --watch and of
	// events --watch so far.
	dead            *harness.Manager
	watched, events func() string
}

func (s *statusRun) start(t *testing.T, name, ring string) *harness.Manager {
	t.Helper()
	return harness.Run(t, s.plane, memberOf(s.fleet, name, append([]string{"--shards=4", "--rebalance-delay=1s", "--rings=" + ring}, quick...)...))
}

// watch starts a command, and returns a function that returns its output so far. At the end of the
// test the command is interrupted, and must exit cleanly.
func (s *statusRun) watch(t *testing.T, args ...string) func() string {
	t.Helper()
	process, err := s.plane.StartProcess(strings.Join(args, ""), s.binary, append(s.about(args), "--kubeconfig="+s.kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	m := harness.Attach(process, "", nil)
	t.Cleanup(func() {
		if err := m.Signal(syscall.SIGINT); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), grace)
		defer cancel()
		select {
		case <-m.Done():
		case <-ctx.Done():
			t.Errorf("flotilla %s does not exit", strings.Join(args, " "))
			_ = m.Kill()
		}
		if err := m.Wait(); err != nil {
			t.Errorf("flotilla %s was interrupted and ended with %v", strings.Join(args, " "), err)
		}
	})
	return func() string { return m.MustLog(t) }
}

// says waits until a command that watches has said all of this. It sees the Leases by a watch of
// its own, which may lag behind what another command has read.
func says(t *testing.T, command string, output func() string, all ...string) {
	t.Helper()
	harness.Eventually(t, harness.Patience, command+" says everything", func(context.Context) error {
		said := output()
		for _, want := range all {
			if !strings.Contains(said, want) {
				return fmt.Errorf("it has not said %q:\n%s", want, said)
			}
		}
		return nil
	})
}

// look runs 'flotilla status', and returns its view and exit status.
func (s *statusRun) look(ctx context.Context, args ...string) (v status.View, code int, err error) {
	// It reads for ten seconds while it sees something suspicious, so it may take longer than one
	// look at a condition.
	out, err := s.try(context.WithoutCancel(ctx), append([]string{"status", "-o", "json"}, args...)...)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() != 1 {
		code, err = exit.ExitCode(), nil
	}
	if err != nil {
		return v, 1, err
	}
	return v, code, json.Unmarshal([]byte(out), &v)
}

// well waits until status says that all is well.
func (s *statusRun) well(t *testing.T) {
	t.Helper()
	harness.Eventually(t, leaseDuration+harness.Patience, "all is well", func(ctx context.Context) error {
		v, code, err := s.look(ctx)
		if err == nil && (code != 0 || len(v.Findings) > 0 || len(v.Rings) != 2) {
			err = fmt.Errorf("status %d, findings %+v", code, v.Findings)
		}
		for _, ring := range v.Rings {
			for _, shard := range ring.Shards {
				if err == nil && shard.State != status.StateRunning {
					err = fmt.Errorf("%s is %s", shard.Shard, shard.State)
				}
			}
		}
		return err
	})
}

// finds waits until status names these findings, given as "Kind object", and exits with the
// matching status, and until --watch has named them too.
func (s *statusRun) finds(t *testing.T, want int, findings ...string) status.View {
	t.Helper()
	var last status.View
	took := harness.Eventually(t, leaseDuration+harness.Patience, strings.Join(findings, ", "), func(ctx context.Context) error {
		v, code, err := s.look(ctx)
		if err != nil {
			return err
		}
		last = v
		var got []string
		for _, f := range v.Findings {
			got = append(got, fmt.Sprintf("%s %s", f.Kind, f.Object))
		}
		for _, f := range findings {
			if !slices.Contains(got, f) {
				return fmt.Errorf("%q is not among %q", f, got)
			}
		}
		if code != want {
			return fmt.Errorf("status %d, want %d, with %q", code, want, got)
		}
		return nil
	})
	t.Logf("%s: named after %v", strings.Join(findings, ", "), took)
	harness.Eventually(t, harness.Patience, "so does --watch", func(context.Context) error {
		for _, f := range findings {
			kind, object, _ := strings.Cut(f, " ")
			if !harness.HasLine(s.watched(), ": "+kind+": ", object) {
				return fmt.Errorf("it has not said %q", f)
			}
		}
		return nil
	})
	return last
}

// change changes a Lease as a kubectl user could.
func (s *statusRun) change(t *testing.T, name string, change func(*coordinationv1.Lease)) {
	t.Helper()
	leases := s.client.CoordinationV1().Leases(metav1.NamespaceSystem)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease, err := leases.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(lease)
		_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// disagreeing writes a plan that no member can follow, and then restores the good one.
func (s *statusRun) disagreeing(t *testing.T) {
	t.Helper()
	plan, err := shard.ParsePlan([]byte(s.run(t, "plan", "show", "-o", "document")))
	if err != nil {
		t.Fatal(err)
	}
	write := func(generation int64, edit func(string) string) {
		plan.Generation = generation
		document, err := plan.Document()
		if err != nil {
			t.Fatal(err)
		}
		s.change(t, leaseapi.PlanLease(s.fleet), func(lease *coordinationv1.Lease) { lease.Annotations[leaseapi.DocumentAnnotation] = edit(document) })
	}
	write(2, func(text string) string {
		return strings.Replace(text, `"cronjob-controller"`, `"cronjobs-of-tomorrow"`, 1)
	})
	s.finds(t, cli.StatusErrors, "PlanRefused fleet-0", "PlanRefused fleet-1", "PlanRefused fleet-2", "MemberDisagrees fleet-0", "MemberDisagrees fleet-1")
	write(3, func(text string) string { return text })
	s.well(t)
}

// forge writes the Lease of a shard that is in no plan, held by a live member, which covers the
// same as another shard.
func (s *statusRun) forge(t *testing.T, of, by string) *coordinationv1.Lease {
	t.Helper()
	leases := s.client.CoordinationV1().Leases(metav1.NamespaceSystem)
	get := func(name string) *coordinationv1.Lease {
		lease, err := leases.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return lease
	}
	lease := get(of)
	forged := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: of + "-forged", Labels: lease.Labels, Annotations: map[string]string{
			leaseapi.RangeAnnotation: lease.Annotations[leaseapi.RangeAnnotation], leaseapi.ControllersAnnotation: lease.Annotations[leaseapi.ControllersAnnotation],
			leaseapi.RunningAnnotation: "1", leaseapi.GenerationAnnotation: "1",
		}},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: get(leaserecord.MemberLease(s.fleet, by)).Spec.HolderIdentity, LeaseDurationSeconds: ptr.To[int32](600), LeaseTransitions: ptr.To[int32](1),
			AcquireTime: ptr.To(metav1.NowMicro()), RenewTime: ptr.To(metav1.NowMicro()),
		},
	}
	forged, err := leases.Create(t.Context(), forged, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return forged
}

const forgedShard = "status-namespaces-00"

func (s *statusRun) twoHolders(t *testing.T) {
	t.Helper()
	forged := s.forge(t, forgedShard, "fleet-1")
	s.finds(t, cli.StatusErrors, "TwoHolders "+forgedShard)
	s.change(t, forged.Name, func(lease *coordinationv1.Lease) { delete(lease.Annotations, leaseapi.RunningAnnotation) })
	s.finds(t, cli.StatusWarnings, "OlderClaim namespaces/00")
}

// stuck changes the plan while a holder that does not hand over has a part of what changes.
func (s *statusRun) stuck(t *testing.T) {
	t.Helper()
	plan, err := shard.ParsePlan([]byte(s.run(t, "plan", "show", "-o", "document")))
	if err != nil {
		t.Fatal(err)
	}
	id := shard.ID{Ring: catalogue.NamespacesRing, Name: "00"}
	was, _ := plan.Shard(id)
	middle := was.Range.Start + 1<<61
	ring := &plan.Rings[slices.IndexFunc(plan.Rings, func(r shard.Ring) bool { return r.Name == id.Ring })]
	ring.Shards = slices.Concat([]shard.Shard{
		{ID: shard.ID{Ring: id.Ring}, Range: shard.Range{Start: was.Range.Start, End: middle}},
		{ID: shard.ID{Ring: id.Ring}, Range: shard.Range{Start: middle, End: was.Range.End}},
	}, slices.DeleteFunc(slices.Clone(ring.Shards), func(s shard.Shard) bool { return s.ID == id }))
	document, err := plan.Document()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(file, []byte(document), 0o644); err != nil {
		t.Fatal(err)
	}
	s.run(t, "plan", "apply", "-f", file)
	s.finds(t, cli.StatusWarnings, "HandoffStuck namespaces/g4-00", "HandoffStuck namespaces/g4-01")
	s.change(t, forgedShard+"-forged", func(lease *coordinationv1.Lease) { lease.Spec.HolderIdentity = ptr.To("") })
	s.well(t)
}

// unowned kills the only member of a ring.
func (s *statusRun) unowned(t *testing.T) {
	t.Helper()
	var leases *coordinationv1.LeaseList
	var err error
	if leases, err = s.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{LabelSelector: leaseapi.RingLabel + "=" + catalogue.ClusterRing + "," + leaseapi.FleetLabel + "=" + s.fleet}); err != nil {
		t.Fatal(err)
	}
	if err := s.dead.Kill(); err != nil {
		t.Fatal(err)
	}
	want := []string{"RingUnserved cluster", "MemberSilent fleet-2"}
	for _, lease := range leases.Items {
		want = append(want, "Unowned cluster/"+lease.Labels[leaseapi.ShardLabel])
	}
	v := s.finds(t, cli.StatusErrors, want...)
	if f := v.Findings[0]; f.Severity != status.Error || f.Runbook == "" {
		t.Errorf("the first finding is %+v", f)
	}
	// Once it is back, nobody can see that it was silent.
	says(t, "events --watch", s.events, "silent: member fleet-2")
	s.start(t, "fleet-2", catalogue.ClusterRing)
	s.well(t)
}

// asPlugin runs the binary as kubectl does.
func (s *statusRun) asPlugin(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(s.binary, filepath.Join(dir, "kubectl-flotilla")); err != nil {
		t.Fatal(err)
	}
	kubectl := harness.Binary(t, s.plane, "kubectl")
	run := func(args ...string) string {
		command := exec.CommandContext(t.Context(), kubectl, args...)
		command.Env = []string{"KUBECONFIG=" + s.kubeconfig, "HOME=" + s.home, "PATH=" + dir}
		out, err := command.CombinedOutput()
		if err != nil {
			t.Errorf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if out := run("flotilla", "drain", "--help"); !strings.Contains(out, "\n  kubectl flotilla drain MEMBER [flags]\n") {
		t.Errorf("the usage is\n%s", out)
	}
	if out := run("flotilla", "status", "--fleet-name="+s.fleet); !strings.Contains(out, "\nAll is well\n") {
		t.Errorf("status says\n%s", out)
	}
	// It completes with nothing if the API server does not answer within two seconds.
	harness.Eventually(t, harness.Patience, "drain completes with the members", func(context.Context) error {
		if out := run("flotilla", "__complete", "drain", "--fleet-name="+s.fleet, ""); !strings.HasPrefix(out, "fleet-0\nfleet-1\nfleet-2\n") {
			return fmt.Errorf("the completion is\n%s", out)
		}
		return nil
	})
}

// asViewer runs the commands as a user who may only read the Leases of one namespace.
func (s *statusRun) asViewer(t *testing.T) {
	t.Helper()
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "viewer", Namespace: metav1.NamespaceSystem},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"list", "watch"}}},
	}
	if _, err := s.client.RbacV1().Roles(role.Namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "viewer"}},
	}
	if _, err := s.client.RbacV1().RoleBindings(role.Namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(s.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = "viewer"
	}
	viewer := &operator{binary: s.binary, home: s.home, fleet: s.fleet, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if err := clientcmd.WriteToFile(*config, viewer.kubeconfig); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, harness.Patience, "the viewer may look", func(ctx context.Context) error {
		_, err := viewer.try(ctx, "status")
		return err
	})
	viewer.run(t, "plan", "show")
	viewer.run(t, "explain", "web")
	if out := viewer.run(t, "events"); !strings.Contains(out, "may not list them in namespace kube-system") || !strings.Contains(out, "fleet-0") {
		t.Errorf("events says\n%s", out)
	}
	viewer.refused(t, []string{"status-member-fleet-0", "forbidden"}, "drain", "fleet-0")
	if out := s.run(t, "events", "--since=1h"); strings.Contains(out, "left out") {
		t.Errorf("events prints for a user who may list them\n%s", out)
	}
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/calibrate"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	defaultShards = 16
	// leaseDuration is the default.
	leaseDuration = 15 * time.Second
	// grace is how long a member may take to exit: no more than twice --handoff-timeout, which some
	// tests set to 30 s, and a few requests.
	grace = 2 * time.Minute
	// slack is added to the lease duration for a busy machine.
	slack = 30 * time.Second
)

// TestFleet takes one fleet under load through all planned changes, and then through a death:
// members join, one leaves, one is drained and undrained, all are restarted one after another, one
// more comes and goes, and one is killed. After each step the members' logs and metrics must be
// right. At the end the API server's audit log must show that no write was made without a claim,
// and that only the killed member's Leases expired.
func TestFleet(t *testing.T) {
	t.Parallel()
	plan, err := catalogue.DefaultPlan(defaultShards)
	if err != nil {
		t.Fatal(err)
	}
	plane := harness.StartPlane(t, controlplane.Options{
		Nodes: 3, Scheduler: true, AuditObjects: true, APIServerArgs: []string{"--requestheader-client-ca-file=" + newAuthority(t)},
	})
	f := newFleetRun(t, plane, plan)
	// On a busy machine, filling caches may exceed the default handoff timeout, and the move would
	// be cold.
	f.flags = []string{"--rebalance-delay=1s", "--handoff-timeout=30s"}
	f.join(t, "fleet-0")
	cold := f.begun(t, "cold")
	f.join(t, "fleet-1")
	f.join(t, "fleet-2")
	f.requireNoErrors(t)
	f.createWork(t)
	f.fill(t, *objects)
	t.Logf("first work done after %v", f.workDone(t, f.replicas))
	f.requireBegun(t)

	f.leave(t, "fleet-2")
	f.drain(t, "fleet-0", "fleet-1")
	f.start(t, "fleet-2")
	t.Logf("fleet-2 holds shards again %v after it was started", f.settle(t, harness.Patience))
	var machine measured
	for range *rollouts {
		machine.again(t, f.client)
		f.roll(t)
	}
	f.start(t, "fleet-3")
	f.settle(t, harness.Patience)
	f.stop(t, "fleet-3")
	f.settle(t, harness.Patience)
	t.Logf("%d shards began with warm caches", f.begun(t, "warm"))
	if n := f.begun(t, "cold") - cold; n > 0 {
		t.Errorf("%d planned moves were cold", n)
	}

	lost := f.kill(t, "fleet-1")
	f.requireTakenOver(t, lost)
	f.end(t)
	report := f.judge(t)
	released, expired := report.Gaps()
	t.Logf("unowned time of %d handoffs: p50 %v, p99 %v, worst %v; %d overlaps, %d writes in flight at a release", len(released),
		audit.Percentile(released, 50), audit.Percentile(released, 99), audit.Percentile(released, 100), len(report.Overlaps), len(report.InFlight))
	machine.require(t, "handoffs, p99", audit.Percentile(released, 99), calibrate.Handoff, calibrate.HandoffSteps)
	machine.require(t, "takeover, from the last renewal", audit.Percentile(expired, 100), calibrate.AfterRenewal(leaseDuration), calibrate.TakeoverSteps)
	if len(expired) != lost {
		t.Errorf("the Leases of %d shards expired, want only the %d of the killed member: all others were handed over", len(expired), lost)
	}
	if n := len(expired); n > 0 && expired[n-1] > leaseDuration+slack {
		t.Errorf("a shard was taken over %v after the killed member's last renewal, want about %v", expired[n-1], leaseDuration)
	}
}

// fleetRun is a fleet and the members of it that should run.
type fleetRun struct {
	plane  *controlplane.ControlPlane
	plan   shard.Plan
	client kubernetes.Interface
	// name is the fleet's name; flags are given to all members.
	name  string
	flags []string
	// members are those that run. logs has the last process of each name, whose log covers all
	// processes of the name.
	members, logs map[string]*harness.Manager
	// replicas is the number of replicas that every Deployment should have.
	replicas int32
	// disturbed is set if a member is suspended, because its first requests on resuming may come
	// late.
	disturbed bool
}

func newFleetRun(t *testing.T, plane *controlplane.ControlPlane, plan shard.Plan, flags ...string) *fleetRun {
	t.Helper()
	return &fleetRun{
		plane: plane, plan: plan, client: harness.Client(t, plane), name: harness.Fleet, flags: flags,
		members: map[string]*harness.Manager{}, logs: map[string]*harness.Manager{}, replicas: 3,
	}
}

func (f *fleetRun) start(t *testing.T, name string) {
	t.Helper()
	f.members[name] = harness.Run(t, f.plane, harness.Member(name, f.flags...))
	f.logs[name] = f.members[name]
}

// join starts a member, and waits until the fleet has given it shards.
func (f *fleetRun) join(t *testing.T, name string) {
	t.Helper()
	f.start(t, name)
	// If a client shows its certificate before the member has read the authority, the member logs
	// an error.
	anonymous := harness.Caller(t, rest.AnonymousClientConfig(f.plane.AdminConfig()))
	harness.Eventually(t, leaseDuration+harness.Patience, name+" is ready", f.members[name].As(anonymous).Ready)
	f.settle(t, leaseDuration+harness.Patience)
	// Upstream's collector logs an error if its shard moves before that.
	harness.Eventually(t, harness.Patience, "garbage collectors have synced", f.collectorsSynced)
}

// collectorsSynced is the condition that every garbage collector has filled its caches.
func (f *fleetRun) collectorsSynced(ctx context.Context) error {
	holders, err := f.readHolders(ctx)
	if err != nil {
		return err
	}
	for _, s := range f.plan.Shards() {
		if !s.Namespaced() && s.ID.String() != "cluster/garbage" {
			continue
		}
		holder, there := f.members[holders[s.ID.String()]]
		if !there {
			return fmt.Errorf("%v is held by %q", s.ID, holders[s.ID.String()])
		}
		log, err := holder.Log()
		if err != nil {
			return err
		}
		lease := fmt.Sprintf("lease=%q", leaseapi.ShardLease(f.name, s.ID))
		if harness.HasLine(log, "not all resource monitors could be synced", lease) {
			return fmt.Errorf("%w: the collector of %v has begun without all of its caches", harness.ErrGiveUp, s.ID)
		}
		if !harness.HasLine(log, "Garbage collector: all resource monitors have synced", lease) {
			return fmt.Errorf("the collector of %v has not synced", s.ID)
		}
	}
	return nil
}

// leave stops a member during a change in every namespace.
func (f *fleetRun) leave(t *testing.T, name string) {
	t.Helper()
	m := f.members[name]
	delete(f.members, name)
	held := f.heldBy(t, name)
	began := time.Now()
	m.MustTerminate(t)
	f.change(t)
	if status := m.MustExit(t, grace); status != 0 {
		t.Errorf("%s ended with status %d, want 0", name, status)
	}
	ended := time.Since(began)
	// The audit log shows whether anybody had to wait for a Lease to expire; on a busy machine this
	// may take long without that.
	f.settle(t, harness.Patience)
	t.Logf("told to end, %s ended after %.2f s and its %d shards were held by others after %.2f s",
		name, ended.Seconds(), held, time.Since(began).Seconds())
	f.workDone(t, f.replicas)
	t.Logf("a change in every namespace, made when it was told to end, was carried out after %.2f s", time.Since(began).Seconds())
	f.eventuallySum(t, float64(held), "flotilla_shard_acquisitions_total", "how", "handoff", "reason", "leaving", "result", "running")
}

// stop stops a member and waits for it.
func (f *fleetRun) stop(t *testing.T, name string) {
	t.Helper()
	m := f.members[name]
	delete(f.members, name)
	m.MustTerminate(t)
	if status := m.MustExit(t, harness.Patience); status != 0 {
		t.Errorf("%s ended with status %d, want 0", name, status)
	}
}

// kill kills a member and returns how many shards it held.
func (f *fleetRun) kill(t *testing.T, name string) (held int) {
	t.Helper()
	m := f.members[name]
	delete(f.members, name)
	held = f.heldBy(t, name)
	began := time.Now()
	m.MustKill(t)
	f.change(t)
	f.settle(t, leaseDuration+harness.Patience)
	t.Logf("%s was killed; its %d shards were held by others after %.2f s", name, held, time.Since(began).Seconds())
	f.workDone(t, f.replicas)
	t.Logf("a change in every namespace, made when it was killed, was carried out after %.2f s", time.Since(began).Seconds())
	return held
}

// end stops all members together.
func (f *fleetRun) end(t *testing.T) {
	t.Helper()
	for _, m := range f.members {
		m.MustTerminate(t)
	}
	for name, m := range f.members {
		if status := m.MustExit(t, grace); status != 0 {
			t.Errorf("%s ended with status %d, want 0", name, status)
		}
	}
	for id, holder := range f.holders(t) {
		if holder != "" {
			t.Errorf("all members have ended, and %s is still held by %s", id, holder)
		}
	}
}

// settle waits until the member that all consider the owner holds every shard, and every member
// says that it runs its shards.
func (f *fleetRun) settle(t *testing.T, within time.Duration) time.Duration {
	t.Helper()
	return harness.Eventually(t, within, "every shard held as assigned", func(ctx context.Context) error {
		for _, m := range f.members {
			if err := m.Complete(ctx); err != nil {
				return err
			}
		}
		holders, err := f.readHolders(ctx)
		if err != nil {
			return err
		}
		return errors.Join(f.checkHolders(holders), f.checkMetrics(ctx, holders))
	})
}

// readHolders returns the member named on each shard's Lease, without the incarnation.
func (f *fleetRun) readHolders(ctx context.Context) (map[string]string, error) {
	leases, err := f.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: leaseapi.FleetLabel + "=" + f.name})
	if err != nil {
		return nil, err
	}
	held := map[string]string{}
	for _, lease := range leases.Items {
		held[lease.Name] = leaserecord.MemberOf(ptr.Deref(lease.Spec.HolderIdentity, ""))
	}
	holders := map[string]string{}
	for _, s := range f.plan.Shards() {
		holder, ok := held[leaseapi.ShardLease(f.name, s.ID)]
		if !ok {
			return nil, fmt.Errorf("%s has no Lease", s.ID)
		}
		holders[s.ID.String()] = holder
	}
	return holders, nil
}

func (f *fleetRun) holders(t *testing.T) map[string]string {
	t.Helper()
	holders, err := f.readHolders(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return holders
}

func (f *fleetRun) heldBy(t *testing.T, member string) int {
	t.Helper()
	n := 0
	for _, holder := range f.holders(t) {
		if holder == member {
			n++
		}
	}
	return n
}

// checkHolders requires that all members, and nobody else, hold shards.
func (f *fleetRun) checkHolders(holders map[string]string) error {
	counts := map[string]int{}
	for id, holder := range holders {
		if f.members[holder] == nil {
			return fmt.Errorf("%s is held by %q", id, holder)
		}
		counts[holder]++
	}
	if len(counts) != len(f.members) {
		return fmt.Errorf("held by %v, want all of %v to hold some", counts, slices.Sorted(maps.Keys(f.members)))
	}
	return nil
}

// checkMetrics requires that the members' metrics agree with the Leases and with each other.
func (f *fleetRun) checkMetrics(ctx context.Context, holders map[string]string) error {
	hashes := map[string]string{}
	for name, m := range f.members {
		metrics, err := m.Metrics(ctx)
		if err != nil {
			return err
		}
		for id, holder := range holders {
			want := 0.0
			if holder == name {
				want = 1
			}
			ring, shardName, _ := strings.Cut(id, "/")
			owned, desired := harness.Labelled(metrics["flotilla_shard_owned"], "ring", ring, "shard", shardName), harness.Labelled(metrics["flotilla_shard_desired"], "ring", ring, "shard", shardName)
			if len(owned) != 1 || len(desired) != 1 || float64(owned[0].Value) != want || float64(desired[0].Value) != want {
				return fmt.Errorf("%s: %s, held by %s: owned %v, desired %v", name, id, holder, owned, desired)
			}
			ages := harness.Labelled(metrics["flotilla_shard_lease_renew_age_seconds"], "ring", ring, "shard", shardName)
			if len(ages) != int(want) || len(ages) == 1 && (ages[0].Value < 0 || float64(ages[0].Value) > leaseDuration.Seconds()) {
				return fmt.Errorf("%s: %s, held by %s: renewed %v ago", name, id, holder, ages)
			}
		}
		if err := f.checkOneMetrics(name, metrics, hashes); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleetRun) checkOneMetrics(name string, metrics testutil.Metrics, hashes map[string]string) error {
	for _, ring := range f.plan.Rings {
		members := harness.Labelled(metrics["flotilla_ring_members"], "ring", ring.Name)
		if len(members) != 1 || int(members[0].Value) != len(f.members) {
			return fmt.Errorf("%s says that ring %s has the members %v, want %d", name, ring.Name, members, len(f.members))
		}
		hash := harness.Labelled(metrics["flotilla_ring_hash_info"], "ring", ring.Name)
		if len(hash) != 1 || hash[0].Value != 1 {
			return fmt.Errorf("%s: metrics of the hash of ring %s: %v", name, ring.Name, hash)
		}
		value := string(hash[0].Metric["hash"])
		if other, ok := hashes[ring.Name]; ok && other != value {
			return fmt.Errorf("%s has hash %s for ring %s, another member %s", name, value, ring.Name, other)
		}
		hashes[ring.Name] = value
		if acquired := harness.Labelled(metrics["flotilla_shard_transitions_total"], "ring", ring.Name, "reason", "acquired"); len(acquired) > 1 {
			return fmt.Errorf("%s: acquisitions in ring %s: %v", name, ring.Name, acquired)
		}
	}
	if len(metrics["flotilla_shard_transitions_total"]) == 0 {
		return fmt.Errorf("%s has counted no transition", name)
	}
	if status := harness.Labelled(metrics["leader_election_master_status"], "name", harness.Stock); len(status) != 1 || status[0].Value != 1 {
		return fmt.Errorf("%s says that it leads: %v", name, status)
	}
	if foreign := metrics["flotilla_fleet_foreign_members"]; len(foreign) != 1 || foreign[0].Value != 0 {
		return fmt.Errorf("%s sees foreign members: %v", name, foreign)
	}
	if len(harness.Labelled(metrics["workqueue_depth"], "name", "deployment")) != 1 {
		return fmt.Errorf("%s has no workqueue_depth of the deployment controller", name)
	}
	return nil
}

// namespaces have the work and lie in eight different ranges.
var namespaces = []string{"orders", "rollout", "shop", "web", "data", "batch", "policy", "payments"}

// createWork creates a Deployment and a Job in each namespace.
func (f *fleetRun) createWork(t *testing.T) {
	t.Helper()
	for _, name := range namespaces {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := f.client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		labels := map[string]string{"app": "work"}
		template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "work"}, Spec: batchv1.JobSpec{Template: *template.DeepCopy()}}
		job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		if _, err := f.client.BatchV1().Jobs(name).Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		template.Labels = labels
		deployment := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "work"},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template,
			},
		}
		if _, err := f.client.AppsV1().Deployments(name).Create(t.Context(), deployment, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// change gives all Deployments another number of replicas.
func (f *fleetRun) change(t *testing.T) {
	t.Helper()
	f.replicas = 7 - f.replicas
	f.scale(t, int(f.replicas))
}

// scale changes all Deployments.
func (f *fleetRun) scale(t *testing.T, replicas int) {
	t.Helper()
	if err := f.scaleAll(t.Context(), replicas); err != nil {
		t.Fatal(err)
	}
}

func (f *fleetRun) scaleAll(ctx context.Context, replicas int) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	for _, namespace := range namespaces {
		if _, err := f.client.AppsV1().Deployments(namespace).Patch(ctx, "work", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// workDone waits until every Deployment has its replicas and every Job has succeeded.
func (f *fleetRun) workDone(t *testing.T, replicas int32) time.Duration {
	t.Helper()
	return harness.Eventually(t, harness.Patience, "work done", func(ctx context.Context) error {
		for _, namespace := range namespaces {
			deployment, err := f.client.AppsV1().Deployments(namespace).Get(ctx, "work", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if s := deployment.Status; s.ReadyReplicas != replicas || s.Replicas != replicas || s.ObservedGeneration != deployment.Generation {
				return fmt.Errorf("deployment in %s: %d of %d replicas are ready, want %d", namespace, s.ReadyReplicas, s.Replicas, replicas)
			}
			job, err := f.client.BatchV1().Jobs(namespace).Get(ctx, "work", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if job.Status.Succeeded != 1 || job.Status.CompletionTime == nil {
				return fmt.Errorf("job in %s: %+v", namespace, job.Status)
			}
		}
		return nil
	})
}

// judge judges the audit log and returns the report.
func (f *fleetRun) judge(t *testing.T) audit.Report {
	t.Helper()
	report := f.judgeAlone(t)
	if none := report.Unwritten(namespaces); len(none) > 0 {
		t.Errorf("nobody wrote in %v", none)
	}
	if o := report.Objects; min(o.Creates, o.Deletes, o.ReplicaSets) == 0 {
		t.Errorf("objects judged: %+v; want created and deleted pods, and ReplicaSets, among them", o)
	}
	released, expired := report.Gaps()
	t.Logf("%d writes, each by the holder of its shard", report.ByVersion+report.ByTime)
	t.Logf("unowned after a release: %s", spread(released))
	t.Logf("from the killed member's last renewal to the takeover: %s", spread(expired))
	return report
}

// judgeAlone is judge for a fleet without the usual work.
func (f *fleetRun) judgeAlone(t *testing.T) audit.Report {
	t.Helper()
	return judgeWrites(t, f.plane, &f.plan, f.disturbed)
}

// judgeUndisturbed judges the audit log of a control plane without faults of servers, networks or
// clocks, and without suspended members: nothing may be late, in flight or undecided. The fleet
// must have worked on objects that the judge has rules about.
func judgeUndisturbed(t *testing.T, plane *controlplane.ControlPlane) audit.Report {
	t.Helper()
	report := judgeWrites(t, plane, nil, false)
	if report.Objects.Total() == 0 {
		t.Errorf("objects judged: %+v; want some", report.Objects)
	}
	return report
}

// judgeWrites requires that the holders of the shards made all writes. Unless something disturbed
// the fleet, nothing may be late, in flight or undecided. A nil plan is that of judging.
func judgeWrites(t *testing.T, plane *controlplane.ControlPlane, plan *shard.Plan, disturbed bool) audit.Report {
	t.Helper()
	judge := harness.Judge
	if disturbed {
		judge = harness.JudgeDisturbed
	}
	report := judge(t, plane, judging(plan))
	if report.ByVersion == 0 {
		t.Error("no write was compared with its Lease by the version of its object")
	}
	return report
}

// judging returns the judge's options. A nil plan means the one that the fleet has written.
func judging(plan *shard.Plan) audit.Options {
	return audit.Options{Plan: plan, Controllers: catalogue.Identities()}
}

func spread(sorted []time.Duration) string {
	if len(sorted) == 0 {
		return "never"
	}
	round := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	return fmt.Sprintf("%d times, median %v, at most %v", len(sorted), round(sorted[len(sorted)/2]), round(sorted[len(sorted)-1]))
}

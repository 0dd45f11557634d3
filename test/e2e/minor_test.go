package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

var minor = flag.Bool("minor", false, "roll a fleet through builds with different catalogues, which takes minutes")

// The versions that one binary can imitate, by FLOTILLA_CATALOGUE:
// pkg/controllers/catalogue/other_on.go.
const (
	earlier = "earlier"
	present = ""
	later   = "later"
)

// notInAll are the controllers that some version lacks.
var notInAll = []string{
	names.TTLAfterFinishedController, names.ClusterRoleAggregationController, names.RootCACertificatePublisherController, names.TTLController,
}

// Where a plan has the controllers that some versions lack or have elsewhere.
const (
	siteOfEarlier = "pod-garbage-collector-controller in namespaces; root-ca-certificate-publisher-controller in namespaces; ttl-controller in nodes"
	siteOfPresent = "clusterrole-aggregation-controller in policy; pod-garbage-collector-controller in nodes; root-ca-certificate-publisher-controller in namespaces; " +
		"ttl-after-finished-controller in namespaces; ttl-controller in nodes"
	siteOfLater = "clusterrole-aggregation-controller in policy; pod-garbage-collector-controller in nodes; ttl-after-finished-controller in namespaces"
)

// TestMinorVersions rolls a fleet under load to the next version, to the one after that, and back,
// as 'kubectl set image' does: members stop and start one after another. Between the versions two
// controllers appear, two disappear, and one moves from ranges to a group. Nobody edits the plan.
// Controllers that neighbouring versions share run all the time, and the audit log shows whether
// two members ever ran the same.
func TestMinorVersions(t *testing.T) {
	if !*minor {
		t.Skip("left out: takes minutes, make long RUN=minor")
	}
	plane := harness.StartPlane(t, controlplane.Options{Nodes: 3, Scheduler: true, AuditObjects: true})
	f := newFleetRun(t, plane, shard.Plan{}, append([]string{"--shards=6", "--handoff-timeout=30s"}, quick...)...)
	r := &minorRun{fleetRun: f, binary: plantedBinary(t)}
	members := []string{"minor-2", "minor-1", "minor-0"}
	for _, name := range members {
		r.startAs(t, name, earlier)
	}
	r.adapted(t, siteOfEarlier)
	first := f.plan
	f.createWork(t)
	f.workDone(t, f.replicas)
	r.createFinished(t, "one")
	stop := f.burst(t)
	defer stop()

	r.roll(t, members, present, siteOfEarlier, siteOfPresent)
	r.finishedGo(t, "one")
	r.roll(t, members, later, siteOfPresent, siteOfLater)
	// A controller that no member has writes nothing.
	r.createNamespace(t, "without")
	// Back: what the earlier version lacks continues on the later version's members.
	r.roll(t, members, present, siteOfLater, siteOfPresent)
	r.requireRootCA(t, "without")
	r.roll(t, members, earlier, strings.Replace(siteOfPresent, "pod-garbage-collector-controller in nodes", "pod-garbage-collector-controller in namespaces", 1), siteOfEarlier)
	r.createFinished(t, "two")
	stop()
	f.scale(t, int(f.replicas))
	f.workDone(t, f.replicas)
	r.requireFinished(t, "two")
	t.Logf("plan generation %d at the end", f.plan.Generation)
	f.end(t)

	f.plan = first
	report := f.judge(t)
	r.requireGaps(t, report)
	r.requireOrder(t)
}

// minorRun is a fleet whose members have different versions.
type minorRun struct {
	*fleetRun
	binary string
	rolls  []rolled
}

// rolled is one roll of the fleet: until the last member of the old version was told to end, the
// plan must not have the controllers at these sites.
type rolled struct {
	began, last time.Time
	sites       string
}

func (r *minorRun) startAs(t *testing.T, name, version string) {
	t.Helper()
	t.Setenv("FLOTILLA_CATALOGUE", version)
	spec := harness.Member(name, r.flags...)
	spec.Binary = r.binary
	r.members[name] = harness.Run(t, r.plane, spec)
	r.logs[name] = r.members[name]
}

// replace restarts a member in another version, as a StatefulSet does, and waits until it is ready.
func (r *minorRun) replace(t *testing.T, name, version string) {
	t.Helper()
	m := r.members[name]
	delete(r.members, name)
	m.MustTerminate(t)
	if status := m.MustExit(t, grace); status != 0 {
		t.Errorf("%s ended with status %d, want 0", name, status)
	}
	r.startAs(t, name, version)
	harness.Eventually(t, leaseDuration+harness.Patience, name+" is ready", r.members[name].Ready)
}

// roll restarts one member after another in another version, as a StatefulSet does, and waits each
// time until it is ready. before is where the plan has the controllers while a member of the old
// version is left.
func (r *minorRun) roll(t *testing.T, members []string, version, before, after string) {
	t.Helper()
	roll := rolled{began: time.Now(), sites: after}
	for i, name := range members {
		roll.last = time.Now()
		r.replace(t, name, version)
		if i < len(members)-1 {
			r.adapted(t, before)
		}
	}
	r.rolls = append(r.rolls, roll)
	began := time.Now()
	r.adapted(t, after)
	t.Logf("all are of version %q; the plan was adapted and followed after another %.2f s", version, time.Since(began).Seconds())
}

// requireOrder requires that no plan was adapted to a new version while the fleet still had a
// member of the old one.
func (r *minorRun) requireOrder(t *testing.T) {
	t.Helper()
	plans := 0
	err := harness.EventsOf(r.plane.AuditLog(), func(e *harness.Event) error {
		if !e.Succeeded() || !e.Mutating() || !e.IsLease() || e.ObjectRef.Name != leaseapi.PlanLease(r.name) {
			return nil
		}
		var lease coordinationv1.Lease
		if err := e.Answer(&lease); err != nil {
			return err
		}
		plan, err := leaseapi.PlanOn(&lease)
		if errors.Is(err, leaseapi.ErrNoPlan) {
			return nil // somebody has only claimed it
		}
		if err != nil {
			return err
		}
		plans++
		at := e.RequestReceivedTimestamp.Time
		for _, roll := range r.rolls {
			if at.After(roll.began) && at.Before(roll.last) && sitesIn(plan) == roll.sites {
				t.Errorf("%v before the last old member was told to end, generation %d of the plan already had %s", roll.last.Sub(at), plan.Generation, roll.sites)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if plans < len(r.rolls) {
		t.Errorf("the audit log has %d plans for %d rolls: the test reads it wrongly", plans, len(r.rolls))
	}
}

// adapted waits until the plan has the controllers at these sites, and is followed.
func (r *minorRun) adapted(t *testing.T, sites string) {
	t.Helper()
	harness.Eventually(t, leaseDuration+harness.Patience, "the plan has "+sites, func(ctx context.Context) error {
		lease, err := r.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, leaseapi.PlanLease(r.name), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if r.plan, err = leaseapi.PlanOn(lease); err != nil {
			return err
		}
		if got := sitesIn(r.plan); got != sites {
			return fmt.Errorf("the plan, generation %d, has %s", r.plan.Generation, got)
		}
		return errors.Join(r.checkFollowed(ctx), r.checkLacks(ctx))
	})
}

// sitesIn returns where a plan has the controllers that differ between versions.
func sitesIn(plan shard.Plan) string {
	var sites []string
	for _, s := range plan.Shards() {
		where := s.Group
		if s.Namespaced() {
			where = s.Ring
		}
		for _, c := range plan.ControllersOf(s.ID) {
			if c == names.PodGarbageCollectorController || slices.Contains(notInAll, c) {
				sites = append(sites, c+" in "+where)
			}
		}
	}
	slices.Sort(sites)
	return strings.Join(slices.Compact(sites), "; ")
}

// checkLacks checks that no shard lacks a controller that all versions have.
func (r *minorRun) checkLacks(ctx context.Context) error {
	for _, s := range r.plan.Shards() {
		lease, err := r.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, leaseapi.ShardLease(r.name, s.ID), metav1.GetOptions{})
		if err != nil {
			return err
		}
		lacks := lease.Annotations[leaseapi.LacksAnnotation]
		if strings.Contains(lacks, names.PodGarbageCollectorController) {
			return fmt.Errorf("%s runs without %s", s.ID, lacks)
		}
		if lacks != "" && s.Group != "" {
			return fmt.Errorf("group %s is held by %s without %s, which another member has", s.Group, ptr.Deref(lease.Spec.HolderIdentity, ""), lacks)
		}
	}
	return nil
}

// createFinished creates a Job in each namespace that should be deleted as soon as it is done.
func (r *minorRun) createFinished(t *testing.T, name string) {
	t.Helper()
	for _, namespace := range namespaces {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{
			TTLSecondsAfterFinished: ptr.To[int32](1),
			Template:                corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "none"}}}},
		}}
		if _, err := r.client.BatchV1().Jobs(namespace).Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// finishedGo waits until these Jobs are gone, because the controller that deletes them has started
// everywhere.
func (r *minorRun) finishedGo(t *testing.T, name string) {
	t.Helper()
	harness.Eventually(t, harness.Patience, "Jobs that are done are deleted", func(ctx context.Context) error {
		for _, namespace := range namespaces {
			if _, err := r.client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("job %s in %s exists: %w", name, namespace, err)
			}
		}
		return nil
	})
}

// requireFinished waits until the Jobs are done, and requires that they stay, because no member has
// the controller that would delete them.
func (r *minorRun) requireFinished(t *testing.T, name string) {
	t.Helper()
	harness.Eventually(t, harness.Patience, "Jobs are done and stay", func(ctx context.Context) error {
		for _, namespace := range namespaces {
			job, err := r.client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			// The controller would delete it a second after that.
			if done := job.Status.CompletionTime; done == nil || time.Since(done.Time) < 5*time.Second {
				return fmt.Errorf("job in %s: %+v", namespace, job.Status)
			}
		}
		return nil
	})
}

func (r *minorRun) createNamespace(t *testing.T, name string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := r.client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, harness.Patience, "the namespace has its service account", func(ctx context.Context) error {
		_, err := r.client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if _, err := r.client.CoreV1().ConfigMaps(name).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("no member has the controller of kube-root-ca.crt, but it exists: %v", err)
	}
}

// requireRootCA waits until the restarted controller has caught up.
func (r *minorRun) requireRootCA(t *testing.T, namespace string) {
	t.Helper()
	harness.Eventually(t, harness.Patience, "the namespace has kube-root-ca.crt", func(ctx context.Context) error {
		_, err := r.client.CoreV1().ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err
	})
}

// requireGaps logs how long each moved part was unowned, and requires short gaps, because nobody
// was killed.
func (r *minorRun) requireGaps(t *testing.T, report audit.Report) {
	t.Helper()
	all := report.Successions()
	var gaps []time.Duration
	for _, s := range all {
		if !s.Planned {
			t.Errorf("%s of %s expired before %s", s.Predecessor, s.Before, s.Successor)
		}
		if !slices.ContainsFunc(all, func(other audit.Succession) bool { return passedBefore(other, s) }) {
			gaps = append(gaps, s.Gap())
		}
	}
	slices.Sort(gaps)
	if len(gaps) == 0 {
		t.Fatal("nothing has moved from one shard to another")
	}
	t.Logf("parts that moved to another shard were unowned for: p50 %v, p99 %v, worst %v (%d parts)",
		audit.Percentile(gaps, 50), audit.Percentile(gaps, 99), audit.Percentile(gaps, 100), len(gaps))
	if worst := audit.Percentile(gaps, 100); worst > leaseDuration {
		t.Errorf("a part was unowned for %v, longer than a takeover", worst)
	}
}

// passedBefore reports whether another succession left only controllers to this one that some
// versions lack: those that ended with one version and began with another.
func passedBefore(other, s audit.Succession) bool {
	if other.Predecessor != s.Predecessor || !other.Ended.Equal(s.Ended) || other.Gap() >= s.Gap() || !other.Extent.Range.Overlaps(s.Extent.Range) {
		return false
	}
	for _, c := range s.Extent.Controllers {
		if !slices.Contains(other.Extent.Controllers, c) && !slices.Contains(notInAll, c) {
			return false
		}
	}
	return true
}

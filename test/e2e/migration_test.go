package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// migration is a control plane with stock replicas and members of a fleet.
type migration struct {
	plane  *controlplane.ControlPlane
	client kubernetes.Interface
	lease  string
	dir    string
	// stockFlags are given to all stock replicas.
	stockFlags []string
	stock      []*harness.Manager // running, in the order of their start
	members    []*harness.Manager
	killed     []string // incarnations
	started    int      // stock replicas
	marks      int      // objects of works
}

func startMigration(t *testing.T, lease string, stockFlags ...string) *migration {
	t.Helper()
	return startMigrationOn(t, controlplane.Options{AuditObjects: true}, lease, stockFlags...)
}

// startMigrationOn is startMigration on a control plane with other options.
func startMigrationOn(t *testing.T, opts controlplane.Options, lease string, stockFlags ...string) *migration {
	t.Helper()
	plane := harness.StartPlane(t, opts)
	return &migration{
		plane: plane, client: harness.Client(t, plane), lease: lease, dir: t.TempDir(), stockFlags: stockFlags,
	}
}

// startStock starts a stock replica under a new name, which its User-Agent shows.
func (m *migration) startStock(t *testing.T) {
	t.Helper()
	m.started++
	name := fmt.Sprintf("stock-%d", m.started)
	path := filepath.Join(m.dir, name)
	if err := os.Symlink(harness.Binary(t, m.plane, harness.Stock), path); err != nil {
		t.Fatal(err)
	}
	replica := harness.Run(t, m.plane, harness.Spec{Name: name, Binary: path, Flags: m.stockFlags})
	m.stock = append(m.stock, replica)
	harness.Eventually(t, harness.Patience, name+" serves", replica.Answers("/healthz", http.StatusOK))
}

// startFleet starts members. If a stock replica leads, it waits until they say that they wait for
// it.
func (m *migration) startFleet(t *testing.T, n int, flags ...string) {
	t.Helper()
	for i := range n {
		m.members = append(m.members, harness.Run(t, m.plane, harness.Member(fmt.Sprintf("fleet-%d", i), flags...)))
	}
	if m.stockLeads(t.Context()) == nil {
		m.fleetWaits(t)
	}
}

// fleetWaits requires that every member says who holds the leader lock, and that no shard is held.
func (m *migration) fleetWaits(t *testing.T) {
	t.Helper()
	for _, member := range m.members {
		harness.Eventually(t, harness.Patience, "the fleet waits for the leader lock", func(ctx context.Context) error {
			holder, err := m.holder(ctx)
			if err != nil {
				return err
			}
			return errors.Join(
				m.joined(ctx, member.Name()),
				member.Answers("/readyz", http.StatusInternalServerError)(ctx),
				member.Says("/readyz/fleet", fmt.Sprintf("the leader lock, Lease %s, is held by %q", m.lease, holder))(ctx))
		})
	}
	leases, err := m.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{LabelSelector: leaseapi.ShardLabel})
	if err != nil {
		t.Fatal(err)
	}
	for _, lease := range leases.Items {
		if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != "" && !slices.Contains(m.killed, holder) {
			t.Errorf("the fleet waits, and %s is held by %s", lease.Name, holder)
		}
	}
}

// joined returns nil once the member has its own Lease. It may see the holder of the leader lock
// before that.
func (m *migration) joined(ctx context.Context, member string) error {
	name := leaserecord.MemberLease(harness.Fleet, member)
	lease, err := m.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder == "" || slices.Contains(m.killed, holder) {
		return fmt.Errorf("%s is held by %q", name, holder)
	}
	return nil
}

// fleetRuns waits until the fleet holds the leader lock and runs every shard.
func (m *migration) fleetRuns(t *testing.T) {
	t.Helper()
	for _, member := range m.members {
		harness.Eventually(t, harness.Patience, "the fleet runs", member.Complete)
	}
	if holder, err := m.holder(t.Context()); err != nil || holder != leaseapi.LeaderLockIdentity(harness.Fleet) {
		t.Errorf("the fleet runs, and %s is held by %q: %v", m.lease, holder, err)
	}
}

func (m *migration) stopFleet(t *testing.T) {
	t.Helper()
	for _, member := range m.members {
		member.MustTerminate(t)
	}
	for _, member := range m.members {
		if status := member.MustExit(t, harness.Patience); status != 0 {
			t.Errorf("%s ended with status %d, want 0", member.Name(), status)
		}
	}
	m.members = nil
}

// killFleet kills all members at once.
func (m *migration) killFleet(t *testing.T) {
	t.Helper()
	for _, member := range m.members {
		lease, err := m.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), leaserecord.MemberLease(harness.Fleet, member.Name()), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		m.killed = append(m.killed, ptr.Deref(lease.Spec.HolderIdentity, ""))
	}
	for _, member := range m.members {
		if err := member.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	for _, member := range m.members {
		<-member.Done()
	}
	m.members = nil
}

func (m *migration) holder(ctx context.Context) (string, error) {
	lease, err := m.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, m.lease, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return ptr.Deref(lease.Spec.HolderIdentity, ""), nil
}

// stockLeads is the condition that a stock replica holds the Lease.
func (m *migration) stockLeads(ctx context.Context) error {
	holder, err := m.holder(ctx)
	if err == nil && (holder == "" || holder == leaseapi.LeaderLockIdentity(harness.Fleet)) {
		err = fmt.Errorf("%s is held by %q", m.lease, holder)
	}
	return err
}

// mostRaces is how often in a row another stock replica may be quicker than the fleet: they check
// three times a second.
const mostRaces = 8

// wayIn stops stock leaders until the fleet has the leader lock, waits until it runs, and returns
// how often another stock replica was quicker.
func (m *migration) wayIn(t *testing.T) int {
	t.Helper()
	for lost := range mostRaces {
		if m.stopStockLeader(t) {
			m.fleetRuns(t)
			return lost
		}
		t.Log("another stock replica was quicker than the fleet and is stopped as well")
	}
	t.Fatalf("a stock replica was quicker than the fleet %d times in a row", mostRaces)
	return mostRaces
}

// stopStockLeader stops the leading stock replica as a kubelet does, and reports whether the fleet
// then has the leader lock. If another stock replica has it, a new standby replaces the stopped
// one.
func (m *migration) stopStockLeader(t *testing.T) bool {
	t.Helper()
	var leader int
	harness.Eventually(t, harness.Patience, "a stock replica says that it leads", func(context.Context) error {
		leader = slices.IndexFunc(m.stock, func(r *harness.Manager) bool {
			return harness.HasLine(r.MustLog(t), "uccessfully acquired lease", "kube-system/"+m.lease)
		})
		if leader < 0 {
			return errors.New("none does")
		}
		return nil
	})
	before, err := m.holder(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	replica := m.stock[leader]
	m.stock = slices.Delete(m.stock, leader, leader+1)
	replica.MustTerminate(t)
	var after string
	harness.Eventually(t, harness.Patience, "the leader lock has another holder", func(ctx context.Context) error {
		if after, err = m.holder(ctx); err == nil && (after == "" || after == before) {
			err = fmt.Errorf("%s is held by %q", m.lease, after)
		}
		return err
	})
	replica.MustExit(t, harness.Patience)
	if after == leaseapi.LeaderLockIdentity(harness.Fleet) {
		return true
	}
	m.startStock(t)
	return false
}

// works requires that whatever controllers run carry out something new, in a new namespace.
func (m *migration) works(t *testing.T) {
	t.Helper()
	m.marks++
	name := fmt.Sprintf("mark-%d", m.marks)
	ctx := t.Context()
	if _, err := m.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.client.AppsV1().Deployments(name).Create(ctx, newDeployment("work", 2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.client.BatchV1().Jobs(name).Create(ctx, newJob("work"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, harness.Patience, "new work in "+name+" is carried out", func(ctx context.Context) error {
		deployment, err := m.client.AppsV1().Deployments(name).Get(ctx, "work", metav1.GetOptions{})
		if err != nil {
			return err
		}
		job, err := m.client.BatchV1().Jobs(name).Get(ctx, "work", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if deployment.Status.Replicas != 2 || job.Status.Active != 1 {
			return fmt.Errorf("%d replicas and %d pods of a job, want 2 and 1", deployment.Status.Replicas, job.Status.Active)
		}
		return nil
	})
}

func newDeployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}
}

func newJob(name string) *batchv1.Job {
	template := newDeployment(name, 1).Spec.Template
	template.Labels, template.Spec.RestartPolicy = nil, corev1.RestartPolicyNever
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{Template: template}}
}

// loadPeriod is the time between the load's changes: slow enough for a busy machine, and fast
// enough that a new leader writes at once.
const loadPeriod = 200 * time.Millisecond

// load alternately scales Deployments and creates Jobs until the test ends or stop is called.
func (m *migration) load(t *testing.T) (stop func()) {
	t.Helper()
	for _, namespace := range namespaces {
		if _, err := m.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := m.client.AppsV1().Deployments(namespace).Create(t.Context(), newDeployment("load", 1), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(loadPeriod)
		defer ticker.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if err := m.change(ctx, i); err != nil && ctx.Err() == nil {
				t.Errorf("load: %v", err)
				return
			}
		}
	})
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

func (m *migration) change(ctx context.Context, i int) error {
	namespace, round := namespaces[i%len(namespaces)], i/len(namespaces)
	deployments := m.client.AppsV1().Deployments(namespace)
	scale, err := deployments.GetScale(ctx, "load", metav1.GetOptions{})
	if err != nil {
		return err
	}
	scale.Spec.Replicas = int32(1 + round%3)
	if _, err = deployments.UpdateScale(ctx, "load", scale, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
		return err
	}
	if round%8 == 0 {
		_, err = m.client.BatchV1().Jobs(namespace).Create(ctx, newJob(fmt.Sprintf("load-%d", round)), metav1.CreateOptions{})
		return err
	}
	return nil
}

// everyWrite counts every write as one that requires the stock leader's Lease.
func everyWrite(*harness.Event) bool { return true }

// judge checks in the audit log that every write that requires the leader lock came from its
// holder. It prints what the stock controller manager sends after releasing its Lease, because it
// releases and stops at the same time. But nothing may take effect after a successor's first write.
func (m *migration) judge(t *testing.T, lease string, counts func(*harness.Event) bool) *lockLog {
	t.Helper()
	log := lockLogOf(t, m.plane, lease, counts)
	byProcess := map[string]int{}
	for _, w := range log.writes {
		byProcess[w.process]++
	}
	t.Logf("writes that need %s: %v", lease, byProcess)
	var flying, trailing []time.Duration
	for _, f := range log.faults() {
		switch {
		case f.write.process == harness.Fleet || f.late == never || log.succeeded(f.write):
			t.Errorf("%v", f)
		case f.late <= 0:
			flying = append(flying, -f.late)
		default:
			trailing = append(trailing, f.late)
		}
	}
	slices.Sort(trailing)
	t.Logf("writes of stock replicas in transit when they released %s: %d; sent after that: %s", lease, len(flying), spread(trailing))
	m.judgeFleet(t)
	return log
}

// judgeFleet also checks the fleet's own promises in the audit log, by its shards' Leases and its
// leader lock.
func (m *migration) judgeFleet(t *testing.T) {
	t.Helper()
	report := harness.Judge(t, m.plane, judging(nil))
	writes := report.ByVersion + report.ByTime
	if report.AgainstLeaderLock < writes || report.Objects.Creates == 0 {
		t.Errorf("%d writes of the fleet were judged, %d of them with its leader lock, objects %+v; want all, and created pods", writes, report.AgainstLeaderLock, report.Objects)
	}
	t.Logf("%d writes of the fleet, each by the holder of its shard and under its leader lock", writes)
}

package e2e

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/controllers"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/test/audit"
	"github.com/flotilla-kube/flotilla/test/controlplane"
)

var (
	rollouts = flag.Int("rollouts", 1, "rolling restarts that TestHandoffs makes")
	objects  = flag.Int("objects", 400, "ConfigMaps that TestHandoffs fills the caches with")
)

// mostTrips is how many times a shard may move in one rolling restart: away, and back.
const mostTrips = 2

// TestHandoffs restarts all members of a fleet one after the other under changes, then scales it out and in, with default
// Lease timings. Every move must be a handoff with warm caches, no shard may make more trips than it must, and the audit
// log says how long shards had no holder.
func TestHandoffs(t *testing.T) {
	plan, err := controllers.DefaultPlan(defaultShards)
	if err != nil {
		t.Fatal(err)
	}
	plane := startPlane(t, controlplane.Options{Nodes: 3, Scheduler: true, AuditObjects: true})
	f := &fleetRun{
		plane: plane, plan: plan, client: newClient(t, plane), admin: httpClient(t, plane.AdminConfig()),
		members: map[string]*manager{},
	}
	names := []string{"fleet-0", "fleet-1", "fleet-2"}
	logs := map[string]*manager{} // a process that is started again writes on in the log of its name
	start := func(name string) {
		// On a busy machine, filling caches may take longer than the default handoff timeout, and the move would be cold.
		f.members[name] = startMember(t, plane, name, "--rebalance-delay=1s", "--handoff-timeout=30s")
		logs[name] = f.members[name]
	}
	for _, name := range names {
		start(name)
	}
	f.settle(t, leaseDuration+patience)
	f.createWork(t)
	f.fill(t, *objects)
	f.workDone(t, 3)
	coldBefore := begun(t, logs, `caches="cold"`)

	replicas := 3
	for round := range *rollouts {
		before := f.terms(t)
		for i := len(names) - 1; i >= 0; i-- {
			m := f.members[names[i]]
			delete(f.members, names[i])
			if err := m.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			replicas = 7 - replicas
			f.scale(t, replicas)
			if status := m.exit(t, patience); status != 0 {
				t.Errorf("%s ended with status %d, want 0", names[i], status)
			}
			start(names[i])
			f.settle(t, patience)
		}
		for id, term := range f.terms(t) {
			if trips := term - before[id]; trips > mostTrips {
				t.Errorf("%s made %d trips in rolling restart %d, want at most %d", id, trips, round+1, mostTrips)
			}
		}
		f.workDone(t, int32(replicas))
	}
	start("fleet-3")
	f.settle(t, patience)
	f.stop(t, "fleet-3")
	f.settle(t, patience)
	f.end(t)

	warm, cold := begun(t, logs, `caches="warm"`), begun(t, logs, `caches="cold"`)-coldBefore
	t.Logf("%d shards began with warm caches, %d with empty ones", warm, cold)
	if cold > 0 {
		t.Errorf("%d planned moves were cold", cold)
	}
	report := f.judge(t)
	released, _ := report.Gaps()
	t.Logf("unowned time of %d handoffs: p50 %v, p99 %v, worst %v; %d overlaps, %d writes in flight at a release", len(released),
		audit.Percentile(released, 50), audit.Percentile(released, 99), audit.Percentile(released, 100), len(report.Overlaps), len(report.InFlight))
}

// begun counts the lines with this text in all logs.
func begun(t *testing.T, logs map[string]*manager, text string) int {
	t.Helper()
	n := 0
	for _, m := range logs {
		n += strings.Count(m.log(t), text)
	}
	return n
}

// stop ends a member and waits for it.
func (f *fleetRun) stop(t *testing.T, name string) {
	t.Helper()
	m := f.members[name]
	delete(f.members, name)
	if err := m.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := m.exit(t, patience); status != 0 {
		t.Errorf("%s ended with status %d, want 0", name, status)
	}
}

// terms returns the term of each shard's Lease.
func (f *fleetRun) terms(t *testing.T) map[string]int32 {
	t.Helper()
	list, err := f.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{LabelSelector: fleet.ShardLabel})
	if err != nil {
		t.Fatal(err)
	}
	terms := map[string]int32{}
	for _, lease := range list.Items {
		terms[lease.Name] = ptr.Deref(lease.Spec.LeaseTransitions, 0)
	}
	return terms
}

// fill creates ConfigMaps in all namespaces of the work.
func (f *fleetRun) fill(t *testing.T, n int) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make(chan error, len(namespaces))
	for i, namespace := range namespaces {
		wg.Go(func() {
			errs <- f.fillNamespace(t.Context(), namespace, n/len(namespaces)+min(1, max(0, n%len(namespaces)-i)))
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (f *fleetRun) fillNamespace(ctx context.Context, namespace string, n int) error {
	for i := range n {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("filler-%d", i)}}
		if _, err := f.client.CoreV1().ConfigMaps(namespace).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

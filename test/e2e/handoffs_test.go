package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/test/harness"
)

var (
	rollouts = flag.Int("rollouts", 1, "number of rolling restarts in TestFleet")
	objects  = flag.Int("objects", 400, "number of ConfigMaps with which TestFleet fills the caches")
)

// mostTrips is how many times a shard may move in one rolling restart: away, and back.
const mostTrips = 2

// roll restarts all members one after another during changes. No shard may move more often than it
// must.
func (f *fleetRun) roll(t *testing.T) {
	t.Helper()
	before := f.terms(t)
	names := slices.Sorted(maps.Keys(f.members))
	slices.Reverse(names)
	for _, name := range names {
		m := f.members[name]
		delete(f.members, name)
		m.MustTerminate(t)
		f.change(t)
		if status := m.MustExit(t, harness.Patience); status != 0 {
			t.Errorf("%s ended with status %d, want 0", name, status)
		}
		f.start(t, name)
		f.settle(t, harness.Patience)
	}
	for id, term := range f.terms(t) {
		if trips := term - before[id]; trips > mostTrips {
			t.Errorf("%s moved %d times in a rolling restart, want at most %d", id, trips, mostTrips)
		}
	}
	f.workDone(t, f.replicas)
}

// begun counts, in all logs, the shards that began with "warm" or "cold" caches.
func (f *fleetRun) begun(t *testing.T, caches string) int {
	t.Helper()
	n := 0
	for _, m := range f.logs {
		n += strings.Count(m.MustLog(t), fmt.Sprintf("caches=%q", caches))
	}
	return n
}

// terms returns the term of each shard's Lease.
func (f *fleetRun) terms(t *testing.T) map[string]int32 {
	t.Helper()
	list, err := f.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{LabelSelector: leaseapi.ShardLabel + "," + leaseapi.FleetLabel + "=" + f.name})
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

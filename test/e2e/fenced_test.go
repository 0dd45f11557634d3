package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	fencedLeaseDuration = 10 * time.Second
	fencedDelay         = 200 * time.Millisecond
)

// TestFencedByAPIServer suspends a member for longer than its Leases last and resumes it in the
// middle of a burst of work. According to the audit log, each credential was on the member's Lease
// before it was used. The dead member was fenced before others ran its shards, and nothing that it
// sent later was accepted.
func TestFencedByAPIServer(t *testing.T) {
	t.Parallel()
	plan, err := catalogue.DefaultPlan(defaultShards)
	if err != nil {
		t.Fatal(err)
	}
	plane := harness.StartPlane(t, controlplane.Options{BinDir: os.Getenv(binVariable), AuditObjects: true})
	installFence(t, plane)
	f := newFleetRun(t, plane, plan)
	f.disturbed = true
	for _, name := range []string{"one", "two", "three"} {
		f.members[name] = harness.Run(t, plane, harness.Member(name, "--rebalance-delay=1s", "--leader-elect-lease-duration="+fencedLeaseDuration.String(),
			"--leader-elect-renew-deadline=7s", "--leader-elect-retry-period=1s", "--fence-delay="+fencedDelay.String()))
	}
	t.Logf("three members ready after %v", harness.Eventually(t, harness.Patience, "every shard held", f.allHeld))
	f.createWork(t)
	stop := f.burst(t)
	defer stop()
	f.caughtUp(t)

	victim := f.members["two"]
	incarnation := f.incarnation(t, "two")
	delete(f.members, "two")
	held := f.heldBy(t, "two")
	began := time.Now()
	if err := victim.Suspend(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = victim.Resume() })
	harness.Eventually(t, fencedLeaseDuration+harness.Patience, "its shards held by others", f.allHeld)
	t.Logf("two was suspended; its %d shards were held by others after %.2f s", held, time.Since(began).Seconds())
	f.awaitMark(t, incarnation)
	f.awaitFence(t)
	acts := time.Now() // anything accepted after this is a fault, however busy the machine is
	if err := victim.Resume(); err != nil {
		t.Fatal(err)
	}
	resumed := time.Now()
	if status := victim.MustExit(t, grace); status == 0 {
		t.Error("a fenced member ended with status 0")
	}
	t.Logf("two ended %.2f s after it was resumed", time.Since(resumed).Seconds())
	stop()
	t.Logf("the others had caught up with the burst after %v", f.caughtUp(t))
	f.checkFenceMetrics(t)
	f.end(t)
	f.judge(t)
	judgeFence(t, readFenceLog(t, plane.AuditLog()), incarnation, acts)
}

// allHeld requires that members that should run hold all shards.
func (f *fleetRun) allHeld(ctx context.Context) error {
	holders, err := f.readHolders(ctx)
	if err != nil {
		return err
	}
	return f.checkHolders(holders)
}

// incarnation returns the holder of a member's Lease.
func (f *fleetRun) incarnation(t *testing.T, member string) string {
	t.Helper()
	lease, err := f.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), leaserecord.MemberLease(harness.Fleet, member), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

// awaitMark waits until the incarnation is fenced. The test continues without a mark, because the
// audit log then explains more.
func (f *fleetRun) awaitMark(t *testing.T, incarnation string) {
	t.Helper()
	name := leaserecord.MemberLease(harness.Fleet, leaserecord.MemberOf(incarnation))
	_, err := harness.Await(t.Context(), harness.Patience, incarnation+" is fenced", func(ctx context.Context) error {
		lease, err := f.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
		if err == nil && !leaserecord.From(lease).Fenced(incarnation) {
			err = fmt.Errorf("%s has no mark", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// awaitFence waits until the API server acts on all existing marks. It sees Leases in the order of
// their changes, so it does once it refuses a credential of another fleet's member that is fenced
// here.
func (f *fleetRun) awaitFence(t *testing.T) {
	t.Helper()
	probe := &credential{t: t, admin: f.client, plane: f.plane}
	probe.mint("replicaset-controller")
	holder := leaserecord.NewIncarnation("probe")
	probe.mark(probe.leaseIn("another-fleet", "probe", holder), holder)
	harness.Eventually(t, harness.Patience, "a credential that was fenced later is refused", func(context.Context) error { return probe.refused() })
}

// burst scales all Deployments up and down until stop is called, which may be more than once.
func (f *fleetRun) burst(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			if err := f.scaleAll(ctx, 2+n%4); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
		}
	})
	return sync.OnceFunc(func() { cancel(); running.Wait() })
}

// caughtUp waits until the controllers have seen each Deployment's current state, or a later one.
func (f *fleetRun) caughtUp(t *testing.T) time.Duration {
	t.Helper()
	want := map[string]int64{}
	return harness.Eventually(t, harness.Patience, "the work of every namespace goes on", func(ctx context.Context) error {
		for _, namespace := range namespaces {
			deployment, err := f.client.AppsV1().Deployments(namespace).Get(ctx, "work", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if want[namespace] == 0 {
				want[namespace] = deployment.Generation
			}
			if seen := deployment.Status.ObservedGeneration; seen < want[namespace] {
				return fmt.Errorf("deployment in %s: generation %d has been seen, want %d", namespace, seen, want[namespace])
			}
		}
		return nil
	})
}

// checkFenceMetrics requires that the members know of the policy, and that one of them has fenced
// the dead member.
func (f *fleetRun) checkFenceMetrics(t *testing.T) {
	t.Helper()
	marks := 0.0
	for _, name := range slices.Sorted(maps.Keys(f.members)) {
		m := f.members[name]
		// A shard without work may still be filling its caches.
		harness.Eventually(t, harness.Patience, name+" is ready", m.Ready)
		metrics, err := m.Metrics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if policy := metrics["flotilla_fence_policy"]; len(policy) != 1 || policy[0].Value != 1 {
			t.Errorf("%s: the policy's metric is %v, want 1", name, policy)
		}
		for _, sample := range harness.Labelled(metrics["flotilla_fence_marks_total"], "result", "fenced") {
			marks += float64(sample.Value)
		}
	}
	if marks < 1 {
		t.Errorf("%v marks are counted, want 1 or more", marks)
	}
}

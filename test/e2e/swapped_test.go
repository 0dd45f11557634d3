package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// stockTimings are flags of both sides.
var stockTimings = quick[:3]

// heldThroughout requires that a stock standby or a waiting fleet leaves the leader lock where it
// is for two lease durations.
func (m *migration) heldThroughout(t *testing.T, by string) {
	t.Helper()
	began := time.Now()
	harness.Eventually(t, harness.Patience, "two lease durations pass", func(ctx context.Context) error {
		if holder, err := m.holder(ctx); err != nil || holder != by {
			return fmt.Errorf("%w: %s is held by %q, want %q: %w", harness.ErrGiveUp, m.lease, holder, by, err)
		}
		if waited := time.Since(began); waited < 2*quickLease {
			return fmt.Errorf("%v have passed", waited)
		}
		return nil
	})
}

// startSwapped starts a member with exactly the stock replicas' flags: only the image was swapped.
func (m *migration) startSwapped(t *testing.T) {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	m.members = append(m.members, harness.Run(t, m.plane, harness.Spec{Name: strings.ToLower(host), Flags: m.stockFlags}))
}

// holdsNothing requires that no shard's Lease has a holder.
func (m *migration) holdsNothing(t *testing.T) {
	t.Helper()
	leases, err := m.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{LabelSelector: leaseapi.ShardLabel})
	if err != nil {
		t.Fatal(err)
	}
	held := slices.DeleteFunc(leases.Items, func(l coordinationv1.Lease) bool { return ptr.Deref(l.Spec.HolderIdentity, "") == "" })
	if len(held) > 0 {
		t.Fatalf("a stock leader works, but the fleet holds %d shards", len(held))
	}
}

// TestSwappedImage swaps the binary on one node of a control plane where another node has a stock
// leader. The member runs nothing until that leader has gone, and a stock replica that is then
// started next to it never leads. When all members are killed at once, the replica leads once the
// fleet's Lease has expired, and a restarted fleet waits.
func TestSwappedImage(t *testing.T) {
	t.Parallel()
	m := startMigration(t, stockLease, stockTimings...)
	m.startStock(t)
	m.works(t)
	m.load(t)
	leader, err := m.holder(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m.startSwapped(t)
	m.heldThroughout(t, leader)
	m.holdsNothing(t)
	m.fleetWaits(t)

	m.stopStockLeader(t)
	m.fleetRuns(t)
	m.works(t)
	m.startStock(t)
	m.startFleet(t, 1, quick...)
	m.heldThroughout(t, leaseapi.LeaderLockIdentity(harness.Fleet))
	m.works(t)
	m.fleetRuns(t)

	began := time.Now()
	m.killFleet(t)
	harness.Eventually(t, harness.Patience, "the stock standby leads", m.stockLeads)
	t.Logf("the stock standby led %v after the fleet was killed", time.Since(began).Round(10*time.Millisecond))
	m.works(t)
	m.startFleet(t, 2, quick...)
	m.works(t)
	m.fleetWaits(t)
	for _, v := range m.judge(t, stockLease, everyWrite).moves() {
		t.Log(v)
		if v.released || v.early {
			t.Errorf("%s: the new holder did not wait until the Lease had expired", v)
		}
	}
}

// TestFreshFleetBegins measures how long members take in a cluster that has seen no fleet until
// they run every shard, with the default leader lock and without one. Nobody should wait for the
// leader lock, or for another member that has it.
func TestFreshFleetBegins(t *testing.T) {
	plane := sharedPlane(t)
	// At the same time, so that other work on the machine delays both.
	locks := []string{"none", "default"}
	fleets, took := make([][]*harness.Manager, len(locks)), make([]time.Duration, len(locks))
	began := time.Now()
	for i := range 3 {
		for f, lock := range locks {
			// With a longer delay, a fleet that begins just before its last member joins would have
			// to wait again, and the other one perhaps not.
			flags := append([]string{"--fleet-name=fresh-" + lock, "--rebalance-delay=1s"}, stockTimings...)
			if lock == "none" {
				flags = append(flags, "--leader-lock=none")
			}
			fleets[f] = append(fleets[f], harness.Run(t, plane, harness.Member(fmt.Sprintf("fresh-%s-%d", lock, i), flags...)))
		}
	}
	harness.Eventually(t, harness.Patience, "both fleets run", func(ctx context.Context) error {
		var errs []error
		for f, members := range fleets {
			if took[f] > 0 {
				continue
			}
			var missing error
			for _, member := range members {
				missing = errors.Join(missing, member.Complete(ctx))
			}
			if missing == nil {
				took[f] = time.Since(began)
			}
			errs = append(errs, missing)
		}
		return errors.Join(errs...)
	})
	for _, member := range slices.Concat(fleets...) {
		member.MustTerminate(t)
	}
	for _, member := range slices.Concat(fleets...) {
		if status := member.MustExit(t, harness.Patience); status != 0 {
			t.Errorf("%s ended with status %d, want 0", member.Name(), status)
		}
	}
	t.Logf("three new members run everything after %v without a leader lock, after %v with the default one", took[0], took[1])
	// A busy machine adds less than waiting for the leader lock first and then for the shards
	// would.
	if took[1] > took[0]+quickLease/2 {
		t.Errorf("the leader lock costs %v", took[1]-took[0])
	}
}

// quickLease is the lease duration of stockTimings.
const quickLease = 10 * time.Second

// TestCoordinatedElection has API servers that choose the leader among stock candidates. A fleet
// waits for the one they have chosen, takes its place, and keeps the Lease although they prefer a
// candidate. When the fleet leaves, they choose one.
func TestCoordinatedElection(t *testing.T) {
	t.Parallel()
	const on = "--feature-gates=CoordinatedLeaderElection=true"
	m := startMigrationOn(t, controlplane.Options{
		AuditObjects: true, FeatureGates: map[string]bool{"CoordinatedLeaderElection": true},
		APIServerArgs: []string{"--runtime-config=coordination.k8s.io/v1beta1=true"},
	}, stockLease, append([]string{on}, stockTimings...)...)
	m.startStock(t)
	m.works(t)
	if strategy := m.leaseSpec(t).Strategy; ptr.Deref(strategy, "") != coordinationv1.OldestEmulationVersion {
		t.Fatalf("the API server has not chosen the leader: strategy %v", strategy)
	}
	m.load(t)
	m.startFleet(t, 2, quick...)
	m.fleetWaits(t)
	m.holdsNothing(t)

	m.wayIn(t)
	m.works(t)
	m.startStock(t)
	harness.Eventually(t, harness.Patience, "the API server prefers a stock candidate", func(ctx context.Context) error {
		if spec := m.leaseSpec(t); ptr.Deref(spec.PreferredHolder, "") == "" {
			return fmt.Errorf("it prefers no candidate: %+v", spec)
		}
		return nil
	})
	m.heldThroughout(t, leaseapi.LeaderLockIdentity(harness.Fleet))
	m.works(t)

	m.stopFleet(t)
	harness.Eventually(t, harness.Patience, "the API server has chosen a stock candidate", m.stockLeads)
	m.works(t)
	for _, v := range m.judge(t, stockLease, everyWrite).moves() {
		t.Log(v)
	}
}

func (m *migration) leaseSpec(t *testing.T) coordinationv1.LeaseSpec {
	t.Helper()
	lease, err := m.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), m.lease, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lease.Spec
}

// TestCoordinatedElectionIsRefused gives a member a coordinated election, in which it does not take
// part. This is a process because the flag sets a feature gate of the whole process. Tests of
// internal/app cover the other elections that are refused.
func TestCoordinatedElectionIsRefused(t *testing.T) {
	t.Parallel()
	m := harness.Run(t, sharedPlane(t), harness.Spec{Name: "coordinated", Flags: []string{"--feature-gates=CoordinatedLeaderElection=true"}})
	if code := m.MustExit(t, harness.Patience); code == 0 {
		t.Error("ended with status 0")
	}
	if !harness.HasLine(m.MustLog(t), "--feature-gates=CoordinatedLeaderElection=true: must be false") {
		t.Errorf("the log does not say why:\n%s", m.MustLog(t))
	}
}

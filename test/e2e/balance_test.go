package e2e

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

var balanced = flag.Int("balanced", 0, "number of namespaces ns-0, ns-1, ... in TestBalance; 0 skips the test")

// configMaps is the number in each namespace. The planner ignores an imbalance of less than 100
// objects.
const configMaps = 8

// mostOverMean limits the memory that the shards of the fullest member take, relative to the mean.
const mostOverMean = 1.10

// TestBalance creates namespaces whose names hash into half of the equal ranges, and waits until
// the planner has balanced the memory that the members' shards take, as the holders estimate it.
func TestBalance(t *testing.T) {
	if *balanced == 0 {
		t.Skip("left out: takes minutes, make long RUN=balance")
	}
	plan, err := catalogue.DefaultPlan(defaultShards)
	if err != nil {
		t.Fatal(err)
	}
	plane := harness.StartPlane(t, controlplane.Options{AuditObjects: true})
	f := newFleetRun(t, plane, plan, "--rebalance-delay=1s", "--replan-interval=20s", "--handoff-timeout=30s")
	f.createNamespaces(t, *balanced)
	for _, name := range []string{"balance-0", "balance-1", "balance-2"} {
		f.start(t, name)
	}
	f.settle(t, leaseDuration+harness.Patience)
	began, first := time.Now(), ""
	harness.Eventually(t, harness.Patience, "memory even", func(ctx context.Context) error {
		takes, ratio, generation, err := f.memory(ctx)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("after %.0f s, generation %d: bytes %v, max/mean %.2f", time.Since(began).Seconds(), generation, takes, ratio)
		if first == "" {
			first = line
			t.Log(line)
		}
		if generation < 2 || ratio > mostOverMean {
			return fmt.Errorf("%s, want at most %.2f", line, mostOverMean)
		}
		t.Log(line)
		return nil
	})
	f.end(t)
	report := f.judgeAlone(t)
	t.Logf("%d writes, each by the holder of its shard; %d shards succeeded others", report.ByVersion+report.ByTime, len(report.Successions()))
}

func (f *fleetRun) createNamespaces(t *testing.T, n int) {
	t.Helper()
	err := harness.InParallel(n, func(i int) error {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("ns-%d", i)}}
		if _, err := f.client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
		return f.fillNamespace(t.Context(), namespace.Name, configMaps)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// memory returns the memory that each member's shards take, in bytes, according to their Leases,
// the greatest over the mean, and the generation. Like the planner, it counts what is cached for a
// range, but not what every range takes in addition. It fails while a shard is not held, or its
// holder has not said what it takes.
func (f *fleetRun) memory(ctx context.Context) (takes map[string]int64, ratio float64, generation int64, err error) {
	leases, err := f.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: leaseapi.FleetLabel + "=" + harness.Fleet})
	if err != nil {
		return nil, 0, 0, err
	}
	records := map[string]leaserecord.Record{}
	var plan shard.Plan
	for i := range leases.Items {
		lease := &leases.Items[i]
		records[lease.Name] = leaserecord.From(lease)
		if lease.Name == leaseapi.PlanLease(harness.Fleet) {
			if plan, err = leaseapi.PlanOn(lease); err != nil {
				return nil, 0, 0, err
			}
		}
	}
	takes = map[string]int64{}
	var total, most int64
	for _, s := range plan.Shards() {
		record := records[leaseapi.ShardLease(harness.Fleet, s.ID)]
		said, published := leaseapi.ShardMemoryOn(election.Observation{Record: record})
		if record.Holder == "" || !published {
			return nil, 0, 0, fmt.Errorf("%s is held by %q, its memory published: %t", s.ID, record.Holder, published)
		}
		bytes := said.Cached
		if !s.Namespaced() {
			bytes = said.Total()
		}
		takes[leaserecord.MemberOf(record.Holder)] += bytes
		total += bytes
	}
	for _, bytes := range takes {
		most = max(most, bytes)
	}
	return takes, float64(most) * float64(len(f.members)) / float64(max(total, 1)), plan.Generation, nil
}

package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
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

// mostOverMean limits what the shards of the heaviest member weigh, relative to the mean.
const mostOverMean = 1.10

// TestBalance creates namespaces whose names hash into half of the equal ranges, and waits until
// the planner has balanced what the members' shards weigh, by memory and by work.
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
	harness.Eventually(t, harness.Patience, "weights even", func(ctx context.Context) error {
		weigh, ratio, generation, err := f.weights(ctx)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("after %.0f s, generation %d: %v objects, max/mean %.2f", time.Since(began).Seconds(), generation, weigh, ratio)
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

// weights returns what each member's shards weigh to the planner, by what their holders have
// published, in objects, the greatest over the mean, and the generation. It fails while a shard is
// not held, or its holder has published no weight.
func (f *fleetRun) weights(ctx context.Context) (weigh map[string]int64, ratio float64, generation int64, err error) {
	leases, err := f.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: leaseapi.FleetLabel + "=" + harness.Fleet})
	if err != nil {
		return nil, 0, 0, err
	}
	observations := map[string]election.Observation{}
	var plan shard.Plan
	for i := range leases.Items {
		lease := &leases.Items[i]
		observations[lease.Name] = election.Observation{Record: leaserecord.From(lease), Exists: true}
		if lease.Name == leaseapi.PlanLease(harness.Fleet) {
			if plan, err = leaseapi.PlanOn(lease); err != nil {
				return nil, 0, 0, err
			}
		}
	}
	holder := func(id shard.ID) string {
		return leaserecord.MemberOf(observations[leaseapi.ShardLease(harness.Fleet, id)].Holder)
	}
	ring, _ := plan.Ring(catalogue.NamespacesRing)
	all, complete := leaseapi.WeightsOf(harness.Fleet, plan, ring, func(name string) election.Observation { return observations[name] }, holder)
	if !complete || !all.Whole {
		return nil, 0, 0, fmt.Errorf("weights are published for all of the ring: %t, for all other shards: %t", complete, all.Whole)
	}
	weigh = maps.Clone(all.Carried)
	for _, s := range ring.Shards {
		if holder(s.ID) == "" {
			return nil, 0, 0, fmt.Errorf("nobody holds %s", s.ID)
		}
		weigh[holder(s.ID)] += all.Census.Within(s.Range).Total()
	}
	var total, most int64
	for _, n := range weigh {
		total, most = total+n, max(most, n)
	}
	return weigh, float64(most) * float64(len(f.members)) / float64(max(total, 1)), plan.Generation, nil
}

package cli

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// usedFleet returns a fleet with a member that publishes what it uses, one that writes nonsense,
// one that is silent and one that has left.
func usedFleet(t *testing.T) (shard.Plan, leases) {
	t.Helper()
	plan := testPlan(t)
	l := newLeases(t, plan)
	l.census(plan, 4000, 100, 100, 100, 900)
	l.measure(plan)
	l[leaserecord.MemberLease(testFleet, "flotilla-0")].Annotations[leaseapi.UseAnnotation] = "312/17"
	l[leaserecord.MemberLease(testFleet, "flotilla-0")].Annotations[leaseapi.NodeAnnotation] = "cp-1"
	l[leaserecord.MemberLease(testFleet, "flotilla-0")].Annotations[leaseapi.ZoneAnnotation] = "eu-1a"
	l[leaserecord.MemberLease(testFleet, "flotilla-1")].Annotations[leaseapi.NodeAnnotation] = "cp-\x1b[31m"
	l[leaserecord.MemberLease(testFleet, "flotilla-1")].Annotations[leaseapi.UseAnnotation] = "\x1b[31m/-1"
	silent := l.member("flotilla-2", plan)
	silent.Annotations[leaseapi.UseAnnotation] = "9000/9000"
	silent.Spec.RenewTime.Time = testNow.Add(-time.Minute)
	l.member("flotilla-3", plan).Spec.HolderIdentity = ptr.To("")
	return plan, l
}

func TestTopOutputs(t *testing.T) {
	_, l := usedFleet(t)
	golden(t, "top", TopOf(l.read(), byName), tableTop(false))
	golden(t, "top-nothing", TopOf(leases{}.read(), byName), tableTop(false))
}

// TestTopOrders: the greatest value comes first, members without one last.
func TestTopOrders(t *testing.T) {
	plan, l := usedFleet(t)
	l.shard(plan, shard.ID{Ring: "namespaces", Name: "03"}, "flotilla-2", 9)
	l[leaserecord.MemberLease(testFleet, "flotilla-2")].Spec.RenewTime.Time = testNow
	for order, want := range map[string]string{
		"name": "flotilla-0 flotilla-1 flotilla-2", "cpu": "flotilla-2 flotilla-0 flotilla-1", "queued": "flotilla-2 flotilla-0 flotilla-1",
		"share": "flotilla-0 flotilla-1 flotilla-2", "shards": "flotilla-0 flotilla-1 flotilla-2", "memory": "flotilla-0 flotilla-1 flotilla-2",
	} {
		var names []string
		for _, m := range TopOf(l.read(), order).Members {
			names = append(names, m.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("by %s: %s, want %s", order, got, want)
		}
	}
	out, _, err := newCluster(l).run(t, "", "top", "--sort-by=cpu")
	if lines := strings.Split(out, "\n"); err != nil || !strings.HasPrefix(lines[1], "flotilla-2") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestShares checks that the shares of all members add up to the whole if every range is held,
// however wide the ranges are.
func TestShares(t *testing.T) {
	plan := testPlan(t)
	whole := plan
	whole.Rings = slices.Clone(plan.Rings)
	whole.Rings[0].Shards = []shard.Shard{{ID: shard.ID{Ring: "namespaces", Name: "all"}, Range: shard.Everything()}}
	for _, p := range []shard.Plan{plan, whole} {
		sum := 0.0
		for _, m := range TopOf(newLeases(t, p).read(), byName).Members {
			sum += *m.Share
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Errorf("of %d ranges: the shares are %v together", len(p.Rings[0].Shards), sum)
		}
	}
}

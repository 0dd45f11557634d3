package fleet

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// coversFixture returns a member, a plan of n ranges, and the Leases of these ranges and of ten
// members.
func coversFixture(tb testing.TB, n int) (*Member, *inForce, []election.Observation) {
	tb.Helper()
	ring := shard.Ring{Name: "namespaces", Scope: shard.ScopeNamespaced}
	for i := range 27 {
		ring.Controllers = append(ring.Controllers, fmt.Sprintf("controller-with-a-name-%02d", i))
	}
	parts, err := shard.EqualRanges(n)
	if err != nil {
		tb.Fatal(err)
	}
	for i, r := range parts {
		id := shard.ID{Ring: ring.Name, Name: fmt.Sprintf("g1-%03d", i)}
		ring.Shards = append(ring.Shards, shard.Shard{ID: id, Range: r})
	}
	plan := newInForce(shard.Plan{Generation: 1, Rings: []shard.Ring{ring}})
	m := &Member{config: Config{Fleet: "flotilla", Clock: clocktesting.NewFakeClock(journalStart), Timing: election.DefaultTiming()}}
	var all []election.Observation
	for i := range 10 {
		all = append(all, seenMember(fmt.Sprintf("m%d_1", i), "active", nil))
	}
	for i, s := range ring.Shards {
		o := seen(leaseapi.ShardLease("flotilla", s.ID), "a_1", 1, 0, map[string]string{
			leaseapi.RangeAnnotation: s.Range.String(), leaseapi.ControllersAnnotation: strings.Join(ring.Controllers, ","),
		}, leaseapi.ShardLabels("flotilla", s.ID))
		o.ResourceVersion = strconv.Itoa(i + 1)
		all = append(all, o)
	}
	return m, plan, all
}

// BenchmarkOverlapping measures the look of a shard before it runs, after one Lease was renewed.
func BenchmarkOverlapping(b *testing.B) {
	for _, n := range []int{200, 500, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			m, plan, all := coversFixture(b, n)
			successor := shard.ID{Ring: "namespaces", Name: "g2-000"}
			extent := plan.extents[shard.ID{Ring: "namespaces", Name: "g1-000"}]
			version := n
			b.ReportAllocs()
			for b.Loop() {
				version++
				all[10+version%n].ResourceVersion = strconv.Itoa(version)
				if len(m.overlapping(all, plan, successor, extent)) != 0 {
					b.Fatal("a shard of the plan has rivals in it")
				}
			}
		})
	}
}

// TestCoversOfWhatHasChanged asks again after the Lease or the plan has changed.
func TestCoversOfWhatHasChanged(t *testing.T) {
	m, plan, all := coversFixture(t, 4)
	first := shard.ID{Ring: "namespaces", Name: "g1-000"}
	successor, extent := shard.ID{Ring: "namespaces", Name: "g2-000"}, plan.extents[first]
	lease := &all[10]
	rivals := func(plan *inForce) int { return len(m.overlapping(all, plan, successor, extent)) }
	if n := rivals(plan); n != 0 {
		t.Errorf("%d rivals in the plan", n)
	}
	without := newInForce(shard.Plan{Generation: 2, Rings: []shard.Ring{{Name: "namespaces", Shards: plan.plan.Rings[0].Shards[1:]}}})
	if n := rivals(without); n != 1 {
		t.Errorf("%d rivals, want the shard that has left the plan", n)
	}
	if n := rivals(plan); n != 0 {
		t.Errorf("%d rivals after it is in the plan again", n)
	}
	other := plan.extents[shard.ID{Ring: "namespaces", Name: "g1-003"}].Range
	lease.Annotations[leaseapi.RangeAnnotation] = other.String()
	lease.ResourceVersion = "100"
	if n := rivals(without); n != 0 {
		t.Errorf("%d rivals after its Lease names another range", n)
	}
	for i := range 100 {
		gone := *lease
		gone.Name = fmt.Sprintf("flotilla-namespaces-g0-%03d", i)
		m.overlapping([]election.Observation{gone}, plan, successor, extent)
	}
	if n := len(m.covers.known); n > len(all) {
		t.Errorf("%d Leases are cached, but only %d exist", n, len(all))
	}
}

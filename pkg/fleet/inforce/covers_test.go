package inforce

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// start is when the tests look.
var start = time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)

// at returns the Leases, which must be sorted by name, as they are known at the start.
func at(leases []election.Observation) leaseapi.Snapshot {
	return leaseapi.NewSnapshot("flotilla", leases, 15*time.Second, start)
}

// held returns a Lease that has just been seen.
func held(name, holder string, annotations, labels map[string]string) election.Observation {
	term, seconds := int32(1), int32(15)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: labels},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseTransitions: &term, LeaseDurationSeconds: &seconds},
	}
	return election.Observation{Record: leaserecord.From(lease), Exists: true, Seen: start, Lease: lease}
}

// coversFixture returns a plan of n ranges, and the Leases of ten members and of these ranges.
func coversFixture(tb testing.TB, n int) (*Plan, []election.Observation) {
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
	plan := New(shard.Plan{Generation: 1, Rings: []shard.Ring{ring}})
	var all []election.Observation
	for i := range 10 {
		name := fmt.Sprintf("m%d", i)
		all = append(all, held(leaserecord.MemberLease("flotilla", name), name+"_1", map[string]string{leaserecord.StateAnnotation: "active"}, nil))
	}
	for i, s := range ring.Shards {
		o := held(leaseapi.ShardLease("flotilla", s.ID), "a_1", map[string]string{
			leaseapi.RangeAnnotation: s.Range.String(), leaseapi.ControllersAnnotation: strings.Join(ring.Controllers, ","),
		}, leaseapi.ShardLabels("flotilla", s.ID))
		o.ResourceVersion = strconv.Itoa(i + 1)
		all = append(all, o)
	}
	return plan, all
}

// BenchmarkOverlapping measures the look of a shard before it runs, after one Lease was renewed.
func BenchmarkOverlapping(b *testing.B) {
	for _, n := range []int{200, 500, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			covers := &Covers{}
			plan, all := coversFixture(b, n)
			successor := shard.ID{Ring: "namespaces", Name: "g2-000"}
			extent := plan.extents[shard.ID{Ring: "namespaces", Name: "g1-000"}]
			version := n
			b.ReportAllocs()
			for b.Loop() {
				version++
				all[10+version%n].ResourceVersion = strconv.Itoa(version)
				if len(covers.Overlapping(at(all), plan, successor, extent)) != 0 {
					b.Fatal("a shard of the plan has rivals in it")
				}
			}
		})
	}
}

// TestCoversOfWhatHasChanged asks again after the Lease or the plan has changed.
func TestCoversOfWhatHasChanged(t *testing.T) {
	covers := &Covers{}
	plan, all := coversFixture(t, 4)
	first := shard.ID{Ring: "namespaces", Name: "g1-000"}
	successor, extent := shard.ID{Ring: "namespaces", Name: "g2-000"}, plan.extents[first]
	lease := &all[10]
	rivals := func(plan *Plan) int { return len(covers.Overlapping(at(all), plan, successor, extent)) }
	if n := rivals(plan); n != 0 {
		t.Errorf("%d rivals in the plan", n)
	}
	without := New(shard.Plan{Generation: 2, Rings: []shard.Ring{{Name: "namespaces", Shards: plan.Rings[0].Shards[1:]}}})
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
		covers.Overlapping(at([]election.Observation{gone}), plan, successor, extent)
	}
	if n := len(covers.known); n > len(all) {
		t.Errorf("%d Leases are cached, but only %d exist", n, len(all))
	}
}

package inforce

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// closure is a reference implementation of [Plan.SuccessorsReady]. From one shard it goes step by
// step to its successors, their other predecessors, the successors of these, and so on.
func closure(s leaseapi.Snapshot, plan *Plan, extent shard.Extent) bool {
	successors, seen := map[shard.ID]bool{}, map[string]bool{}
	known := &Covers{}
	covers := []leaseapi.Cover{{Extent: extent}}
	for len(covers) > 0 {
		from := covers[0]
		covers = covers[1:]
		for id, extent := range plan.extents {
			if successors[id] || !from.Overlaps(extent) {
				continue
			}
			successors[id] = true
			if !s.IsReady(s.Shard(id)) {
				return false
			}
			for _, o := range known.Overlapping(s, plan, id, extent) {
				if s.IsHeld(o) && o.Holder == refusing {
					return false
				}
				if s.IsHeld(o) && !seen[o.Name] {
					seen[o.Name] = true
					covers = append(covers, leaseapi.CoverOn(o))
				}
			}
		}
	}
	return true
}

// refusing is a member that refuses the new plan of the fixture.
const refusing = "r_1"

// randomRanges cuts the whole keyspace at random places.
func randomRanges(random *rand.Rand, n int) []shard.Range {
	cuts := make([]uint64, 0, n)
	for range n - 1 {
		cuts = append(cuts, 1+random.Uint64N(32)<<58)
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	var ranges []shard.Range
	start := uint64(0)
	for _, cut := range cuts {
		ranges = append(ranges, shard.Range{Start: start, End: cut})
		start = cut
	}
	return append(ranges, shard.Range{Start: start})
}

// TestSuccessorsAreFoundTogether compares the result for all shards at once with the result for
// each, among random plans and Leases.
func TestSuccessorsAreFoundTogether(t *testing.T) {
	spared, kept := 0, 0
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 0))
		leases, plan, old := successionFixture(t, random)
		all := plan.SuccessorsReady(at(leases), &Covers{})
		for _, extent := range old {
			want := closure(at(leases), plan, extent)
			if got := all(extent); got != want {
				t.Fatalf("seed %d: %v may be drained: %v, want %v", seed, extent, got, want)
			}
			if want {
				spared++
			} else {
				kept++
			}
		}
	}
	if spared < 1000 || kept < 1000 {
		t.Errorf("%d shards may be drained and %d may not: the fixtures are too similar", spared, kept)
	}
}

// successionFixture returns the Leases of an old and a new plan, the new plan, and what the old
// shards cover. Each plan has two rings and a group or two. Some Leases are held, and some of the
// new ones are ready. A member that refuses the new plan holds a few of the old ones. Some new
// shards have the name of an old one; then the Lease may belong to either.
func successionFixture(t *testing.T, random *rand.Rand) ([]election.Observation, *Plan, []shard.Extent) {
	t.Helper()
	observer, err := election.NewObserver(election.ObserverConfig{Fleet: "flotilla", Client: struct{ election.LeaseReader }{}, Clock: clocktesting.NewFakeClock(start)})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"a", "b", "c", "d"}
	ringsOf := func(generation int) []shard.Ring {
		cut := 1 + random.IntN(3)
		var rings []shard.Ring
		for i, controllers := range [][]string{names[:cut], names[cut:]} {
			ring := shard.Ring{Name: fmt.Sprintf("r%d", i), Scope: shard.ScopeNamespaced, Controllers: controllers}
			for j, r := range randomRanges(random, 1+random.IntN(5)) {
				id := shard.ID{Ring: ring.Name, Name: fmt.Sprintf("g%d-%d", generation, j)}
				ring.Shards = append(ring.Shards, shard.Shard{ID: id, Range: r})
			}
			rings = append(rings, ring)
		}
		groups := shard.Ring{Name: "groups", Scope: shard.ScopeCluster}
		for i, controllers := range [][][]string{{{"x", "y"}}, {{"x"}, {"y"}}, {{"x", "d"}}}[random.IntN(3)] {
			id := shard.ID{Ring: groups.Name, Name: fmt.Sprintf("g%d-%d", generation, i)}
			groups.Shards = append(groups.Shards, shard.Shard{ID: id, Group: id.Name, Controllers: controllers})
		}
		return append(rings, groups)
	}
	version := 0
	observe := func(name, holder string, annotations, labels map[string]string) {
		version++
		lease := held(name, holder, annotations, labels).Lease
		lease.ResourceVersion = strconv.Itoa(version)
		observer.Observe(lease)
	}
	observe(leaserecord.MemberLease("flotilla", "r"), refusing, map[string]string{
		leaserecord.StateAnnotation: "active", leaseapi.PlanAnnotation: "a", leaseapi.GenerationAnnotation: "1",
		leaseapi.RefusedAnnotation: "2: its build lacks a controller",
	}, nil)
	put := func(ring shard.Ring, s shard.Shard, holder string, ready bool) {
		annotations := map[string]string{leaseapi.RangeAnnotation: s.Range.String(), leaseapi.ControllersAnnotation: strings.Join(ring.Controllers, ",")}
		if !s.Namespaced() {
			annotations = map[string]string{leaseapi.ControllersAnnotation: strings.Join(s.Controllers, ",")}
		}
		switch random.IntN(40) {
		case 0:
			annotations[leaseapi.ControllersAnnotation] = ""
		case 1:
			annotations[leaseapi.RangeAnnotation] = "nonsense"
		}
		if ready {
			annotations[leaseapi.ReadyAnnotation] = "1"
		}
		observe(leaseapi.ShardLease("flotilla", s.ID), holder, annotations, leaseapi.ShardLabels("flotilla", s.ID))
	}
	holder := func(of int) string {
		if random.IntN(of) == 0 {
			return ""
		}
		return "m_1"
	}
	var old []shard.Extent
	for _, ring := range ringsOf(1) {
		for _, s := range ring.Shards {
			extent := shard.Extent{Range: s.Range, Controllers: ring.Controllers}
			if !s.Namespaced() {
				extent.Controllers = s.Controllers
			}
			old = append(old, extent)
			by := holder(4)
			if by != "" && random.IntN(20) == 0 {
				by = refusing
			}
			put(ring, s, by, false)
		}
	}
	next := shard.Plan{Generation: 2, Rings: ringsOf(2)}
	for _, ring := range next.Rings {
		for i, s := range ring.Shards {
			if random.IntN(20) == 0 {
				ring.Shards[i].ID.Name = strings.Replace(s.ID.Name, "g2", "g1", 1)
				if random.IntN(2) == 0 {
					continue // its Lease, if there is one, is the old shard's
				}
			}
			put(ring, ring.Shards[i], holder(20), random.IntN(10) > 0)
		}
	}
	return observer.List(), New(next), old
}

// BenchmarkSuccessors measures what a member does at each event while all ranges are replaced.
func BenchmarkSuccessors(b *testing.B) {
	for _, n := range []int{300, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			plan, all := coversFixture(b, n)
			cut, err := shard.EqualRanges(n*3/4 | 1)
			if err != nil {
				b.Fatal(err)
			}
			ring := shard.Ring{Name: "namespaces", Scope: shard.ScopeNamespaced, Controllers: plan.Rings[0].Controllers}
			for i, r := range cut {
				ring.Shards = append(ring.Shards, shard.Shard{ID: shard.ID{Ring: ring.Name, Name: fmt.Sprintf("g2-%03d", i)}, Range: r})
			}
			next := New(shard.Plan{Generation: 2, Rings: []shard.Ring{ring}})
			covers := &Covers{}
			b.ReportAllocs()
			for b.Loop() {
				if next.SuccessorsReady(at(all), covers)(shard.Extent{Range: cut[0], Controllers: ring.Controllers}) {
					b.Fatal("nobody is ready")
				}
			}
		})
	}
}

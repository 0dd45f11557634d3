package leaseapi

import (
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

func TestMemoryText(t *testing.T) {
	for text, want := range map[string]ShardMemory{"12+3": {12, 3}, "0+0": {}} {
		got, published := ShardMemoryOn(leaseWith(text))
		if !published || got != want || got.String() != text {
			t.Errorf("%q is %+v %v", text, got, published)
		}
	}
	if got, published := MemoryOn(leaseWith("7/5")); !published || got != (Memory{7, 5}) || got.String() != "7/5" {
		t.Errorf("7/5 is %+v %v", got, published)
	}
	for _, text := range []string{"", "1", "+", "1+", "+1", "-1+2", "1+-2", "1+2+3", "1/2", "a+b", "1+9999999999999999999", "1125899906842625+0"} {
		if got, published := ShardMemoryOn(leaseWith(text)); published || got != (ShardMemory{}) {
			t.Errorf("%q is %+v", text, got)
		}
	}
}

func leaseWith(memory string) election.Observation {
	o := election.Observation{Exists: true}
	o.Annotations = map[string]string{MemoryAnnotation: memory}
	return o
}

// TestWeightsOf uses a ring of two ranges, and two groups, which take nothing without any object: so
// memory alone decides.
func TestWeightsOf(t *testing.T) {
	plan := twoRanges()
	low, high := shard.Census{{Hash: 5, Weight: 60, Namespaces: 1}, {Hash: 9, Weight: 40, Namespaces: 1}}, shard.Census{{Hash: half + 1, Weight: 300, Namespaces: 2}}
	full := map[string][2]string{
		"f-namespaces-00": {low.String(), "4000+0"}, "f-namespaces-01": {high.String(), "4000+0"},
		"f-cluster-garbage": {"", "2000+0"}, "f-cluster-nodes": {"", "10000+0"},
	}
	carrier := func(id shard.ID) string { return map[string]string{"garbage": "a", "nodes": "b"}[id.Name] }
	for name, tc := range map[string]struct {
		change   map[string][2]string
		complete bool
		whole    bool
		// want has the weights of the cells, carried what a and b carry.
		want    []int64
		carried map[string]int64
	}{
		"all is known":             {nil, true, true, []int64{120, 80, 200}, map[string]int64{"a": 100, "b": 500}},
		"an older holder of one":   {map[string][2]string{"f-namespaces-01": {high.String(), ""}}, true, false, []int64{60, 40, 300}, nil},
		"nonsense":                 {map[string][2]string{"f-namespaces-01": {high.String(), "-1+5"}}, true, false, []int64{60, 40, 300}, nil},
		"an older holder of nodes": {map[string][2]string{"f-cluster-nodes": {"", ""}}, true, false, []int64{120, 80, 200}, map[string]int64{"a": 100}},
		"one has not counted":      {map[string][2]string{"f-namespaces-01": {"", "4000+0"}}, false, true, []int64{30, 20}, map[string]int64{"a": 25, "b": 125}},
		"no objects":               {map[string][2]string{"f-namespaces-00": {"none", "0+0"}, "f-namespaces-01": {"none", "0+0"}}, true, false, nil, nil},
		"one range is empty":       {map[string][2]string{"f-namespaces-00": {"none", "0+0"}}, true, true, []int64{300}, map[string]int64{"a": 150, "b": 750}},
	} {
		t.Run(name, func(t *testing.T) {
			leases := maps.Clone(full)
			maps.Copy(leases, tc.change)
			get := func(lease string) election.Observation {
				o := leaseWith(leases[lease][1])
				o.Annotations[CensusAnnotation] = leases[lease][0]
				return o
			}
			w, complete := WeightsOf("f", plan, plan.Rings[0], get, carrier)
			var got []int64
			for _, cell := range w.Census {
				got = append(got, cell.Weight)
			}
			if complete != tc.complete || w.Whole != tc.whole || len(got) != len(tc.want) {
				t.Fatalf("complete %v, whole %v, %v", complete, w.Whole, got)
			}
			for i := range got {
				if got[i] != tc.want[i] {
					t.Errorf("cells weigh %v, want %v", got, tc.want)
				}
			}
			for member, weight := range tc.carried {
				if w.Carried[member] != weight {
					t.Errorf("%s carries %d, want %d", member, w.Carried[member], weight)
				}
			}
			groups := int64(0)
			for _, weight := range w.Groups {
				groups += weight
			}
			carried := int64(0)
			for _, weight := range w.Carried {
				carried += weight
			}
			if math.Abs(float64(groups-carried)) > 1 { // each is rounded
				t.Errorf("groups weigh %d, and members carry %d of them", groups, carried)
			}
			if tc.carried == nil && len(w.Carried) > 0 {
				t.Errorf("carried is %v, want nothing", w.Carried)
			}
		})
	}
}

const half = uint64(1) << 63

// twoRanges is a plan with two ranges and two groups.
func twoRanges() shard.Plan {
	shards := func(ring string, names ...string) []shard.Shard {
		var all []shard.Shard
		for _, name := range names {
			all = append(all, shard.Shard{ID: shard.ID{Ring: ring, Name: name}})
		}
		return all
	}
	ranges := shards("namespaces", "00", "01")
	ranges[0].Range, ranges[1].Range = shard.Range{End: half}, shard.Range{Start: half}
	return shard.Plan{Generation: 1, Rings: []shard.Ring{
		{Name: "namespaces", Scope: shard.ScopeNamespaced, Shards: ranges},
		{Name: "cluster", Scope: shard.ScopeCluster, Shards: shards("cluster", "garbage", "nodes")},
	}}
}

// TestWeightsByMemoryAndWork has ranges of equal size, of which one takes three times the memory,
// and the other writes.
func TestWeightsByMemoryAndWork(t *testing.T) {
	plan := twoRanges()
	const first, second, nodes = "f-namespaces-00", "f-namespaces-01", "f-cluster-nodes"
	for name, tc := range map[string]struct {
		// memory is what the ranges and the group of nodes take, writes are their recent writes.
		memory, writes [3]string
		// by memory, weights of the ranges, of the group, and of the ranges by memory alone
		byMemory float64
		want     [2]int64
		carried  int64
		memories [2]int64
	}{
		"all memory is cached":         {[3]string{"3000+0", "1000+0", "2000+0"}, [3]string{"", "600", ""}, 1, [2]int64{300, 100}, 200, [2]int64{300, 100}},
		"a quarter is":                 {[3]string{"3000+6000", "1000+6000", "2000+6000"}, [3]string{"", "", ""}, 0.25, [2]int64{225, 175}, 50, [2]int64{300, 100}},
		"a quarter is, and one range":  {[3]string{"3000+6000", "1000+6000", "2000+6000"}, [3]string{"", "600", "0"}, 0.25, [2]int64{135, 265}, 50, [2]int64{300, 100}},
		"a quarter is, and the group":  {[3]string{"3000+6000", "1000+6000", "2000+6000"}, [3]string{"0", "x", "800"}, 0.25, [2]int64{225, 175}, 650, [2]int64{300, 100}},
		"next to nothing is, and both": {[3]string{"3+600000", "1+600000", "0+600000"}, [3]string{"200", "600", "120"}, 0, [2]int64{133, 267}, 40, [2]int64{300, 100}},
		"one is empty":                 {[3]string{"0+0", "1000+0", "0+0"}, [3]string{"", "", ""}, 1, [2]int64{0, 400}, 0, [2]int64{0, 400}},
	} {
		t.Run(name, func(t *testing.T) {
			get := func(lease string) election.Observation {
				i := map[string]int{first: 0, second: 1, nodes: 2}
				n, there := i[lease]
				if !there {
					return leaseWith("0+0")
				}
				o := leaseWith(tc.memory[n])
				o.Annotations[RecentWritesAnnotation] = tc.writes[n]
				o.Annotations[CensusAnnotation] = shard.Census{{Hash: uint64(n) * half, Weight: 200, Namespaces: 1}}.String()
				return o
			}
			w, complete := WeightsOf("f", plan, plan.Rings[0], get, func(id shard.ID) string { return id.Name })
			of := func(w shard.Weights) [2]int64 {
				return [2]int64{w.Census.Within(plan.Rings[0].Shards[0].Range).Total(), w.Census.Within(plan.Rings[0].Shards[1].Range).Total()}
			}
			if !complete || !w.Whole || math.Abs(w.ByMemory-tc.byMemory) > 0.01 {
				t.Errorf("complete %v, whole %v, by memory %.3f, want %.3f", complete, w.Whole, w.ByMemory, tc.byMemory)
			}
			if got := of(w.Weights); got != tc.want || w.Carried["nodes"] != tc.carried {
				t.Errorf("the ranges weigh %d and the group %d, want %d and %d", got, w.Carried["nodes"], tc.want, tc.carried)
			}
			if got := of(w.Memory()); got != tc.memories {
				t.Errorf("by memory the ranges weigh %d, want %d", got, tc.memories)
			}
		})
	}
}

// TestUseText reads back what was written, and refuses everything else.
func TestUseText(t *testing.T) {
	with := func(text string) election.Observation {
		o := election.Observation{Exists: true}
		o.Annotations = map[string]string{UseAnnotation: text}
		return o
	}
	if got, published := UseOn(with("312/17")); !published || got != (Use{CPU: 312, Queued: 17}) || got.String() != "312/17" {
		t.Errorf("312/17 is %+v %v", got, published)
	}
	const all = "312/17/4200/12/850/40000"
	if got, published := UseOn(with(all)); !published || got.Work == nil || *got.Work != (UseOfWork{4200, 12, 850, 40000}) || got.String() != all {
		t.Errorf("%s is %+v %v", all, got, published)
	}
	for _, text := range []string{"", "1", "/", "-1/2", "1/-2", "1/2/3", "1/2/3/4/5/-6", "1/2/3/4/5/6/7", "NaN/1", "1e9/1"} {
		if got, published := UseOn(with(text)); published || got != (Use{}) {
			t.Errorf("%q is %+v", text, got)
		}
	}
}

// TestHealthText reads back what was written beside Use, and what newer builds may write, and
// refuses everything else.
func TestHealthText(t *testing.T) {
	for text, want := range map[string]*Health{
		"9100/35/120/40000": {9100, 35, 120, 40000}, "0/0/0/0": {}, "7/7/1/2": {7, 7, 1, 2}, "7/6/1/2/3": {7, 6, 1, 2},
		"": nil, "7": nil, "7/1/2": nil, "7/8/1/2": nil, "7/-1/1/2": nil, "NaN/1/1/1": nil,
	} {
		o := election.Observation{Exists: true}
		o.Annotations = map[string]string{UseAnnotation: "312/17", HealthAnnotation: text}
		got, published := UseOn(o)
		if !published || (got.Health == nil) != (want == nil) || want != nil && (*got.Health != *want || !strings.HasPrefix(text, want.String())) {
			t.Errorf("%q is %+v, want %+v", text, got.Health, want)
		}
	}
}

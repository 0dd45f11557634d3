package shard

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

func mustPropose(t *testing.T, p Plan, c Census, members []string) (Proposal, bool) {
	t.Helper()
	out, found, err := Propose(p, "namespaces", Weights{Census: c}, members, DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	return out, found
}

// homed returns a plan of n equal ranges in which the i-th shard has the i-th home, and a census
// with one namespace of the i-th weight in each.
func homed(t *testing.T, homes []string, weights ...int64) (Plan, Census) {
	t.Helper()
	p := testPlan(t, len(homes))
	var c Census
	for i := range p.Rings[0].Shards {
		s := &p.Rings[0].Shards[i]
		s.Home = homes[i]
		if i < len(weights) {
			c = append(c, Cell{s.Range.Start + 1, weights[i], 1})
		}
	}
	return p, c
}

// TestFirstProposalMovesNothing checks that a ring that is balanced, or without objects, only gets
// its homes written down, and only once.
func TestFirstProposalMovesNothing(t *testing.T) {
	members := statefulMembers(4)
	p := testPlan(t, 16)
	weights := make([]int64, 16)
	for i := range weights {
		weights[i] = 1000
	}
	_, even := homed(t, make([]string, 16), weights...)
	for _, c := range []Census{nil, {{5, 99, 1}}, even} {
		got, found := mustPropose(t, p, c, members)
		if !found || got.Moved != 0 || got.Cut != 0 || len(got.Steps) != 16 {
			t.Fatalf("with %d objects: proposed %v: moved %d, cut %d: %v", c.Total(), found, got.Moved, got.Cut, got.Steps)
		}
		before, _ := p.HomesOf("namespaces", members)
		after, _ := got.Plan.HomesOf("namespaces", members)
		if before.Digest() != after.Digest() {
			t.Error("the homes are not where the shards were")
		}
		for _, s := range got.Steps {
			if s.Kind != StepHome {
				t.Errorf("step %s, want only homes", s)
			}
		}
		if again, found := mustPropose(t, got.Plan, c, members); found {
			t.Errorf("the second proposal: %v", again.Steps)
		}
	}
}

// TestEvenCounts has a ring without objects. Shards are balanced by number, and none is split.
func TestEvenCounts(t *testing.T) {
	p, _ := homed(t, []string{"a", "a", "a", "a", "a", "a", "b", "gone"})
	got, found := mustPropose(t, p, nil, []string{"a", "b", "c"})
	counts := map[string]int{}
	for _, s := range got.Plan.Rings[0].Shards {
		counts[s.Home]++
	}
	if !found || fmt.Sprint(counts) != "map[a:3 b:3 c:2]" && fmt.Sprint(counts) != "map[a:3 b:2 c:3]" && fmt.Sprint(counts) != "map[a:2 b:3 c:3]" || got.Cut != 0 {
		t.Errorf("shards of each: %v, cut %d", counts, got.Cut)
	}
}

// TestWithinTriggerNothing checks both sides of the trigger and of the least weight that is worth
// acting on.
func TestWithinTriggerNothing(t *testing.T) {
	homes := []string{"a", "a", "b", "b"}
	for _, tc := range []struct {
		weights []int64
		want    bool
	}{
		{[]int64{4900, 500, 4600, 0}, false}, // Exactly 1.08.
		{[]int64{4900, 501, 4600, 0}, true},
		{[]int64{100, 399, 100, 200}, false}, // 99.5 above the mean.
		{[]int64{100, 400, 100, 200}, true},  // 100 above the mean.
	} {
		p, c := homed(t, homes, tc.weights...)
		if got, found := mustPropose(t, p, c, []string{"a", "b"}); found != tc.want {
			t.Errorf("%v: proposed %v %v, want %v", tc.weights, found, got.Steps, tc.want)
		}
	}
}

// TestMovesWholeWhereItCan: the planner moves the one shard that fits rather than cut another.
func TestMovesWholeWhereItCan(t *testing.T) {
	p, c := homed(t, []string{"a", "a", "a", "b"}, 1000, 500, 2000, 2500)
	got, found := mustPropose(t, p, c, []string{"a", "b"})
	if !found || len(got.Steps) != 1 || got.Steps[0].Kind != StepMove || got.Steps[0].Shard.Name != "01" || got.Moved != 500 || got.Cut != 0 {
		t.Errorf("proposed %v: %v", found, got.Steps)
	}
}

// TestHeavyNamespaceAlone has a namespace above a fair share among others in one shard. It must end
// up with a member that has nothing else.
func TestHeavyNamespaceAlone(t *testing.T) {
	weights := weightsOf(6, 500)
	full, members := NewCensus(weights), statefulMembers(5)
	p, _ := converged(t, testPlan(t, 16), full, members)
	heavy, _ := p.ShardFor("namespaces", "ns-250")
	b := BalanceOf(p, "namespaces", Weights{Census: full}, members)
	if got, limit := b.Members[heavy.Home], weights["ns-250"]*102/100; got > limit {
		t.Errorf("the heavy namespace's member has %d objects, want at most %d", got, limit)
	}
	for m, w := range b.Members {
		if rest := b.Mean * (1 - b.Bound/5) / 4 * 5; m != heavy.Home && float64(w) > 1.08*rest {
			t.Errorf("%s has %d of the rest; a fair share is %.0f", m, w, rest)
		}
	}
}

// TestPinnedOverload checks that an overloaded member keeps what is pinned to it, and loses
// everything else.
func TestPinnedOverload(t *testing.T) {
	p, c := homed(t, []string{"a", "a", "a", "b"}, 5000, 4000, 1000, 1000)
	p.Rings[0].Shards[0].Pin, p.Rings[0].Shards[1].Pin = "a", "a"
	for range 10 {
		got, found := mustPropose(t, p, c, []string{"a", "b"})
		if !found {
			break
		}
		p = got.Plan
	}
	homes, _ := p.HomesOf("namespaces", []string{"a", "b"})
	if got := homes.Of("a"); !slices.Equal(got, []ID{{"namespaces", "00"}, {"namespaces", "01"}}) {
		t.Errorf("a has %v, want only what is pinned", got)
	}
}

func TestProposeRefuses(t *testing.T) {
	p, members := testPlan(t, 4), []string{"a"}
	for name, tc := range map[string]struct {
		call  func() (Proposal, bool, error)
		words []string
	}{
		"no ring":      {func() (Proposal, bool, error) { return Propose(p, "x", Weights{}, members, DefaultLimits()) }, []string{`ring "x"`}},
		"cluster ring": {func() (Proposal, bool, error) { return Propose(p, "cluster", Weights{}, members, DefaultLimits()) }, []string{"cluster", "namespaced"}},
		"no members":   {func() (Proposal, bool, error) { return Propose(p, "namespaces", Weights{}, nil, DefaultLimits()) }, []string{"at least one member"}},
		"bad member": {func() (Proposal, bool, error) {
			return Propose(p, "namespaces", Weights{}, []string{"A"}, DefaultLimits())
		}, []string{"home", `"A"`}},
		"no limits": {func() (Proposal, bool, error) { return Propose(p, "namespaces", Weights{}, members, Limits{}) }, []string{"limits", "trigger"}},
		"bad plan": {func() (Proposal, bool, error) {
			return Propose(Plan{}, "namespaces", Weights{}, members, DefaultLimits())
		}, []string{"current plan", "generation"}},
	} {
		if _, found, err := tc.call(); found {
			t.Errorf("%s: something was proposed", name)
		} else {
			checkError(t, err, tc.words...)
		}
	}
}

func TestLimitsValidate(t *testing.T) {
	checkError(t, DefaultLimits().Validate())
	for field, change := range map[string]func(*Limits){
		"shardsPerMember":     func(l *Limits) { l.ShardsPerMember = 0 },
		"mostShardsPerMember": func(l *Limits) { l.MostShardsPerMember = 3 },
		"target":              func(l *Limits) { l.Target = 0.99 },
		"trigger":             func(l *Limits) { l.Trigger = l.Target },
		"trigger: NaN":        func(l *Limits) { l.Trigger = math.NaN() },
		"maxRound":            func(l *Limits) { l.MaxRound = 0 },
		"maxRound: 1.5":       func(l *Limits) { l.MaxRound = 1.5 },
		"minWeight":           func(l *Limits) { l.MinWeight = 0 },
	} {
		l := DefaultLimits()
		change(&l)
		checkError(t, l.Validate(), field)
	}
}

// TestTooManyShards has a plan of 64 shards for 3 members. The planner must merge them step by
// step, including neighbours with different homes, until the limit holds, but never pinned or
// isolated ones.
func TestTooManyShards(t *testing.T) {
	members, limits := statefulMembers(3), DefaultLimits()
	for i, s := range schemes {
		p := testPlan(t, 64)
		p.Rings[0].Isolate = []string{s.ns(1), s.ns(2)}
		p.Rings[0].Shards[7].Pin = members[0]
		p, err := testPlan(t, 64).Successor(p)
		checkError(t, err)
		p, done := converged(t, p, NewCensus(weightsOf(i, 500)), members)
		n, most := len(p.Rings[0].Shards), limits.MostShardsPerMember*len(members)
		t.Logf("%-9s %d shards after %d rounds", s.name, n, done.rounds)
		if n > most {
			t.Errorf("%s: %d shards, want at most %d", s.name, n, most)
		}
		if _, kept := p.Shard(ID{"namespaces", "07"}); !kept {
			t.Errorf("%s: the pinned shard is gone", s.name)
		}
	}
}

// Weights of other rings are written into the proposal. The current plan does not change.
func TestProposalWeighsGroups(t *testing.T) {
	plan := Plan{Generation: 1, Rings: []Ring{
		{Name: "cluster", Scope: ScopeCluster, Shards: []Shard{
			{ID: ID{Ring: "cluster", Name: "heavy"}, Group: "heavy", Controllers: []string{"a"}},
			{ID: ID{Ring: "cluster", Name: "idle"}, Group: "idle", Controllers: []string{"b"}},
			{ID: ID{Ring: "cluster", Name: "unknown"}, Group: "unknown", Controllers: []string{"c"}, Weight: 5},
		}},
		{Name: "namespaces", Scope: ScopeNamespaced, Controllers: []string{"d"}, Shards: []Shard{{ID: ID{Ring: "namespaces", Name: "all"}}}},
	}}
	groups := map[ID]int64{{Ring: "cluster", Name: "heavy"}: 3000, {Ring: "cluster", Name: "idle"}: 0}
	for _, test := range []struct {
		objects int64
		want    []int64
	}{
		{10_000, []int64{3000, 1, 5}},
		{10, []int64{0, 0, 5}}, // Too little to weigh.
	} {
		weights := Weights{Census: NewCensus(map[string]int64{"a": test.objects / 2, "b": test.objects / 2}), Groups: groups}
		p, worth, err := Propose(plan, "namespaces", weights, []string{"m", "n"}, DefaultLimits())
		if err != nil || !worth {
			t.Fatalf("%d objects: worth: %t, %v", test.objects, worth, err)
		}
		for i, want := range test.want {
			if got := p.Plan.Rings[0].Shards[i].Weight; got != want {
				t.Errorf("%d objects: %s has the weight %d, want %d", test.objects, p.Plan.Rings[0].Shards[i].ID, got, want)
			}
		}
		if got := plan.Rings[0].Shards[0].Weight; got != 0 {
			t.Errorf("the current plan has got the weight %d", got)
		}
	}
}

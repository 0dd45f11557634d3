package shard

import (
	"testing"
)

// settled proposes with these weights until nothing is proposed.
func settled(t *testing.T, p Plan, weights Weights, members []string) (Plan, int) {
	t.Helper()
	full := weights.Census
	for round := range 60 {
		weights.Census = published(p, full)
		next, found, err := Propose(p, "namespaces", weights, members, DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		if !found {
			return p, round
		}
		p = next.Plan
	}
	t.Fatal("no end after 60 rounds")
	return p, 0
}

// TestCarriedWeight gives one of four members groups in addition to 10,000 objects in ranges. It
// must get as many of these as bring it up to the others, or none that weighs anything.
func TestCarriedWeight(t *testing.T) {
	members := statefulMembers(4)
	for name, tc := range map[string]struct {
		carried int64
		// least and most bound the member's weight in ranges.
		least, most int64
	}{
		"nothing":             {0, 2300, 2700},
		"a tenth":             {1111, 1350, 1900},
		"nearly its share":    {3100, 0, 400},
		"a quarter of it all": {3334, 0, 200},
		"more than its share": {5000, 0, 100},
		"more than the ring":  {20000, 0, 100},
	} {
		t.Run(name, func(t *testing.T) {
			full := NewCensus(weightsOf(0, 500))
			weights := Weights{Census: full, Carried: map[string]int64{members[0]: tc.carried, "gone": 1 << 40}}
			p, rounds := settled(t, testPlan(t, 16), weights, members)
			b := BalanceOf(p, "namespaces", weights, members)
			t.Logf("%d rounds: %v, ratio %.3f, bound %.3f", rounds, b.Members, b.Ratio(), b.Bound)
			if got := b.Members[members[0]] - tc.carried; got < tc.least || got > tc.most {
				t.Errorf("it has %d of the ranges, want %d to %d", got, tc.least, tc.most)
			}
			if most := b.Mean * max(1.09, b.Bound*1.03); b.Max > most {
				t.Errorf("the heaviest has %.0f, want at most %.0f", b.Max, most)
			}
		})
	}
}

// TestCarriedWeightComes moves groups to a member, on to another, and away. Ranges must give way to
// them, and the member that they have left must not stay empty.
func TestCarriedWeightComes(t *testing.T) {
	members, full := statefulMembers(4), NewCensus(weightsOf(2, 500))
	p, _ := settled(t, testPlan(t, 16), Weights{Census: full}, members)
	for i, where := range []string{members[1], members[3], ""} {
		weights := Weights{Census: full, Carried: map[string]int64{where: 3000}}
		var rounds int
		p, rounds = settled(t, p, weights, members)
		b := BalanceOf(p, "namespaces", weights, members)
		t.Logf("groups on %q: %d rounds, %v", where, rounds, b.Members)
		if b.Ratio() > 1.09 || rounds > 8 {
			t.Errorf("step %d: ratio %.3f after %d rounds", i, b.Ratio(), rounds)
		}
	}
}

// TestCarriedWeightWavers checks that a weight that varies by 3 % moves nothing once the ring is
// settled.
func TestCarriedWeightWavers(t *testing.T) {
	members, full := statefulMembers(4), NewCensus(weightsOf(0, 500))
	for _, carried := range []int64{1500, 3000, 3200, 3334, 3500, 6000} {
		weights := Weights{Census: full, Carried: map[string]int64{members[2]: carried}}
		p, _ := settled(t, testPlan(t, 16), weights, members)
		for i := range 6 {
			weights.Carried = map[string]int64{members[2]: carried * int64(97+6*(i%2)) / 100}
			var rounds int
			if p, rounds = settled(t, p, weights, members); rounds > 0 && i > 1 {
				t.Errorf("carrying %d: %d rounds, want none", carried, rounds)
			}
		}
	}
}

// TestNoSeatForWhoCarriesMuch checks that a member with groups and no range gets none that would
// make it heavier than the heaviest member.
func TestNoSeatForWhoCarriesMuch(t *testing.T) {
	p, _ := homed(t, []string{"a", "a"})
	var census Census
	for _, s := range p.Rings[0].Shards {
		for i := range uint64(5) {
			census = append(census, Cell{s.Range.Start + 1 + i, 100, 1})
		}
	}
	limits := DefaultLimits()
	limits.ShardsPerMember, limits.MostShardsPerMember = 1, 1 // So that nothing may be cut.
	for _, carried := range []int64{300, 500, 700} {
		weights := Weights{Census: census, Carried: map[string]int64{"b": carried}}
		next, found, err := Propose(p, "namespaces", weights, []string{"a", "b"}, limits)
		if err != nil {
			t.Fatal(err)
		}
		if found && next.After.Max > next.Before.Max {
			t.Errorf("carrying %d: the heaviest member has %.0f after %.0f: %v", carried, next.After.Max, next.Before.Max, next.Steps)
		}
	}
}

package shard

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// planCase is a random case for the planner.
type planCase struct {
	plan    Plan
	full    Census
	carried map[string]int64
	members []string
	limits  Limits
}

func randomCase(t *testing.T, r *rand.Rand) planCase {
	t.Helper()
	pool := statefulMembers(10)
	w := planCase{plan: testPlan(t, 1), limits: DefaultLimits(), members: shuffled(r, pool)[:1+r.IntN(8)]}
	w.plan.Generation = 1 + r.Int64N(100)
	w.limits.ShardsPerMember = 1 + r.IntN(6)
	w.limits.MostShardsPerMember = w.limits.ShardsPerMember + r.IntN(5)
	w.limits.MaxRound = 0.05 + 0.95*r.Float64()
	w.limits.MinWeight = 1 + r.Int64N(300)
	scheme := r.IntN(len(schemes))
	weights := map[string]int64{}
	for i := range r.IntN(400) {
		if most := schemes[scheme].most; most == 0 || i < most {
			weights[schemes[scheme].ns(i)] = int64(r.ExpFloat64() * float64(r.IntN(200)))
		}
	}
	w.full = NewCensus(weights)
	if r.IntN(2) == 0 { // Groups on some members, up to the weight of the ring.
		w.carried = map[string]int64{}
		for range 1 + r.IntN(3) {
			w.carried[pool[r.IntN(len(pool))]] = r.Int64N(1 + w.full.Total()/(1+r.Int64N(8)))
		}
	}
	ring := &w.plan.Rings[0]
	ring.Shards = randomShards(r, w.full)
	for range r.IntN(3) {
		ring.Isolate = append(ring.Isolate, schemes[scheme].ns(r.IntN(20)))
	}
	ring.Isolate = slices.Compact(sortedCopy(ring.Isolate))
	ring.Shards = cutOut(ring.Shards, ring.Isolate)
	homes, pins := r.IntN(3), r.IntN(2)*r.IntN(2)
	for i := range ring.Shards {
		s := &ring.Shards[i]
		s.Name = fmt.Sprintf("s%d", i)
		if r.IntN(3) < homes {
			s.Home = pool[r.IntN(len(pool))]
		}
		if pins > 0 && r.IntN(6) == 0 {
			s.Pin = pool[r.IntN(len(pool))]
		}
	}
	ring.Shards = shuffled(r, ring.Shards)
	checkError(t, w.plan.Validate())
	return w
}

// randomShards cuts the keyspace anywhere, and at namespaces.
func randomShards(r *rand.Rand, full Census) []Shard {
	bounds := []uint64{0}
	for range r.IntN(40) {
		bound := r.Uint64()
		if len(full) > 0 && r.IntN(2) == 0 {
			bound = full[r.IntN(len(full))].Hash
		}
		bounds = append(bounds, bound)
	}
	slices.Sort(bounds)
	bounds = slices.Compact(bounds)
	var shards []Shard
	for i, start := range bounds {
		s := Shard{ID: ID{Ring: "namespaces"}, Range: Range{Start: start}}
		if i+1 < len(bounds) {
			s.Range.End = bounds[i+1]
		}
		shards = append(shards, s)
	}
	return shards
}

// TestProposeProperties checks the planner's guarantees with random plans, censuses, rosters and
// limits. Each case is followed until nothing is proposed.
func TestProposeProperties(t *testing.T) {
	r := newRand(t)
	const cases = 300
	worst, acted := 0, 0
	for range cases {
		w := randomCase(t, r)
		rounds := 0
		for ; ; rounds++ {
			census := published(w.plan, w.full)
			weights := Weights{Census: census, Carried: w.carried}
			p, found, err := Propose(w.plan, "namespaces", weights, w.members, w.limits)
			if err != nil {
				t.Fatal(err)
			}
			if !found {
				break
			}
			again, _, _ := Propose(w.plan, "namespaces", weights, shuffled(r, w.members), w.limits)
			if !reflect.DeepEqual(p, again) {
				t.Fatal("two proposals for one case differ")
			}
			checkProposal(t, w, census, p)
			checkWeights(t, w, census, p)
			if rounds > 60 || t.Failed() {
				t.Fatalf("round %d: %v\n%+v\nplan %+v", rounds, w.members, w.limits, w.plan.Rings[0].Shards)
			}
			w.plan = p.Plan
		}
		worst, acted = max(worst, rounds), acted+min(rounds, 1)
	}
	t.Logf("At most %d rounds; in %d of %d cases something was to be done", worst, acted, cases)
	if acted < cases/2 {
		t.Errorf("something was to be done in %d cases, want at least half of %d", acted, cases)
	}
}

func checkProposal(t *testing.T, w planCase, census Census, p Proposal) {
	t.Helper()
	checkError(t, CheckSuccessor(w.plan, p.Plan))
	if p.Plan.Generation != w.plan.Generation+1 || !reflect.DeepEqual(p.Plan.Rings[1], w.plan.Rings[1]) {
		t.Error("the generation or another ring is wrong")
	}
	joined, left := rosterChanges(w)
	checkShards(t, w, p)
	checkSums(t, w, census, p)
	total := census.Total()
	most := max(p.Before.Max, p.Before.Mean)
	if len(w.plan.Rings[0].Shards) > w.limits.MostShardsPerMember*len(w.members) {
		most = max(most, p.Before.Mean*w.limits.Trigger)
	}
	if !left && total >= w.limits.MinWeight && p.After.Max > most {
		t.Errorf("the heaviest member has %.0f after %.0f", p.After.Max, most)
	}
	budget := int64(w.limits.MaxRound * float64(total))
	if !left && !joined && p.Moved+p.Cut > budget && touched(w, census, p) > 3 {
		t.Errorf("moved %d and cut %d of %d in more than one step, the budget is %d", p.Moved, p.Cut, total, budget)
	}
	before, after := len(w.plan.Rings[0].Shards), len(p.Plan.Rings[0].Shards)
	if most := w.limits.MostShardsPerMember * len(w.members); after > before && after > most {
		t.Errorf("%d shards after %d, want at most %d", after, before, most)
	}
}

// rosterChanges reports whether a member has no shard, and whether a stranger has one.
func rosterChanges(w planCase) (joined, left bool) {
	homes, _ := w.plan.HomesOf("namespaces", w.members)
	for _, m := range w.members {
		joined = joined || len(homes.Of(m)) == 0
	}
	for _, s := range w.plan.Rings[0].Shards {
		left = left || s.PreferredMember() != "" && s.homeAmong(slices.Sorted(slices.Values(w.members))) == ""
	}
	return joined, left
}

// checkShards checks each shard. It keeps its pin, and its ID if it keeps its range, as pinned and
// isolated shards must.
func checkShards(t *testing.T, w planCase, p Proposal) {
	t.Helper()
	next := p.Plan.Rings[0].Shards
	if !slices.IsSortedFunc(next, func(a, b Shard) int { return cmp.Compare(a.Range.Start, b.Range.Start) }) {
		t.Error("the shards are not sorted by range")
	}
	for _, s := range w.plan.Rings[0].Shards {
		i := slices.IndexFunc(next, func(n Shard) bool { return n.Range == s.Range })
		isolated := slices.ContainsFunc(w.plan.Rings[0].Isolate, func(ns string) bool { return onlyHash(Hash(ns)) == s.Range })
		if i < 0 {
			if isolated || s.Pin != "" {
				t.Errorf("%s is pinned or isolated, but gone", s.ID)
			}
			continue
		}
		n := next[i]
		if n.ID != s.ID || n.Pin != s.Pin {
			t.Errorf("%+v became %+v", s, n)
		}
		if slices.Contains(w.members, s.Pin) && n.Home != s.Home {
			t.Errorf("%s is pinned and got the home %s after %s", s.ID, n.Home, s.Home)
		}
	}
	for _, n := range next {
		if !slices.Contains(w.members, n.PreferredMember()) && !slices.Contains(w.members, n.Home) {
			t.Errorf("%s has no home among the members", n.ID)
		}
	}
}

// checkWeights: with enough weight in all, every shard has its weight from the census, at least 1.
// Otherwise only new shards have one.
func checkWeights(t *testing.T, w planCase, census Census, p Proposal) {
	t.Helper()
	before := map[ID]int64{}
	for _, s := range w.plan.Rings[0].Shards {
		before[s.ID] = s.Weight
	}
	for _, s := range p.Plan.Rings[0].Shards {
		want := max(1, census.Within(s.Range).Total())
		if was, old := before[s.ID]; old && census.Total() < w.limits.MinWeight {
			want = was
		}
		if s.Weight != want {
			t.Errorf("%s has the weight %d, want %d", s.ID, s.Weight, want)
		}
	}
}

// checkSums recomputes what moves, what is cut, and the balance.
func checkSums(t *testing.T, w planCase, census Census, p Proposal) {
	t.Helper()
	if moved := changedHands(t, w.plan, p.Plan, w.members, w.members, census); moved != p.Moved {
		t.Errorf("moved %d, proposal says %d", moved, p.Moved)
	}
	cut := int64(0)
	for _, s := range p.Plan.Rings[0].Shards {
		if _, kept := w.plan.Shard(s.ID); !kept {
			cut += census.Within(s.Range).Total()
		}
	}
	if cut != p.Cut {
		t.Errorf("cut %d, proposal says %d", cut, p.Cut)
	}
	if after := BalanceOf(p.Plan, "namespaces", Weights{Census: census, Carried: w.carried}, w.members); !reflect.DeepEqual(after, p.After) {
		t.Errorf("balance is %+v, proposal says %+v", after, p.After)
	}
}

// touched counts the shards with weight that are replaced or moved.
func touched(w planCase, census Census, p Proposal) int {
	n := 0
	before, _ := w.plan.HomesOf("namespaces", w.members)
	after, _ := p.Plan.HomesOf("namespaces", w.members)
	for _, s := range w.plan.Rings[0].Shards {
		was, _ := before.Owner(s.ID)
		if is, _ := after.Owner(s.ID); was != is && census.Within(s.Range).Total() > 0 {
			n++
		}
	}
	return n
}

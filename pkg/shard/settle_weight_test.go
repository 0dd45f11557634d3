package shard

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// weighedFleet is a shardFleet whose shards have weights, and whose members carry other weight too.
type weighedFleet struct {
	*shardFleet
	plan   Plan
	beside map[string]int64
}

func newWeighedFleet(t *testing.T, shards int, members []string, weight func(i int) int64) *weighedFleet {
	t.Helper()
	f := &weighedFleet{shardFleet: newShardFleet(t, shards, members), beside: map[string]int64{}}
	r := Ring{Name: "r", Scope: ScopeNamespaced}
	for i, id := range f.ids {
		r.Shards = append(r.Shards, Shard{ID: id, Weight: weight(i)})
	}
	f.plan = Plan{Rings: []Ring{r}}
	f.settles = func() Placement { return f.plan.SettleRing("r", f.active, f.home, f.holders, nil, f.beside) }
	return f
}

func (f *weighedFleet) weightOf(id ID) int64 {
	i := slices.IndexFunc(f.plan.Rings[0].Shards, func(s Shard) bool { return s.ID == id })
	return f.plan.Rings[0].Shards[i].Weight
}

// loads returns each active member's whole load, and its load from home shards and other weight.
func (f *weighedFleet) loads() (all, atHome map[string]int64) {
	all, atHome = map[string]int64{}, map[string]int64{}
	for _, m := range f.active {
		all[m], atHome[m] = f.beside[m], f.beside[m]
	}
	for _, id := range f.ids {
		all[f.holders[id]] += f.weightOf(id)
		if owner, _ := f.home.Owner(id); slices.Contains(f.active, owner) {
			atHome[owner] += f.weightOf(id)
		}
	}
	return all, atHome
}

// checkEven requires that no member that was dealt a shard has more than the mean plus one shard,
// by weight.
func (f *weighedFleet) checkEven(t *testing.T, what string) {
	t.Helper()
	all, atHome := f.loads()
	total, heaviest := int64(0), int64(0)
	for _, load := range all {
		total += load
	}
	for _, id := range f.ids {
		if owner, _ := f.home.Owner(id); !slices.Contains(f.active, owner) {
			heaviest = max(heaviest, f.weightOf(id))
		}
	}
	mean := (total + int64(len(all)) - 1) / int64(len(all))
	for m, load := range all {
		if load > max(atHome[m], mean+heaviest) {
			t.Fatalf("%s: %s carries %d, of which %d at home; the mean is %d and the heaviest shard dealt out %d", what, m, load, atHome[m], mean, heaviest)
		}
	}
}

// weightsAtRandom returns one of several ways in which shards' weights differ.
func weightsAtRandom(random *rand.Rand) func(int) int64 {
	switch random.IntN(3) {
	case 0:
		return func(int) int64 { return 7 }
	case 1:
		return func(int) int64 { return 1 + random.Int64N(100) }
	default:
		return func(int) int64 { return int64(1 / (0.001 + random.Float64())) } // Some are very heavy.
	}
}

// TestSettleByWeight carries out random changes in random order, with random weights. Loads must be
// even, and no shard may move that was not to move when the change came. Shards at home must stay
// there, and shards that stay must fit.
func TestSettleByWeight(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 100
	}
	kept := 0
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 3))
		names := podNames(2+random.IntN(7), random)
		f := newWeighedFleet(t, 1+random.IntN(40), names, weightsAtRandom(random))
		for _, m := range names {
			if random.IntN(3) == 0 {
				f.beside[m] = random.Int64N(500)
			}
		}
		f.carryOut(t, random)
		for range 12 {
			if m := f.known[random.IntN(len(f.known))]; !slices.Contains(f.active, m) {
				f.with(m)
			} else if len(f.active) > 1 {
				f.without(m)
			}
			wanted := f.moves(f.settle())
			for _, id := range f.ids {
				owner, _ := f.home.Owner(id)
				if slices.Contains(wanted, id) && f.holders[id] == owner && slices.Contains(f.active, owner) {
					t.Fatalf("seed %d: %s would leave its home", seed, id)
				}
				if !slices.Contains(wanted, id) && !slices.Contains(f.active, owner) {
					kept++
				}
			}
			if done := f.carryOut(t, random); done != len(wanted) {
				t.Fatalf("seed %d: %d moves were wanted and %d made", seed, len(wanted), done)
			}
			f.checkEven(t, fmt.Sprintf("seed %d", seed))
			for id, holder := range f.holders {
				if !slices.Contains(f.active, holder) {
					t.Fatalf("seed %d: %s is left with %s, which is away", seed, id, holder)
				}
			}
		}
	}
	t.Logf("%d times a shard of a member that was away stayed where it was", kept)
	if kept < 10*int(seeds) {
		t.Error("hardly anything stayed where it was")
	}
}

// TestSettleByWeightInAnyOrder checks that members that read in different orders compute the same.
func TestSettleByWeightInAnyOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	f := newWeighedFleet(t, 40, podNames(5, random), weightsAtRandom(random))
	f.carryOut(t, random)
	f.without(f.known[2])
	want := f.settle().Digest()
	for range 20 {
		random.Shuffle(len(f.active), func(i, j int) { f.active[i], f.active[j] = f.active[j], f.active[i] })
		shards := f.plan.Rings[0].Shards
		random.Shuffle(len(shards), func(i, j int) { shards[i], shards[j] = shards[j], shards[i] })
		if got := f.settle().Digest(); got != want {
			t.Fatalf("in another order %s, want %s", got, want)
		}
	}
}

// In a rolling restart each shard moves away and back, and nowhere else.
func TestRollingRestartByWeight(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 4))
		f := newWeighedFleet(t, 40, podNames(5, random), weightsAtRandom(random))
		f.carryOut(t, random)
		f.trips = map[ID]int{}
		for _, m := range slices.Backward(f.known) {
			f.without(m)
			f.carryOut(t, random)
			f.with(m)
			f.carryOut(t, random)
		}
		for id, trips := range f.trips {
			if trips > 2 {
				t.Errorf("seed %d: %s made %d trips in one rolling restart", seed, id, trips)
			}
		}
	}
}

// heavyMember returns a plan in which a has one range, and b, c and d have five each.
func heavyMember(weigh bool) Plan {
	namespaces := Ring{Name: "namespaces", Scope: ScopeNamespaced}
	for i := range 16 {
		s := Shard{ID: ID{Ring: "namespaces", Name: fmt.Sprintf("%02d", i)}, Home: string("bcd"[i%3])}
		if weigh {
			s.Weight = 400
		}
		namespaces.Shards = append(namespaces.Shards, s)
	}
	namespaces.Shards[15].Home = "a"
	return Plan{Rings: []Ring{namespaces}}
}

// TestMemberWithHeavyGroupsGetsNoRanges checks that while d is away, its ranges go to b and c: a
// stays heavier than these even with all of them. By count, a would get them all.
func TestMemberWithHeavyGroupsGetsNoRanges(t *testing.T) {
	for weigh, want := range map[bool]int{true: 1, false: 6} {
		plan := heavyMember(weigh)
		all := []string{"a", "b", "c", "d"}
		homes, err := plan.HomesOf("namespaces", all)
		if err != nil {
			t.Fatal(err)
		}
		beside := map[string]int64{"a": 3600}
		p := plan.SettleRing("namespaces", all[:3], homes, homes.owners, nil, beside)
		if got := len(p.shards["a"]); got != want {
			t.Errorf("weights: %t: a has %d ranges, want %d", weigh, got, want)
		}
	}
}

// TestWeigher checks that a shard without a weight counts as the mean of the others, if half of
// them have one.
func TestWeigher(t *testing.T) {
	for _, test := range []struct{ weights, want []int64 }{
		{[]int64{4, 6}, []int64{4, 6}},
		{[]int64{4, 6, 0, 0}, []int64{4, 6, 5, 5}},
		{[]int64{4, 6, 0, 0, 0}, nil},
		{[]int64{0, 0}, nil},
		{nil, nil},
		{[]int64{1 << 62, 0}, []int64{mostSettled, mostSettled}},
	} {
		var r Ring
		for i, w := range test.weights {
			r.Shards = append(r.Shards, Shard{ID: ID{Ring: "r", Name: fmt.Sprint(i)}, Weight: w})
		}
		weigh := r.weigher()
		if (weigh == nil) != (test.want == nil) {
			t.Errorf("%v: weighs %t", test.weights, weigh != nil)
			continue
		}
		for i, want := range test.want {
			if got := weigh(r.Shards[i].ID); got != want {
				t.Errorf("%v: %d counts with %d, want %d", test.weights, i, got, want)
			}
		}
	}
}

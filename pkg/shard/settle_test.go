package shard

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// shardFleet has active and former members, and holders that a test moves shards between.
type shardFleet struct {
	ids     []ID
	known   []string
	active  []string
	home    Placement
	holders map[ID]string
	trips   map[ID]int
	// settles is the function that settle calls.
	settles func() Placement
}

func newShardFleet(t *testing.T, shards int, members []string) *shardFleet {
	t.Helper()
	f := &shardFleet{known: members, active: members, holders: map[ID]string{}, trips: map[ID]int{}}
	f.settles = func() Placement { return Settle(f.ids, f.active, f.home, f.holders) }
	for i := range shards {
		f.ids = append(f.ids, ID{Ring: "r", Name: fmt.Sprintf("s%d", i)})
	}
	f.know(t, members)
	return f
}

func (f *shardFleet) know(t *testing.T, members []string) {
	t.Helper()
	f.known = members
	var err error
	if f.home, err = Homes(f.ids, members); err != nil {
		t.Fatal(err)
	}
}

func (f *shardFleet) settle() Placement { return f.settles() }

// moves returns the shards that are not where p wants them, sorted.
func (f *shardFleet) moves(p Placement) []ID {
	var moves []ID
	for _, id := range f.ids {
		if owner, _ := p.Owner(id); owner != f.holders[id] {
			moves = append(moves, id)
		}
	}
	return moves
}

// carryOut moves one shard after the other, in random order, settles again before each move, and
// returns the number of moves.
func (f *shardFleet) carryOut(t *testing.T, random *rand.Rand) int {
	t.Helper()
	done := 0
	first := f.settle()
	for {
		p := f.settle()
		if p.Digest() != first.Digest() {
			t.Fatalf("the placement changed after %d of its moves", done)
		}
		moves := f.moves(p)
		if len(moves) == 0 {
			return done
		}
		id := moves[random.IntN(len(moves))]
		owner, _ := p.Owner(id)
		// The shard is released first, and acquired after others have moved.
		if _, held := f.holders[id]; held && random.IntN(2) == 0 {
			f.trips[id]++
			delete(f.holders, id)
			continue
		}
		if _, held := f.holders[id]; held {
			f.trips[id]++
		}
		f.holders[id] = owner
		if done++; done > 2*len(f.ids) {
			t.Fatalf("no end after %d moves", done)
		}
	}
}

func (f *shardFleet) without(member string) {
	f.active = slices.DeleteFunc(slices.Clone(f.active), func(m string) bool { return m == member })
}

func (f *shardFleet) with(member string) {
	f.active = append(slices.Clone(f.active), member)
}

func (f *shardFleet) loads() []int {
	loads := map[string]int{}
	for _, m := range f.active {
		loads[m] = 0
	}
	for _, holder := range f.holders {
		loads[holder]++
	}
	return slices.Sorted(maps.Values(loads))
}

func podNames(n int, random *rand.Rand) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("fleet%d-%d", random.IntN(1000), i))
	}
	return names
}

// TestSettleMovesNoMoreThanItWants carries out random changes in random order.
func TestSettleMovesNoMoreThanItWants(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		f := newShardFleet(t, 1+random.IntN(40), podNames(1+random.IntN(8), random))
		f.carryOut(t, random)
		for range 12 {
			if m := f.known[random.IntN(len(f.known))]; !slices.Contains(f.active, m) {
				f.with(m)
			} else if len(f.active) > 1 {
				f.without(m)
			}
			wanted := len(f.moves(f.settle()))
			if done := f.carryOut(t, random); done != wanted {
				t.Fatalf("seed %d: %d moves were wanted and %d made", seed, wanted, done)
			}
			if loads := f.loads(); loads[len(loads)-1]-loads[0] > 1 {
				t.Fatalf("seed %d: loads are %v", seed, loads)
			}
			for id, holder := range f.holders {
				if !slices.Contains(f.active, holder) {
					t.Fatalf("seed %d: %s is left with %s, which is away", seed, id, holder)
				}
			}
		}
	}
}

// TestRollingRestart restarts every member of fleets of three to ten, the highest first, as a
// StatefulSet does.
func TestRollingRestart(t *testing.T) {
	const most = 2
	seeds := uint64(40)
	if testing.Short() {
		seeds = 4
	}
	for _, size := range []int{3, 5, 10} {
		for _, perMember := range []int{1, 4, 8} {
			total, worst, runs := 0, 0, 0
			for seed := range seeds {
				random := rand.New(rand.NewPCG(seed, 2))
				names := podNames(size, random)
				f := newShardFleet(t, size*perMember, names)
				// Members come one after the other, as when a fleet is first started.
				for i := range names {
					f.know(t, names[:i+1])
					f.active = f.known
					f.carryOut(t, random)
				}
				f.trips = map[ID]int{}
				for _, m := range slices.Backward(f.known) {
					f.without(m)
					f.carryOut(t, random)
					f.with(m)
					f.carryOut(t, random)
				}
				for _, trips := range f.trips {
					total += trips
					worst = max(worst, trips)
				}
				runs++
			}
			t.Logf("%d members with %d shards each: %.2f trips a shard, %d at most", size, perMember,
				float64(total)/float64(runs*size*perMember), worst)
			if worst > most {
				t.Errorf("%d members with %d shards each: a shard made %d trips in one rolling restart, want at most %d", size, perMember, worst, most)
			}
		}
	}
}

func TestSettleWithoutMembers(t *testing.T) {
	if p := Settle([]ID{{Ring: "r", Name: "s"}}, nil, Placement{}, nil); p.Len() != 0 {
		t.Errorf("%d shards were placed without members", p.Len())
	}
}

package shard

import (
	"reflect"
	"slices"
	"testing"
)

// TestBalanceReached starts from equal ranges on a ring of members without homes, and lets the
// planner work until it proposes nothing. No member may then have more than 10 % above the mean or,
// if single namespaces are too heavy for that, 2 % above the best possible. The log shows the
// balance of equal ranges beside it.
func TestBalanceReached(t *testing.T) {
	t.Logf("%-9s %5s %7s  %6s %6s %6s %6s  %s", "names", "count", "members", "equal", "after", "bound", "shards", "on the way")
	for i, s := range schemes {
		for _, n := range []int{500, 5000} {
			if s.most > 0 && n > 500 {
				continue
			}
			full := NewCensus(weightsOf(i, n))
			for _, size := range []int{3, 5, 8} {
				p, members := testPlan(t, 16), statefulMembers(size)
				equal := BalanceOf(p, "namespaces", Weights{Census: full}, members)
				p, done := converged(t, p, full, members)
				after := BalanceOf(p, "namespaces", Weights{Census: full}, members)
				shards := len(p.Rings[0].Shards)
				t.Logf("%-9s %5d %7d  %6.2f %6.3f %6.3f %6d  %s", s.name, len(full), size, equal.Ratio(), after.Ratio(), after.Bound, shards, done.per(full.Total()))
				if limit := max(1.10, 1.02*after.Bound); after.Ratio() > limit {
					t.Errorf("%s, %d members: the heaviest has %.3f of the mean, want at most %.3f", s.name, size, after.Ratio(), limit)
				}
				if done.rounds > 12 {
					t.Errorf("%s, %d members: %d rounds, want at most 12", s.name, size, done.rounds)
				}
			}
		}
	}
}

// TestHomesOfWithoutHomes checks that a plan without pins and homes is placed by hash alone.
func TestHomesOfWithoutHomes(t *testing.T) {
	r := newRand(t)
	for range 100 {
		p, members := testPlan(t, 1+r.IntN(40)), testMembers(r, 1+r.IntN(9))
		for _, ring := range p.Rings {
			want, err := Homes(ring.IDs(), members)
			checkError(t, err)
			got, err := p.HomesOf(ring.Name, shuffled(r, append(members, members[0])))
			checkError(t, err)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("ring %s: %v, Homes says %v", ring.Name, got, want)
			}
		}
	}
}

func TestHomesOf(t *testing.T) {
	members := []string{"a", "b", "c"}
	p := testPlan(t, 8)
	hashed, err := Homes(p.Rings[0].IDs(), members)
	checkError(t, err)
	s := p.Rings[0].Shards
	s[0].Pin, s[0].Home = "a", "b"
	s[1].Home = "c"
	s[2].Pin, s[2].Home = "away", "b"
	s[3].Pin, s[3].Home = "away", "gone"
	s[4].Home = "away"
	got, err := p.HomesOf("namespaces", members)
	checkError(t, err)
	for i, shard := range s {
		want, _ := hashed.Owner(shard.ID)
		if i < 3 {
			want = []string{"a", "c", "b"}[i]
		}
		if owner, _ := got.Owner(shard.ID); owner != want || !slices.Contains(got.Of(owner), shard.ID) {
			t.Errorf("%+v is with %s, want %s", shard, owner, want)
		}
	}
	if got.Len() != len(s) || !slices.IsSortedFunc(got.Of("b"), ID.Compare) {
		t.Errorf("%d placed, want %d, and sorted: %v", got.Len(), len(s), got.Of("b"))
	}
	if none, err := p.HomesOf("namespaces", nil); err != nil || none.Len() != 0 {
		t.Errorf("without members: %d placed, %v", none.Len(), err)
	}
	_, err = p.HomesOf("nothing", members)
	checkError(t, err, `ring "nothing"`)
	_, err = p.HomesOf("namespaces", []string{""})
	checkError(t, err, "member")
}

// TestBoundIsReached tries every way to give few cells to few members. The bound must never be
// above the best of them, and must equal it if all cells are equal.
func TestBoundIsReached(t *testing.T) {
	r := newRand(t)
	var best func(cells Census, loads []int64) int64
	best = func(cells Census, loads []int64) int64 {
		if len(cells) == 0 {
			return slices.Max(loads)
		}
		least := MaxCellWeight
		for i := range loads {
			loads[i] += cells[0].Weight
			least = min(least, best(cells[1:], loads))
			loads[i] -= cells[0].Weight
		}
		return least
	}
	for range 300 {
		n, equal := 1+r.IntN(3), r.IntN(3) == 0
		var c Census
		for i := range r.IntN(8) {
			w := int64(10)
			if !equal {
				w = r.Int64N(30)
			}
			c = append(c, Cell{uint64(i), w, 1})
		}
		bound, reached := leastMax(c, n), best(c, make([]int64, n))
		if bound > reached || equal && bound != reached {
			t.Fatalf("%v on %d members: bound %d, the best is %d", c, n, bound, reached)
		}
	}
}

func TestBalanceOf(t *testing.T) {
	p, members := testPlan(t, 2), []string{"a", "b", "c"}
	p.Rings[0].Shards[0].Home, p.Rings[0].Shards[1].Home = "a", "b"
	c := Census{{1, 30, 1}, {2, 10, 1}, {1 << 63, 20, 1}}
	got := BalanceOf(p, "namespaces", Weights{Census: c}, members)
	want := Balance{Members: map[string]int64{"a": 40, "b": 20, "c": 0}, Max: 40, Mean: 20, Bound: 1.5}
	if !reflect.DeepEqual(got, want) || got.Ratio() != 2 {
		t.Errorf("balance %+v of ratio %v, want %+v of 2", got, got.Ratio(), want)
	}
	for _, none := range []Balance{BalanceOf(p, "namespaces", Weights{}, members), BalanceOf(p, "nothing", Weights{Census: c}, members), BalanceOf(p, "namespaces", Weights{Census: c}, nil)} {
		if none.Ratio() != 1 || none.Max != 0 || none.Bound != 1 {
			t.Errorf("balance of nothing: %+v", none)
		}
	}
}

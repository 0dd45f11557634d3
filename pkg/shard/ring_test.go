package shard

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
)

func mustPlace(t *testing.T, shards []ID, members []string) Placement {
	t.Helper()
	p, err := Place(shards, members)
	if err != nil {
		t.Fatalf("%d shards, members %q: %v", len(shards), members, err)
	}
	return p
}

// checkPlacement fails unless each shard has one of the members, no member has too many, and the
// three ways to read the placement agree. It returns the greatest load.
func checkPlacement(t *testing.T, p Placement, shards []ID, members []string) int {
	t.Helper()
	if p.Len() != len(shards) {
		t.Fatalf("%d of %d shards were placed", p.Len(), len(shards))
	}
	total, greatest := 0, 0
	for _, m := range members {
		of := p.Of(m)
		if !slices.IsSortedFunc(of, ID.Compare) {
			t.Errorf("Of(%s) = %v, want it sorted", m, of)
		}
		for _, id := range of {
			if owner, placed := p.Owner(id); owner != m || !placed {
				t.Errorf("%s is of %s, but its owner is %q, %v", id, m, owner, placed)
			}
		}
		total, greatest = total+len(of), max(greatest, len(of))
	}
	if total != len(shards) {
		t.Errorf("the members own %d shards, want all %d", total, len(shards))
	}
	if limit := MaxLoad(len(shards), len(members)); greatest > limit {
		t.Errorf("%d shards on %d members: one has %d, want at most %d", len(shards), len(members), greatest, limit)
	}
	return greatest
}

func TestPlacementsGolden(t *testing.T) {
	var out strings.Builder
	out.WriteString("# Written by go test ./pkg/shard -run TestPlacementsGolden -rewrite. A difference here\n")
	out.WriteString("# means that members of two versions disagree on who owns what.\n")
	groups := []ID{{"cluster", "certificates"}, {"cluster", "garbage"}, {"cluster", "nodes"}, {"cluster", "policy"}, {"cluster", "volumes"}}
	for _, tc := range []struct {
		shards  []ID
		members []string
	}{
		{testIDs(16), statefulMembers(1)},
		{testIDs(16), statefulMembers(3)},
		{testIDs(16), statefulMembers(4)},
		{testIDs(64), statefulMembers(12)},
		{groups, statefulMembers(2)},
		{groups, statefulMembers(8)},
		{groups, nil},
	} {
		p := mustPlace(t, tc.shards, tc.members)
		fmt.Fprintf(&out, "\n%d shards of ring %s on %d members: %s\n", len(tc.shards), tc.shards[0].Ring, len(tc.members), p.Digest())
		for _, m := range tc.members {
			names := []string{}
			for _, id := range p.Of(m) {
				names = append(names, id.Name)
			}
			fmt.Fprintf(&out, "  %s: %s\n", m, strings.Join(names, " "))
		}
	}
	checkGolden(t, "placements.txt", strings.ReplaceAll(out.String(), " \n", "\n"))
}

// TestPlaceGrid tries 1 to 128 shards on 1 to 40 members: no panic, no error, every shard on a live
// member, no member above its load.
func TestPlaceGrid(t *testing.T) {
	r := newRand(t)
	every := 8
	if testing.Short() {
		every = 64
	}
	sample := r.IntN(every)
	for m := 1; m <= 40; m++ {
		for s := 1; s <= 128; s++ {
			if (s+m)%every == sample || *exhaustive {
				members := testMembers(r, m)
				checkPlacement(t, mustPlace(t, testIDs(s), members), testIDs(s), members)
			}
		}
	}
}

func TestMaxLoad(t *testing.T) {
	for _, tc := range []struct{ shards, members, want int }{
		{0, 0, 0}, {0, 3, 0}, {3, 0, 0}, {-1, 3, 0}, {3, -1, 0},
		{1, 1, 2}, {1, 2, 1}, {10, 10, 2}, {10, 11, 1}, {10, 100, 1}, {5, 2, 3}, {5, 3, 2},
		{16, 4, 5}, {64, 16, 5}, {128, 4, 36}, {MaxShards, 256, 5},
	} {
		if got := MaxLoad(tc.shards, tc.members); got != tc.want {
			t.Errorf("MaxLoad(%d, %d) = %d, want %d", tc.shards, tc.members, got, tc.want)
		}
	}
	// The bound is tight: some roster reaches it.
	r := newRand(t)
	for _, tc := range [][2]int{{4, 4}, {10, 11}, {5, 2}, {16, 4}, {64, 16}} {
		greatest := 0
		for range 50 {
			members := testMembers(r, tc[1])
			greatest = max(greatest, checkPlacement(t, mustPlace(t, testIDs(tc[0]), members), testIDs(tc[0]), members))
		}
		if want := MaxLoad(tc[0], tc[1]); greatest != want {
			t.Errorf("%d shards on %d members: greatest load %d in 50 rosters, want %d", tc[0], tc[1], greatest, want)
		}
	}
}

// TestPlaceIgnoresOrder places shuffled and repeated arguments. With a hash of eight bits the
// members' points collide, which would make the order matter.
func TestPlaceIgnoresOrder(t *testing.T) {
	r := newRand(t)
	coarse := func(key []byte) uint64 { return xxhash.Sum64(key) % 256 }
	for name, sum := range map[string]func([]byte) uint64{"xxhash": xxhash.Sum64, "collisions": coarse} {
		t.Run(name, func(t *testing.T) {
			for range 100 {
				shards, members := testIDs(1+r.IntN(64)), testMembers(r, 1+r.IntN(6))
				want, err := place(shards, members, loadFactor, sum, nil)
				if err != nil {
					t.Fatal(err)
				}
				shards, members = append(shards, shards[:len(shards)/2]...), append(members, members[0])
				got, err := place(shuffled(r, shards), shuffled(r, members), loadFactor, sum, new(Circles))
				if err != nil || got.Digest() != want.Digest() {
					t.Fatalf("%d shards, members %q: digest %s, %v; want %s", len(shards), members, got.Digest(), err, want.Digest())
				}
			}
		})
	}
}

func TestPlaceLeavesArgumentsAlone(t *testing.T) {
	shards, members := []ID{{"r", "b"}, {"r", "a"}, {"r", "a"}}, []string{"y", "x", "y"}
	p := mustPlace(t, shards, members)
	if shards[0].Name != "b" || members[0] != "y" {
		t.Errorf("Place changed its arguments to %v, %v", shards, members)
	}
	owner, _ := p.Owner(ID{"r", "a"})
	p.Of(owner)[0] = ID{"changed", "changed"}
	if p.Of(owner)[0].Ring == "changed" {
		t.Error("Of hands out the placement's own slice")
	}
}

func TestPlaceEdges(t *testing.T) {
	for name, tc := range map[string]struct {
		shards  []ID
		members []string
		want    int
		words   []string
	}{
		"nothing":          {nil, nil, 0, nil},
		"no members":       {testIDs(3), nil, 0, nil},
		"no shards":        {nil, []string{"m"}, 0, nil},
		"one each":         {testIDs(1), []string{"m"}, 1, nil},
		"one of many":      {testIDs(1), statefulMembers(40), 1, nil},
		"repeated":         {append(testIDs(2), testIDs(2)...), []string{"m", "m", "m"}, 2, nil},
		"odd names":        {testIDs(9), []string{" ", "=", "a=b", "\x00\x00\x00\x00\x00\x00", "é", "0:m", "m"}, 9, nil},
		"most":             {testIDs(MaxShards), statefulMembers(3), MaxShards, nil},
		"too many":         {testIDs(MaxShards + 1), []string{"m"}, 0, []string{"number of shards 1025", "1024"}},
		"too many, unused": {testIDs(MaxShards + 1), nil, 0, []string{"number of shards 1025"}},
		"invalid shard":    {[]ID{{"a-b", "c"}}, []string{"m"}, 0, []string{`shard "a-b/c"`, `ring "a-b"`}},
		"zero shard":       {[]ID{{}}, nil, 0, []string{`ring ""`, `shard name ""`}},
		"empty member":     {testIDs(1), []string{"m", ""}, 0, []string{`member ""`, "must not be empty"}},
		"two lines":        {testIDs(1), []string{"m\nn"}, 0, []string{`member "m\nn"`, "line feed"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Place(tc.shards, tc.members)
			checkError(t, err, tc.words...)
			if p.Len() != tc.want {
				t.Errorf("%d shards were placed, want %d", p.Len(), tc.want)
			}
		})
	}
	var zero Placement
	if owner, placed := zero.Owner(ID{"r", "a"}); placed || owner != "" || zero.Of("m") != nil {
		t.Error("the zero placement places something")
	}
}

// TestPlaceSurvivesPanics makes the library panic in two ways.
func TestPlaceSurvivesPanics(t *testing.T) {
	oneBit := func(key []byte) uint64 { return xxhash.Sum64(key) % 2 }
	for name, call := range map[string]func() (Placement, error){
		"load too small": func() (Placement, error) {
			return place(testIDs(10), statefulMembers(3), 0.5, xxhash.Sum64, new(Circles))
		},
		"members lose points": func() (Placement, error) {
			return place(testIDs(10), statefulMembers(5), loadFactor, oneBit, new(Circles))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := call()
			checkError(t, err, "placing 10 shards", "not enough room")
			if p.Len() != 0 {
				t.Errorf("%d shards were placed despite the error", p.Len())
			}
		})
	}
}

func TestPlacementDigest(t *testing.T) {
	shards := testIDs(2)
	if got, want := mustPlace(t, shards, []string{"m"}).Digest(), fmt.Sprintf("%016x", xxhash.Sum64String("namespaces/0000=m\nnamespaces/0001=m\n")); got != want {
		t.Errorf("Digest() = %s, want %s", got, want)
	}
	if a, b := mustPlace(t, shards, []string{"m"}), mustPlace(t, shards, []string{"n"}); a.Digest() == b.Digest() {
		t.Error("two placements have one digest")
	}
}

// TestPlaceByKeptCircles walks from roster to roster, with some steps too large for a kept circle,
// and compares each placement with one that is computed from scratch. Where hashes have 20 bits,
// points of members collide now and then.
func TestPlaceByKeptCircles(t *testing.T) {
	r := newRand(t)
	coarse := func(key []byte) uint64 { return xxhash.Sum64(key) % (1 << 20) }
	for name, sum := range map[string]func([]byte) uint64{"xxhash": xxhash.Sum64, "collisions": coarse} {
		t.Run(name, func(t *testing.T) {
			kept, taken := new(Circles), 0
			pool := testMembers(r, 30)
			sets := [][]ID{testIDs(40), testIDs(41), testIDs(3)}
			members := pool[:4]
			// Chance decides how many circles are made from a kept one, so the loop continues until
			// there were 50.
			for step := 0; step < 300 || taken < 50 && step < 3000; step++ {
				switch n := r.IntN(10); {
				case n == 0:
					members = shuffled(r, pool)[:1+r.IntN(len(pool))]
				case n < 5 && len(members) > 1:
					members = shuffled(r, members)[1:]
				default:
					members = append(slices.Clone(members), pool[r.IntN(len(pool))])
				}
				shards := sets[r.IntN(len(sets))]
				want, err := place(shards, members, loadFactor, sum, new(Circles))
				if err != nil {
					t.Fatal(err)
				}
				if c := kept.take(sortedUnique(shards, ID.Compare), sortedUnique(members, strings.Compare)); c != nil {
					taken++
					kept.keep(c)
				}
				got, err := place(shards, members, loadFactor, sum, kept)
				if err != nil || got.Digest() != want.Digest() {
					t.Fatalf("%d shards, members %q: digest %s, %v; want %s", len(shards), members, got.Digest(), err, want.Digest())
				}
			}
			if taken < 50 {
				t.Errorf("%d circles were made of one that was kept, want 50 or more", taken)
			}
		})
	}
}

// TestCircleOfARestart checks that a member that leaves and comes back takes the same circle twice.
func TestCircleOfARestart(t *testing.T) {
	kept, shards, members := new(Circles), testIDs(8), statefulMembers(3)
	if _, err := place(shards, members, loadFactor, xxhash.Sum64, kept); err != nil {
		t.Fatal(err)
	}
	first := kept.last[0]
	for _, now := range [][]string{members[:2], members} {
		c := kept.take(shards, now)
		if c != first {
			t.Fatalf("with members %q the circle is another one", now)
		}
		kept.keep(c)
	}
}

// BenchmarkPlace places 1,000 shards on 100 members, one of which leaves and comes back.
func BenchmarkPlace(b *testing.B) {
	shards, members := testIDs(1000), statefulMembers(100)
	for name, keep := range map[string]bool{"from nothing": false, "kept": true} {
		b.Run(name, func(b *testing.B) {
			kept := new(Circles)
			for i := 0; b.Loop(); i++ {
				if !keep {
					kept = new(Circles)
				}
				if _, err := place(shards, members[:len(members)-i%2], loadFactor, xxhash.Sum64, kept); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package shard

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// mixedFleet is a fleet of two versions that a test upgrades and downgrades. It counts how often
// each shard goes from one version to the other.
type mixedFleet struct {
	t       *testing.T
	random  *rand.Rand
	plan    Plan
	names   []string
	active  []string
	isNew   map[string]bool
	holders map[ID]string
	newest  []string
	// up and down are how often each shard went to the new version, and back. lastOwner has the
	// last owners of shards that nobody holds.
	up, down  map[ID]int
	lastOwner map[ID]string
}

func newMixedFleet(t *testing.T, random *rand.Rand) *mixedFleet {
	t.Helper()
	f := &mixedFleet{
		t: t, random: random, names: podNames(2+random.IntN(6), random), isNew: map[string]bool{}, holders: map[ID]string{},
		up: map[ID]int{}, down: map[ID]int{},
	}
	f.active = slices.Clone(f.names)
	f.newest = slices.Clone(f.names)
	ranges, err := EqualRanges(1 + random.IntN(20))
	if err != nil {
		t.Fatal(err)
	}
	namespaces := Ring{Name: "namespaces", Scope: ScopeNamespaced, Controllers: []string{"deployment-controller"}}
	homes, weigh := random.IntN(2) == 0, random.IntN(2) == 0
	for i, r := range ranges {
		s := Shard{ID: ID{"namespaces", fmt.Sprintf("%02d", i)}, Range: r}
		if homes {
			s.Home = f.names[random.IntN(len(f.names))]
		}
		if weigh {
			s.Weight = 1 + random.Int64N(1000)
		}
		namespaces.Shards = append(namespaces.Shards, s)
	}
	cluster := Ring{Name: "cluster", Scope: ScopeCluster}
	for i, group := range []string{"nodes", "volumes", "policy", "certificates"} {
		s := Shard{ID: ID{"cluster", group}, Group: group, Controllers: []string{fmt.Sprintf("controller-%d", i)}}
		if group == "volumes" {
			s.ColocateWith = "nodes"
		}
		cluster.Shards = append(cluster.Shards, s)
	}
	f.plan = Plan{Generation: 1, Rings: []Ring{namespaces, cluster}}
	return f
}

// settle returns the placement, as a member computes it that reads everything in another order.
func (f *mixedFleet) settle() map[ID]string {
	f.t.Helper()
	owners, beside := map[ID]string{}, map[string]int64{}
	for _, ring := range []string{"cluster", "namespaces"} {
		members, tried := slices.Clone(f.active), []string{}
		f.random.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		for _, m := range members {
			if f.isNew[m] {
				tried = append(tried, m)
			}
		}
		homes, err := f.plan.HomesOf(ring, f.names)
		if err != nil {
			f.t.Fatal(err)
		}
		r, _ := f.plan.Ring(ring)
		p := f.plan.SettleVersions(ring, members, tried, homes, f.holders, f.newest, beside)
		for _, s := range r.Shards {
			owner, placed := p.Owner(s.ID)
			if !placed {
				f.t.Fatalf("%s is placed nowhere", s.ID)
			}
			owners[s.ID] = owner
			beside[owner] += s.Weight
		}
	}
	return owners
}

// carryOut moves one shard after the other, in random order, and settles again after each. The
// placement must not change in between.
func (f *mixedFleet) carryOut(what string) {
	f.t.Helper()
	for id, holder := range f.holders {
		if !slices.Contains(f.active, holder) {
			f.lastOwner[id] = holder
			delete(f.holders, id)
		}
	}
	first := f.settle()
	for range 2*len(first) + 1 {
		now := f.settle()
		var moves []ID
		for id, owner := range now {
			if owner != first[id] {
				f.t.Fatalf("%s: %s was to go to %s, but after other moves to %s", what, id, first[id], owner)
			}
			if f.holders[id] != owner {
				moves = append(moves, id)
			}
		}
		if len(moves) == 0 {
			f.check(what)
			return
		}
		slices.SortFunc(moves, ID.Compare)
		id := moves[f.random.IntN(len(moves))]
		from := f.holders[id]
		if from == "" {
			from = f.lastOwner[id]
		}
		switch was, is := f.isNew[from], f.isNew[now[id]]; { // A member that is away keeps its version.
		case from == "" || was == is:
		case is:
			f.up[id]++
		default:
			f.down[id]++
		}
		f.holders[id] = now[id]
	}
	f.t.Fatalf("%s: the moves do not end", what)
}

// check checks which members have each shard.
func (f *mixedFleet) check(what string) {
	f.t.Helper()
	news, olds := 0, 0
	for _, m := range f.active {
		if f.isNew[m] {
			news++
		} else {
			olds++
		}
	}
	if f.plan.Canary == nil || news == 0 || olds == 0 {
		return
	}
	for _, s := range f.plan.Shards() {
		tried := !f.plan.Canary.Aborted && (s.Range == onlyHash(Hash("team-a")) || s.Range == onlyHash(Hash("team-b")))
		if holder := f.holders[s.ID]; f.isNew[holder] != tried {
			f.t.Fatalf("%s: %s is with %s, of the new version: %t; the canary %s is for it: %t", what, s.ID, holder, f.isNew[holder], f.plan.Canary, tried)
		}
	}
}

// become makes the edited plan the next one. Shards that are cut pass to their successors where
// they are.
func (f *mixedFleet) become(edited Plan) {
	f.t.Helper()
	next, err := f.plan.Successor(edited)
	if err != nil {
		f.t.Fatal(err)
	}
	holders := map[ID]string{}
	for _, s := range next.Shards() {
		for _, was := range f.plan.Shards() {
			if was.Ring == s.Ring && was.Group == s.Group && was.Range.Overlaps(s.Range) {
				holders[s.ID] = f.holders[was.ID]
			}
		}
	}
	f.plan, f.holders = next, holders
}

// roll replaces a member by one of the other version.
func (f *mixedFleet) roll(member string, toNew bool) {
	f.t.Helper()
	f.active = slices.DeleteFunc(f.active, func(m string) bool { return m == member })
	if len(f.active) > 0 {
		f.carryOut(member + " is away")
	}
	f.isNew[member] = toNew
	f.active = append(f.active, member)
	f.newest = slices.Insert(slices.DeleteFunc(f.newest, func(m string) bool { return m == member }), 0, member)
	f.carryOut(fmt.Sprintf("%s is back, new: %t", member, toNew))
}

func (f *mixedFleet) begin() {
	f.lastOwner = map[ID]string{}
	f.carryOut("in the beginning")
	f.up, f.down = map[ID]int{}, map[ID]int{}
}

var testCanary = Canary{Version: "v2", Namespaces: []string{"team-a", "team-b"}, Since: "2026-11-24T08:50:00Z", By: "alice"}

// TestCanaryProperties rolls random fleets from one version to the next, member by member, in
// random order, with a canary that is promoted or aborted after some of them.
//
//   - While both versions are there, the new one has the canary's shards and nothing else.
//   - No shard goes to the new version more than once, or back except by the abort.
//   - Other shards go to the new version only after the canary was promoted.
//   - All members compute the same placement, in whatever order they read, and whichever moves have
//     been carried out.
func TestCanaryProperties(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 50
	}
	ups, downs := 0, 0
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 21))
		f := newMixedFleet(t, random)
		f.begin()
		order := slices.Clone(f.names)
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		// At least one member of each version exists while the canary runs.
		trying := 1 + random.IntN(len(order)-1)

		edited := f.plan
		edited.Canary = &testCanary
		f.become(edited)
		f.carryOut("the canary has begun")
		for _, m := range order[:trying] {
			f.roll(m, true)
		}
		for id, n := range f.up {
			if s, _ := f.plan.Shard(id); !f.plan.Tries(s) {
				t.Fatalf("seed %d: %s went to the new version %d times before it was promoted", seed, id, n)
			}
		}
		abort := random.IntN(2) == 0
		edited = f.plan
		if abort {
			if len(f.down) > 0 {
				t.Fatalf("seed %d: %v went back before the canary was aborted", seed, f.down)
			}
			aborted := testCanary
			aborted.Aborted = true
			edited.Canary = &aborted
			f.become(edited)
			f.carryOut("the canary is aborted")
			for _, m := range slices.Backward(order[:trying]) {
				f.roll(m, false)
			}
		} else {
			edited = f.plan.Promoted(func(id ID) string { return f.holders[id] })
			f.become(edited)
			f.carryOut("the canary is promoted")
			for _, m := range order[trying:] {
				f.roll(m, true)
			}
		}
		for _, s := range f.plan.Shards() {
			up, down := f.up[s.ID], f.down[s.ID]
			ups, downs = ups+up, downs+down
			if up > 1 || down > 1 || down > 0 && !abort {
				t.Fatalf("seed %d: %s went to the new version %d times, and back %d times; aborted: %t", seed, s.ID, up, down, abort)
			}
		}
	}
	t.Logf("shards went to the new version %d times, and back %d times", ups, downs)
	if ups < int(seeds) || downs < int(seeds)/2 {
		t.Error("hardly anything moved")
	}
}

// TestCanaryLiveness checks that if all members of one version leave, those of the other get
// everything, and give it up again when one of the first comes back.
func TestCanaryLiveness(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 22))
		f := newMixedFleet(t, random)
		f.begin()
		edited := f.plan
		edited.Canary = &testCanary
		f.become(edited)
		f.roll(f.names[0], true)
		for _, gone := range [][]string{f.names[:1], f.names[1:]} {
			f.active = slices.DeleteFunc(f.active, func(m string) bool { return slices.Contains(gone, m) })
			f.carryOut(fmt.Sprintf("%v have died", gone))
			for id, holder := range f.holders {
				if !slices.Contains(f.active, holder) {
					t.Fatalf("seed %d: %s is left with %q", seed, id, holder)
				}
			}
			f.active = append(f.active, gone...)
			f.carryOut(fmt.Sprintf("%v are back", gone))
		}
	}
}

// TestCanaryIsValidated checks that the error for each fault names its field.
func TestCanaryIsValidated(t *testing.T) {
	base := newMixedFleet(t, rand.New(rand.NewPCG(1, 1))).plan
	plan := func(change func(*Canary)) Plan {
		p, c := base, testCanary
		c.Namespaces = slices.Clone(c.Namespaces)
		change(&c)
		p.Canary = &c
		next, err := base.Successor(p)
		if err != nil {
			return p // Unchanged.
		}
		return next
	}
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprintf("team-%02d", i)
	}
	for want, p := range map[string]Plan{
		"":                              plan(func(*Canary) {}),
		"canary.version: Invalid":       plan(func(c *Canary) { c.Version = "" }),
		"v1.38.0 or so":                 plan(func(c *Canary) { c.Version = "v1.38.0 or so" }),
		"canary.version: Too long":      plan(func(c *Canary) { c.Version = strings.Repeat("v", 65) }),
		"canary.by: Invalid":            plan(func(c *Canary) { c.By = "a\x1b[31m" }),
		"canary.namespaces: Required":   plan(func(c *Canary) { c.Namespaces = nil }),
		"canary.namespaces: Too many":   plan(func(c *Canary) { c.Namespaces = many }),
		`canary.namespaces[1]: Invalid`: plan(func(c *Canary) { c.Namespaces = []string{"b", "a"} }),
		`canary.namespaces[0]: Invalid`: plan(func(c *Canary) { c.Namespaces = []string{"A"} }),
		"canary.ranges[0]: Invalid":     plan(func(c *Canary) { c.Ranges = []Range{{Start: 2, End: 1}} }),
		"no shard may lie in and outside": func() Plan {
			p, c := base, testCanary
			p.Canary = &c
			return p
		}(),
	} {
		err := p.Validate()
		switch {
		case want == "" && err != nil:
			t.Errorf("a good canary is refused: %v", err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("error %v, want it to say %q", err, want)
		}
	}
}

// TestCanaryIsCutOut checks that the shards of the namespaces and ranges are cut out, that the rest
// keeps pin and home, and that the document and the packed plan read back the same.
func TestCanaryIsCutOut(t *testing.T) {
	base := newMixedFleet(t, rand.New(rand.NewPCG(3, 1))).plan
	base.Rings[0].Shards[0].Pin = "somebody-0"
	c := testCanary
	c.Ranges = []Range{{Start: 5, End: 1 << 63}, {Start: 1<<63 + 1<<62}}
	edited := base
	edited.Canary = &c
	next, err := base.Successor(edited)
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, s := range next.Shards() {
		was, _ := base.find(s.Ring, func(o Shard) bool { return o.Group == s.Group && o.Range.Overlaps(s.Range) })
		if s.Pin != was.Pin || s.Home != was.Home {
			t.Errorf("%s has pin %q and home %q, want %q and %q as before", s.ID, s.Pin, s.Home, was.Pin, was.Home)
		}
		if next.Tries(s) {
			tried++
		}
	}
	if tried < 4 {
		t.Errorf("the canary is for %d shards, want one for each namespace and range at least", tried)
	}
	if next.Digest() == base.Digest() {
		t.Error("a plan with a canary has the digest of one without")
	}
	text, err := next.Document()
	if err != nil {
		t.Fatal(err)
	}
	packed, err := next.Packed()
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{text, packed} {
		back, err := ParsePlan([]byte(form))
		if err != nil {
			t.Fatal(err)
		}
		if back.Digest() != next.Digest() || !back.Canary.Equal(next.Canary) {
			t.Errorf("the plan that was read has the canary %v, want %v", back.Canary, next.Canary)
		}
	}
	if changes := Diff(base, next); len(changes) == 0 || changes[0].Kind != ChangeCanary {
		t.Errorf("the first change is %v, want the canary", changes)
	}
	// An aborted canary must not prevent other changes.
	aborted := c
	aborted.Aborted = true
	edited = base
	edited.Canary = &aborted
	if again, err := next.Successor(edited); err != nil || len(again.Shards()) != len(base.Shards()) {
		t.Errorf("with the canary aborted, the shards cannot be merged again: %v", err)
	}
}

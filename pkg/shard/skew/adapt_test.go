package skew

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// controllersOf writes a plan as "namespaces: a b; nodes: c".
func controllersOf(p shard.Plan) string {
	var parts []string
	for _, r := range p.Rings {
		if r.Scope == shard.ScopeNamespaced {
			parts = append(parts, r.Name+": "+strings.Join(r.Controllers, " "))
		}
		for _, s := range r.Shards {
			if s.Group != "" {
				parts = append(parts, s.Group+": "+strings.Join(s.Controllers, " "))
			}
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

func TestAdapt(t *testing.T) {
	const (
		one   = "n: n; namespaces: jobs m r; nodes: nodes; old: rr"
		two   = "n: n; namespaces: b jobs r; new: bb; nodes: m nodes; old: rr"
		three = "namespaces: b jobs n; new: bb; nodes: m nodes"
	)
	for name, tc := range map[string]struct {
		from       int // The version whose plan it is.
		by         int
		live, away []int
		want       string
		urgent     bool
	}{
		"alone":                            {from: 1, by: 1, want: one},
		"a newer one has come":             {from: 1, by: 2, live: []int{1, 1}, want: one},
		"the last older one has gone":      {from: 1, by: 2, live: []int{2}, want: two},
		"it may come back":                 {from: 1, by: 2, live: []int{2}, away: []int{1}, want: one},
		"the newest lacks some":            {from: 2, by: 3, live: []int{2}, want: two},
		"nobody has them":                  {from: 2, by: 3, want: three},
		"back, and an older one comes":     {from: 2, by: 2, live: []int{1}, want: "n: n; namespaces: b jobs m r; new: bb; nodes: nodes; old: rr", urgent: true},
		"back, and all are older":          {from: 2, by: 1, want: one, urgent: true},
		"back, and the newer may return":   {from: 2, by: 1, away: []int{2}, want: "n: n; namespaces: b jobs m r; new: bb; nodes: nodes; old: rr", urgent: true},
		"back by two, cold":                {from: 3, by: 1, want: one, urgent: true},
		"back by two, the other one away":  {from: 3, by: 1, away: []int{4}, want: "n: n; namespaces: b jobs m; new: bb; nodes: nodes", urgent: true},
		"from ranges, and no common scope": {from: 1, by: 4, live: []int{1}, want: "n: n; namespaces: jobs m r; nodes: nodes; old: rr"},
	} {
		t.Run(name, func(t *testing.T) {
			known := func(versions []int) (all []Known) {
				for _, v := range versions {
					all = append(all, knownOf(v))
				}
				return all
			}
			plan := planOf(t, buildOf(tc.from))
			next, changes, err := buildOf(tc.by).Adapt(plan, known(tc.live), known(tc.away))
			if err != nil {
				t.Fatal(err)
			}
			if got := controllersOf(next); got != tc.want {
				t.Errorf("got  %s\nwant %s\nof   %s\nby %v", got, tc.want, controllersOf(plan), changes)
			}
			if urgent := slices.ContainsFunc(changes, func(c Change) bool { return c.Urgent }); urgent != tc.urgent {
				t.Errorf("urgent is %v: %v", urgent, changes)
			}
			if len(changes) > 0 {
				if err := shard.CheckSuccessor(plan, next); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestAdaptKeeps checks that parts of the plan that a change does not concern stay as they are.
func TestAdaptKeeps(t *testing.T) {
	plan := planOf(t, buildOf(1))
	plan.Rings[0].Isolate = []string{"a"}
	plan, err := plan.Successor(plan)
	if err != nil {
		t.Fatal(err)
	}
	next, changes, err := buildOf(2).Adapt(plan, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := "[b begins in scope namespaced bb begins in scope cluster m moves from scope namespaced to scope cluster]"
	if got := fmt.Sprint(changes); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for i, s := range plan.Rings[0].Shards {
		got := next.Rings[0].Shards[i]
		if got.Range != s.Range || got.Home != s.Home || got.Name == s.Name {
			t.Errorf("range %v has become %v", s, got)
		}
	}
	if _, kept := next.Shard(shard.ID{Ring: "cluster", Name: "old"}); kept {
		t.Error("newName returned a name that people have given") // newName returns its own.
	}
	before, _ := plan.Ring("cluster")
	for _, s := range before.Shards {
		if _, kept := next.Shard(s.ID); kept != (s.Group != "nodes") {
			t.Errorf("group %s kept its name: %v", s.Group, kept)
		}
	}
	if i := slices.IndexFunc(next.Rings[1].Shards, func(s shard.Shard) bool { return s.Group == "nodes" }); next.Rings[1].Shards[i].Weight != 7 {
		t.Errorf("the weight of %v is lost", next.Rings[1].Shards[i])
	}
	// A controller stays where operators have put it.
	moved := copyOf(next)
	remove(&moved, "b")
	moved.Rings = append(moved.Rings, shard.Ring{Name: "batch", Scope: shard.ScopeNamespaced, Controllers: []string{"b"}, Shards: []shard.Shard{{}}})
	if moved, err = next.Successor(moved); err != nil {
		t.Fatal(err)
	}
	if _, changes, err := buildOf(2).Adapt(moved, []Known{knownOf(2)}, nil); err != nil || len(changes) > 0 {
		t.Errorf("it is changed by %v: %v", changes, err)
	}
	// A ring that has lost its last controller goes. A plan without the ring for a controller gets
	// that ring.
	if next, _, err = buildOf(1).Adapt(moved, nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, there := next.Ring("batch"); there {
		t.Errorf("ring batch has nothing to run: %s", controllersOf(next))
	}
	alone := shard.Plan{Generation: 1, Rings: []shard.Ring{{Name: "x", Scope: shard.ScopeCluster, Shards: []shard.Shard{{ID: shard.ID{Ring: "x", Name: "n"}, Group: "n", Controllers: []string{"n"}}}}}}
	if next, _, err = buildOf(1).Adapt(alone, nil, nil); err != nil || controllersOf(next) != "n: n; namespaces: jobs m r; nodes: nodes; old: rr" {
		t.Errorf("%v: %s", err, controllersOf(next))
	}
}

// A rollout is a fleet whose members come and go.
type rollout struct {
	t      *testing.T
	plan   shard.Plan
	live   map[string]int // By name.
	away   map[string]int
	before map[string]bool // By controller of the plan, before this step: whether it ran everywhere.
	log    []string
}

func (w *rollout) known(of map[string]int, but string) (all []Known) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if name != but {
			all = append(all, knownOf(of[name]))
		}
	}
	return all
}

// newest returns the member that plans.
func (w *rollout) newest() string {
	names := slices.Sorted(maps.Keys(w.live))
	return slices.MaxFunc(names, func(a, b string) int { return w.live[a] - w.live[b] })
}

// servers returns the members that get shards of a ring: the apt ones or, if there are none, all.
func (w *rollout) servers(r shard.Ring) (servers []string, none bool) {
	var apt []string
	for name, version := range w.live {
		if knownOf(version).Apt(r) {
			apt = append(apt, name)
		}
	}
	if len(apt) == 0 {
		return slices.Collect(maps.Keys(w.live)), true
	}
	return apt, false
}

func (w *rollout) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\n%v\nlive %v, away %v\n%s", fmt.Sprintf(format, args...), controllersOf(w.plan), w.live, w.away, strings.Join(w.log, "\n"))
}

// check checks the invariants, as if every member that may hold a shard held it. It returns true if
// nobody is left who could run some ring, because all such members left at once, before the planner
// has run again. The ring's controllers then run again once it has.
func (w *rollout) check() (bereft bool) {
	w.t.Helper()
	everywhere := map[string]bool{}
	scopes := scopesOf(&w.plan)
	for _, r := range w.plan.Rings {
		controllers := slices.Clone(r.Controllers)
		for _, s := range r.Shards {
			controllers = append(controllers, s.Controllers...)
		}
		servers, none := w.servers(r)
		bereft = bereft || none
		for _, c := range controllers {
			everywhere[c] = !slices.ContainsFunc(servers, func(name string) bool { return !buildOf(w.live[name]).Runs(c, r.Scope) })
		}
	}
	// A controller that every live member has, and that was in the plan, runs on every namespace,
	// whichever members hold the shards.
	for c := range w.before {
		if !bereft && knownByAll(w.known(w.live, ""), c) && !everywhere[c] {
			w.fatalf("%s, which all live members know, does not run everywhere: in the plan in scope %q", c, scopes[c])
		}
	}
	if !bereft {
		w.before = everywhere
	}
	for name, version := range w.live {
		if err := buildOf(version).Fits(&w.plan, w.plan, w.known(w.live, name)); err != nil {
			w.fatalf("%s of version %d refuses the plan: %v", name, version, err)
		}
	}
	return bereft
}

// adapt makes the newest member adapt the plan, and checks the result.
func (w *rollout) adapt() {
	w.t.Helper()
	if len(w.live) == 0 {
		return
	}
	name := w.newest()
	b, others, away := buildOf(w.live[name]), w.known(w.live, name), w.known(w.away, "")
	next, changes, err := b.Adapt(w.plan, others, away)
	if err != nil {
		w.fatalf("%v", err)
	}
	for _, c := range changes {
		all := slices.Concat(others, away, []Known{b.Known()})
		if c.From == "" && !knownByAll(all, c.Controller) {
			w.fatalf("%v, and not all know it", c)
		}
		if c.To == "" && slices.ContainsFunc(all, func(k Known) bool { return k.Knows(c.Controller) }) {
			w.fatalf("%v, and some know it", c)
		}
	}
	for other, version := range w.live {
		current := w.plan
		if err := buildOf(version).Fits(&current, next, w.known(w.live, other)); err != nil {
			w.fatalf("%s of version %d refuses the plan that follows by %v: %v", other, version, changes, err)
		}
	}
	w.log = append(w.log, fmt.Sprintf("%s adapts: %v", name, changes))
	w.plan = next
	if _, again, err := b.Adapt(next, others, away); err != nil || len(again) > 0 {
		w.fatalf("again, by %v: %v", again, err)
	}
}

// TestRandomHistories has members of neighbouring versions come and go at random, and the newest
// adapt the plan at any time.
func TestRandomHistories(t *testing.T) {
	seeds := uint64(500)
	if testing.Short() {
		seeds = 50
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 1))
		w := &rollout{t: t, live: map[string]int{}, away: map[string]int{}, log: []string{fmt.Sprintf("seed %d", seed)}, before: map[string]bool{}}
		version := 1 + random.IntN(4)
		w.plan = planOf(t, buildOf(version))
		for i := range 3 {
			w.live[fmt.Sprint("m", i)] = version
		}
		w.check()
		other := version
		for range 40 {
			name := fmt.Sprint("m", random.IntN(5))
			switch dice := random.IntN(10); {
			case dice < 4:
				// Versions are one minor version apart, as docs/upgrade.md requires, also from
				// members that may come back.
				v := version
				if random.IntN(2) == 0 {
					v = other
				}
				w.live[name] = v
				delete(w.away, name)
				w.log = append(w.log, fmt.Sprintf("%s joins with version %d", name, v))
			case dice < 6 && len(w.live) > 1:
				if v, live := w.live[name]; live {
					w.away[name] = v
					delete(w.live, name)
					w.log = append(w.log, name+" leaves")
				}
			case dice < 7:
				delete(w.away, name)
				w.log = append(w.log, name+" is forgotten")
			case dice < 8:
				if all := slices.Concat(slices.Collect(maps.Values(w.live)), slices.Collect(maps.Values(w.away))); slices.Min(all) == slices.Max(all) {
					w.adapt() // An upgrade begins after the last one is done.
					version = all[0]
					other = max(1, min(4, version+1-2*random.IntN(2)))
				}
			default:
				w.adapt()
			}
			if w.check() {
				w.adapt()
				if w.check() {
					w.fatalf("nobody can run some ring, and the planner does nothing about it")
				}
			}
		}
		// In the end all members are of one version, and the plan is that version's own.
		for name := range w.live {
			w.live[name] = version
		}
		clear(w.away)
		w.adapt()
		w.check()
		if got, want := controllersOf(w.plan), controllersOf(planOf(t, buildOf(version))); got != want {
			w.fatalf("all are of version %d: got %s, want %s", version, got, want)
		}
	}
}

// TestAnyBuilds has builds of any versions in one fleet. Adapt must come to rest, and its plans
// must be valid.
func TestAnyBuilds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		plan := planOf(t, buildOf(1+random.IntN(4)))
		for range 3 {
			var live, away []Known
			for range random.IntN(4) {
				live = append(live, knownOf(1+random.IntN(4)))
			}
			for range random.IntN(3) {
				away = append(away, knownOf(1+random.IntN(4)))
			}
			b := buildOf(1 + random.IntN(4))
			next, changes, err := b.Adapt(plan, live, away)
			if err != nil {
				t.Fatal(err)
			}
			if err := next.Validate(); err != nil {
				t.Fatalf("%v: %v", changes, err)
			}
			if _, again, err := b.Adapt(next, live, away); err != nil || len(again) > 0 {
				t.Fatalf("again, by %v after %v: %v", again, changes, err)
			}
			plan = next
		}
	}
}

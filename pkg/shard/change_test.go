package shard

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestCheckSuccessor(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Plan)
		words  []string
	}{
		"nothing but the generation": {func(*Plan) {}, nil},
		"same generation":            {func(p *Plan) { p.Generation = 1 }, []string{"generation: Invalid value: 1", "greater than 1"}},
		"not valid":                  {func(p *Plan) { p.Rings[0].Shards[0].Name = "" }, []string{"rings[0].shards[0].name"}},
		"pins, homes, weights": {func(p *Plan) {
			p.Rings[0].Shards[0].Pin, p.Rings[0].Shards[0].Weight, p.Rings[1].Shards[0].Home = "m", 5, "n"
		}, nil},
		"range": {func(p *Plan) { p.Rings[0].Shards[0].Range.End--; p.Rings[0].Shards[1].Range.Start-- },
			[]string{"rings[0].shards[0].range", "rings[0].shards[1].range", `"namespaces/01" is in the current plan`}},
		"range, renamed": {func(p *Plan) {
			s := p.Rings[0].Shards
			s[0].Range.End--
			s[1].Range.Start--
			s[0].Name, s[1].Name = "a", "b"
		}, nil},
		"one controller less": {func(p *Plan) { p.Rings[0].Controllers = p.Rings[0].Controllers[1:] },
			[]string{"rings[0].shards[0].controllers", "rings[0].shards[3].controllers", "deployment-controller,job-controller"}},
		"group":               {func(p *Plan) { p.Rings[1].Shards[1].Group = "other" }, []string{"rings[1].shards[1].group", `must be "garbage"`}},
		"group's controllers": {func(p *Plan) { p.Rings[1].Shards[0].Controllers = []string{"ttl-controller"} }, []string{"rings[1].shards[0].controllers"}},
		"ring less":           {func(p *Plan) { p.Rings = p.Rings[:1] }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			next := testPlan(t, 4)
			next.Generation = 2
			tc.change(&next)
			checkError(t, CheckSuccessor(testPlan(t, 4), next), tc.words...)
		})
	}
}

func mustSucceed(t *testing.T, p, edited Plan) Plan {
	t.Helper()
	next, err := p.Successor(edited)
	if err != nil {
		t.Fatal(err)
	}
	checkError(t, CheckSuccessor(p, next))
	return next
}

func names(shards []Shard) string {
	var out []string
	for _, s := range shards {
		out = append(out, s.Name)
	}
	return strings.Join(out, " ")
}

func TestSuccessorNames(t *testing.T) {
	for name, tc := range map[string]struct {
		change         func(*Plan)
		ranges, groups string
	}{
		"nothing": {func(p *Plan) { p.Generation = 99 }, "00 01 02 03", "nodes garbage"},
		"renamed and mixed": {func(p *Plan) {
			p.Rings[0].Shards[0].Name = "x"
			slices.Reverse(p.Rings[0].Shards)
			p.Rings[1].Shards[1].Name = "y"
		}, "00 01 02 03", "nodes garbage"},
		"names swapped": {func(p *Plan) { s := p.Rings[0].Shards; s[0].Name, s[1].Name = s[1].Name, s[0].Name }, "00 01 02 03", "nodes garbage"},
		"bound moved":   {func(p *Plan) { p.Rings[0].Shards[0].Range.End--; p.Rings[0].Shards[1].Range.Start-- }, "g2-00 g2-01 02 03", "nodes garbage"},
		"merged, named": {func(p *Plan) {
			r := &p.Rings[0]
			r.Shards[1].Range.Start = 0
			r.Shards[1].Name = "low"
			r.Shards = r.Shards[1:]
		}, "low 02 03", "nodes garbage"},
		"merged, not named": {func(p *Plan) {
			r := &p.Rings[0]
			r.Shards[1].Range.Start = 0
			r.Shards[1].Name = ""
			r.Shards = r.Shards[1:]
		}, "g2-00 02 03", "nodes garbage"},
		"merged, not valid": {func(p *Plan) {
			r := &p.Rings[0]
			r.Shards[1].Range.Start = 0
			r.Shards[1].Name = "A b"
			r.Shards = r.Shards[1:]
		}, "g2-00 02 03", "nodes garbage"},
		"merged, given name": {func(p *Plan) {
			r := &p.Rings[0]
			r.Shards[1].Range.Start = 0
			r.Shards[1].Name = "g7-00"
			r.Shards = r.Shards[1:]
		}, "g2-00 02 03", "nodes garbage"},
		"controller less": {func(p *Plan) { p.Rings[0].Controllers = p.Rings[0].Controllers[1:] }, "g2-00 g2-01 g2-02 g2-03", "nodes garbage"},
		"controllers moved": {func(p *Plan) {
			p.Rings[0].Controllers = p.Rings[0].Controllers[:1]
			p.Rings[1].Shards[1].Controllers = append(p.Rings[1].Shards[1].Controllers, "a-controller")
		}, "g2-00 g2-01 g2-02 g2-03", "nodes garbage-g2"},
		"group renamed": {func(p *Plan) { p.Rings[1].Shards[1].Group = strings.Repeat("x", 63) }, "00 01 02 03", "nodes " + strings.Repeat("x", 60) + "-g2"},
	} {
		t.Run(name, func(t *testing.T) {
			p, edited := testPlan(t, 4), testPlan(t, 4)
			tc.change(&edited)
			next := mustSucceed(t, p, edited)
			if got := names(next.Rings[0].Shards); got != tc.ranges {
				t.Errorf("ranges are %s, want %s", got, tc.ranges)
			}
			if got := names(next.Rings[1].Shards); got != tc.groups {
				t.Errorf("groups are %s, want %s", got, tc.groups)
			}
			if next.Generation != 2 {
				t.Errorf("generation %d, want 2", next.Generation)
			}
		})
	}
}

func TestSuccessorIsolates(t *testing.T) {
	p, edited := testPlan(t, 4), testPlan(t, 4)
	edited.Rings[0].Isolate = []string{"team-b", "team-a"}
	first, _ := edited.ShardFor("namespaces", "team-a")
	edited.Rings[0].Shards[slices.Index(edited.Rings[0].IDs(), first.ID)].Pin = "m"
	next := mustSucceed(t, p, edited)
	for _, ns := range []string{"team-a", "team-b"} {
		s, _ := next.ShardFor("namespaces", ns)
		if s.Range != onlyHash(Hash(ns)) || !strings.HasPrefix(s.Name, "g2-") {
			t.Errorf("%s is in %s %s, want alone in a new shard", ns, s.ID, s.Range)
		}
		if ns == "team-a" && s.Pin != "m" {
			t.Errorf("the shard of %s lost its pin", ns)
		}
	}
	if again := mustSucceed(t, next, next); !reflect.DeepEqual(again.Rings, next.Rings) {
		t.Error("a namespace that is already isolated was cut again")
	}
	if edited.Rings[0].Isolate[0] != "team-b" || len(edited.Rings[0].Shards) != 4 {
		t.Error("Successor changed the edited plan")
	}
	edited.Rings[0].Isolate = []string{"A"}
	_, err := p.Successor(edited)
	checkError(t, err, "rings[0].isolate[0]", "lower case")
}

func TestCutRange(t *testing.T) {
	for _, tc := range []struct {
		in   Range
		hash uint64
		want []Range
	}{
		{Range{}, 5, []Range{{0, 5}, {5, 6}, {6, 0}}},
		{Range{}, 0, []Range{{0, 1}, {1, 0}}},
		{Range{}, ^uint64(0), []Range{{0, ^uint64(0)}, {^uint64(0), 0}}},
		{Range{5, 7}, 6, []Range{{5, 6}, {6, 7}}},
		{Range{5, 6}, 5, []Range{{5, 6}}},
	} {
		if got := cutRange(tc.in, tc.hash); !slices.Equal(got, tc.want) {
			t.Errorf("%s cut at %x: %v, want %v", tc.in, tc.hash, got, tc.want)
		}
	}
}

// TestSuccessorRandom edits one random plan into another. The result must be a valid successor, and
// keep every shard that covers the same.
func TestSuccessorRandom(t *testing.T) {
	r := newRand(t)
	for range 300 {
		p, edited := randomCase(t, r).plan, randomCase(t, r).plan
		for i := range edited.Rings[0].Shards {
			if s := p.Rings[0].Shards; r.IntN(2) == 0 {
				edited.Rings[0].Shards[i].Name = s[r.IntN(len(s))].Name
			}
		}
		next := mustSucceed(t, p, edited)
		for _, s := range next.Shards() {
			for _, was := range p.Shards() {
				if s.Ring == was.Ring && s.Range == was.Range && s.Group == was.Group && s.ID != was.ID {
					t.Fatalf("%s covers what %s did", s.ID, was.ID)
				}
			}
		}
	}
}

func TestDiff(t *testing.T) {
	a, b := testPlan(t, 4), testPlan(t, 4)
	if got := Diff(a, b); len(got) != 0 {
		t.Errorf("diff of a plan with itself: %v", got)
	}
	b.Rings[0].Isolate = []string{"big"}
	b.Rings[0].Controllers = []string{"deployment-controller"}
	b.Rings[1].Shards[1].Controllers = []string{"garbage-collector-controller", "job-controller"}
	b.Rings[1].Shards[0].Controllers = b.Rings[1].Shards[0].Controllers[:2]
	b.Rings[1].Shards[0].Pin = "flotilla-1"
	b.Rings = append(b.Rings, Ring{Name: "more", Scope: ScopeNamespaced, Controllers: []string{"new-controller"}, Shards: []Shard{{ID: ID{"more", "all"}, Home: "m"}}})
	next := mustSucceed(t, a, b)
	var lines strings.Builder
	for _, c := range Diff(a, next) {
		fmt.Fprintln(&lines, c)
	}
	checkGolden(t, "plan.diff", lines.String())
	back := Diff(next, a)
	if len(back) != len(Diff(a, next)) {
		t.Errorf("%d changes one way, %d the other", len(Diff(a, next)), len(back))
	}
}

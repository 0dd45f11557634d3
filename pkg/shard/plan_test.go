package shard

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// testPlan returns a valid plan with n ranges and two groups.
func testPlan(t *testing.T, n int) Plan {
	t.Helper()
	ranges, err := EqualRanges(n)
	if err != nil {
		t.Fatal(err)
	}
	namespaces := Ring{Name: "namespaces", Scope: ScopeNamespaced, Controllers: []string{"deployment-controller", "job-controller"}}
	for i, r := range ranges {
		namespaces.Shards = append(namespaces.Shards, Shard{ID: ID{"namespaces", fmt.Sprintf("%02d", i)}, Range: r})
	}
	group := func(name string, controllers ...string) Shard {
		return Shard{ID: ID{"cluster", name}, Group: name, Controllers: controllers}
	}
	cluster := Ring{Name: "cluster", Scope: ScopeCluster, Shards: []Shard{
		group("nodes", "node-ipam-controller", "node-lifecycle-controller", "ttl-controller"),
		group("garbage", "garbage-collector-controller"),
	}}
	return Plan{Generation: 1, Rings: []Ring{namespaces, cluster}}
}

func TestPlanGolden(t *testing.T) {
	p := testPlan(t, 16)
	checkError(t, p.Validate())
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	checkGolden(t, "plan.json", string(data)+"\n")
	checkGolden(t, "plan.digest", p.Digest()+"\n")
	var back Plan
	if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(back, p) {
		t.Errorf("back from JSON: %+v, %v", back, err)
	}
}

func TestPlanLookups(t *testing.T) {
	r := newRand(t)
	p := testPlan(t, 7)
	for range 1000 {
		ns := fmt.Sprintf("team-%d-prod", r.IntN(1e6))
		s, found := p.ShardFor("namespaces", ns)
		if !found || !s.Range.ContainsNamespace(ns) {
			t.Fatalf("ShardFor(%s) = %s, %v", ns, s, found)
		}
		if again, found := p.Shard(s.ID); !found || !reflect.DeepEqual(again, s) {
			t.Errorf("Shard(%s) = %+v, %v; want %+v", s.ID, again, found, s)
		}
	}
	for _, ring := range []string{"cluster", "nothing", ""} {
		if s, found := p.ShardFor(ring, "default"); found {
			t.Errorf("ShardFor(%q) = %s, want none", ring, s)
		}
	}
	for _, id := range []ID{{}, {"namespaces", "nodes"}, {"cluster", "00"}, {"nothing", "00"}} {
		if s, found := p.Shard(id); found {
			t.Errorf("Shard(%s) = %s, want none", id, s)
		}
		if got := p.ControllersOf(id); len(got) != 0 {
			t.Errorf("ControllersOf(%s) = %q, want none", id, got)
		}
	}
	for id, want := range map[ID][]string{
		{"namespaces", "03"}:   {"deployment-controller", "job-controller"},
		{"cluster", "garbage"}: {"garbage-collector-controller"},
	} {
		got := p.ControllersOf(id)
		if !slices.Equal(got, want) {
			t.Errorf("ControllersOf(%s) = %q, want %q", id, got, want)
		}
		got[0] = "changed"
		if again := p.ControllersOf(id); again[0] == "changed" {
			t.Errorf("ControllersOf(%s) hands out the plan's own slice", id)
		}
	}
	shards := p.Shards()
	if len(shards) != 9 || !slices.IsSortedFunc(shards, func(a, b Shard) int { return a.ID.Compare(b.ID) }) {
		t.Errorf("Shards() = %v, want 9 in order", shards)
	}
	ring, _ := p.Ring("cluster")
	if got, want := ring.IDs(), []ID{{"cluster", "garbage"}, {"cluster", "nodes"}}; !slices.Equal(got, want) {
		t.Errorf("IDs() = %v, want %v", got, want)
	}
}

func TestPlanDigest(t *testing.T) {
	r := newRand(t)
	want := testPlan(t, 16).Digest()
	for range 50 {
		p := testPlan(t, 16)
		p.Generation = r.Int64()
		p.Rings = shuffled(r, p.Rings)
		for i := range p.Rings {
			p.Rings[i].Shards = shuffled(r, p.Rings[i].Shards)
			p.Rings[i].Controllers = shuffled(r, p.Rings[i].Controllers)
		}
		if got := p.Digest(); got != want {
			t.Fatalf("Digest() = %s after a change of order, want %s", got, want)
		}
	}
	seen := map[string]string{want: "nothing"}
	for name, change := range map[string]func(*Plan){
		"ring name":       func(p *Plan) { p.Rings[0].Name = "other" },
		"scope":           func(p *Plan) { p.Rings[0].Scope = ScopeCluster },
		"controller":      func(p *Plan) { p.Rings[0].Controllers[0] = "other" },
		"controller less": func(p *Plan) { p.Rings[0].Controllers = p.Rings[0].Controllers[1:] },
		"shard name":      func(p *Plan) { p.Rings[0].Shards[0].Name = "other" },
		"start":           func(p *Plan) { p.Rings[0].Shards[3].Range.Start++ },
		"end":             func(p *Plan) { p.Rings[0].Shards[3].Range.End++ },
		"group":           func(p *Plan) { p.Rings[1].Shards[0].Group = "other" },
		"group's list":    func(p *Plan) { p.Rings[1].Shards[0].Controllers[0] = "other" },
		"shard less":      func(p *Plan) { p.Rings[1].Shards = p.Rings[1].Shards[1:] },
		"pin":             func(p *Plan) { p.Rings[0].Shards[0].Pin = "m" },
		"home":            func(p *Plan) { p.Rings[0].Shards[0].Home = "m" },
		"pin elsewhere":   func(p *Plan) { p.Rings[0].Shards[1].Pin = "m" },
		"group's pin":     func(p *Plan) { p.Rings[1].Shards[0].Pin = "m" },
		"weight":          func(p *Plan) { p.Rings[0].Shards[0].Weight = 1 },
		"isolate":         func(p *Plan) { p.Rings[0].Isolate = []string{"a"} },
		"isolate more":    func(p *Plan) { p.Rings[0].Isolate = []string{"a", "b"} },
	} {
		p := testPlan(t, 16)
		change(&p)
		got := p.Digest()
		if other, used := seen[got]; used {
			t.Errorf("Digest() = %s with another %s as with another %s", got, name, other)
		}
		seen[got] = name
	}
}

func TestPlanValidate(t *testing.T) {
	shards := func(p *Plan) []Shard { return p.Rings[0].Shards }
	groups := func(p *Plan) []Shard { return p.Rings[1].Shards }
	for name, tc := range map[string]struct {
		change func(*Plan)
		words  []string
	}{
		"valid":                 {func(*Plan) {}, nil},
		"zero":                  {func(p *Plan) { *p = Plan{} }, []string{"generation", "must be from 1 to", "rings: Required"}},
		"negative generation":   {func(p *Plan) { p.Generation = -1 }, []string{"generation: Invalid value: -1"}},
		"latest generation":     {func(p *Plan) { p.Generation = MaxGeneration }, nil},
		"later than that":       {func(p *Plan) { p.Generation = MaxGeneration + 1 }, []string{"generation: Invalid value: 9007199254740992: must be from 1 to 9007199254740991"}},
		"too many shards":       {func(p *Plan) { p.Rings[1].Shards = make([]Shard, MaxShards) }, []string{"rings: Too many", "1024"}},
		"duplicate ring":        {func(p *Plan) { p.Rings[1].Name = "namespaces" }, []string{`rings[1].name: Duplicate value: "namespaces"`}},
		"ring with hyphen":      {func(p *Plan) { p.Rings[0].Name = "a-b" }, []string{`rings[0].name: Invalid value: "a-b"`, "must not contain '-'"}},
		"ring called member":    {func(p *Plan) { p.Rings[0].Name = "member" }, []string{"rings[0].name", "reserved"}},
		"unknown scope":         {func(p *Plan) { p.Rings[0].Scope = "global" }, []string{`rings[0].scope: Unsupported value: "global"`, `"namespaced", "cluster"`}},
		"no scope":              {func(p *Plan) { p.Rings[0].Scope = "" }, []string{"rings[0].scope: Unsupported"}},
		"empty ring":            {func(p *Plan) { p.Rings[0].Shards = nil }, []string{"rings[0].shards: Required"}},
		"empty cluster ring":    {func(p *Plan) { p.Rings[1].Shards = nil }, []string{"rings[1].shards: Required"}},
		"no controllers":        {func(p *Plan) { p.Rings[0].Controllers = nil }, []string{"rings[0].controllers: Required"}},
		"empty controller":      {func(p *Plan) { p.Rings[0].Controllers[0] = "" }, []string{`rings[0].controllers[0]: Invalid value: ""`}},
		"unsorted controllers":  {func(p *Plan) { slices.Reverse(p.Rings[0].Controllers) }, []string{"rings[0].controllers[1]", "must be sorted"}},
		"controller twice":      {func(p *Plan) { p.Rings[0].Controllers[1] = "deployment-controller" }, []string{"rings[0].controllers[1]", "is at rings[0].controllers[0]"}},
		"controller in 2 rings": {func(p *Plan) { groups(p)[0].Controllers[0] = "job-controller" }, []string{"rings[1].shards[0].controllers[0]", "is at rings[0].controllers[1]"}},
		"controller in 2 groups": {
			func(p *Plan) { groups(p)[1].Controllers[0] = "ttl-controller" },
			[]string{"rings[1].shards[1].controllers[0]", "is at rings[1].shards[0].controllers[2]"},
		},
		"shard of another ring": {func(p *Plan) { shards(p)[1].Ring = "cluster" }, []string{`rings[0].shards[1].ring: Invalid value: "cluster"`, `"namespaces"`}},
		"shard name":            {func(p *Plan) { shards(p)[1].Name = "A" }, []string{`rings[0].shards[1].name: Invalid value: "A"`, "lower case"}},
		"duplicate shard":       {func(p *Plan) { shards(p)[1].Name = "00" }, []string{`rings[0].shards[1].name: Duplicate value: "00"`}},
		"range with group":      {func(p *Plan) { shards(p)[1].Group = "g" }, []string{"rings[0].shards[1].group: Forbidden"}},
		"range with list":       {func(p *Plan) { shards(p)[1].Controllers = []string{"x"} }, []string{"rings[0].shards[1].controllers: Forbidden"}},
		"reversed range":        {func(p *Plan) { shards(p)[1].Range.End = 1 }, []string{"rings[0].shards[1].range: Invalid", "start must be less than end"}},
		"gap at start":          {func(p *Plan) { shards(p)[0].Range.Start = 1 }, []string{`rings[0].shards: Invalid value: "0x0000000000000000-0x0000000000000001": no shard`}},
		"gap of one":            {func(p *Plan) { shards(p)[0].Range.End-- }, []string{`"0x3fffffffffffffff-0x4000000000000000": no shard covers`}},
		"gap at end":            {func(p *Plan) { shards(p)[3].Range.End-- }, []string{`"0xffffffffffffffff-0x10000000000000000": no shard covers`}},
		"overlap of one":        {func(p *Plan) { shards(p)[0].Range.End++ }, []string{"rings[0].shards[1].range", `overlaps 0x0000000000000000-0x4000000000000001 of shard "namespaces/00"`}},
		"twice everything":      {func(p *Plan) { shards(p)[0].Range = Everything() }, []string{"shards[1].range", "shards[2].range", "shards[3].range", "overlaps"}},
		"group without name":    {func(p *Plan) { groups(p)[1].Group = "" }, []string{"rings[1].shards[1].group: Invalid"}},
		"duplicate group":       {func(p *Plan) { groups(p)[1].Group = "nodes" }, []string{`rings[1].shards[1].group: Duplicate value: "nodes"`}},
		"group with range":      {func(p *Plan) { groups(p)[1].Range = Range{1, 2} }, []string{"rings[1].shards[1].range: Forbidden"}},
		"group without list":    {func(p *Plan) { groups(p)[1].Controllers = nil }, []string{"rings[1].shards[1].controllers: Required"}},
		"cluster ring's list":   {func(p *Plan) { p.Rings[1].Controllers = []string{"x"} }, []string{"rings[1].controllers: Forbidden"}},
		"pin":                   {func(p *Plan) { shards(p)[1].Pin = "A" }, []string{`rings[0].shards[1].pin: Invalid value: "A"`, "lower case"}},
		"home":                  {func(p *Plan) { groups(p)[1].Home = "a_b" }, []string{`rings[1].shards[1].home: Invalid value: "a_b"`}},
		"pin and home":          {func(p *Plan) { shards(p)[1].Pin, shards(p)[1].Home = "a.b-c", "flotilla-0" }, nil},
		"weight":                {func(p *Plan) { shards(p)[1].Weight = -1 }, []string{"rings[0].shards[1].weight: Invalid value: -1", "0 or more"}},
		"isolate in groups":     {func(p *Plan) { p.Rings[1].Isolate = []string{"a"} }, []string{"rings[1].isolate: Forbidden"}},
		"isolate without shard": {func(p *Plan) { p.Rings[0].Isolate = []string{"a"} }, []string{`rings[0].isolate[0]: Invalid value: "a"`, onlyHash(Hash("a")).String()}},
		"isolate badly":         {func(p *Plan) { p.Rings[0].Isolate = []string{"a.b"} }, []string{`rings[0].isolate[0]: Invalid value: "a.b"`, "dots"}},
		"isolate unsorted":      {func(p *Plan) { p.Rings[0].Isolate = []string{"b", "a"} }, []string{"rings[0].isolate[1]", `follows "b"`}},
		"isolate twice":         {func(p *Plan) { p.Rings[0].Isolate = []string{"a", "a"} }, []string{"rings[0].isolate[1]", "listed once"}},
		"all faults at once":    {func(p *Plan) { p.Generation = 0; shards(p)[0].Name = ""; groups(p)[0].Group = "" }, []string{"generation", "rings[0].shards[0].name", "rings[1].shards[0].group"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := testPlan(t, 4)
			tc.change(&p)
			checkError(t, p.Validate(), tc.words...)
		})
	}
}

// covered is the slow and obvious check: around each bound of each range, and at both ends of the
// keyspace, exactly one range contains the hash.
func covered(shards []Shard) bool {
	hashes := []uint64{0, ^uint64(0)}
	for _, s := range shards {
		hashes = append(hashes, s.Range.Start-1, s.Range.Start, s.Range.End-1, s.Range.End)
	}
	for _, h := range hashes {
		n := 0
		for _, s := range shards {
			if s.Range.Contains(h) {
				n++
			}
		}
		if n != 1 {
			return false
		}
	}
	return true
}

// TestCoverModel compares Validate with the slow check, on random ranges with few bounds, so that
// many of them cover the keyspace.
func TestCoverModel(t *testing.T) {
	r := newRand(t)
	verdicts := map[bool]int{}
	for range 20000 {
		p := Plan{Generation: 1, Rings: []Ring{{Name: "r", Scope: ScopeNamespaced, Controllers: []string{"c"}}}}
		for i := range 1 + r.IntN(4) {
			p.Rings[0].Shards = append(p.Rings[0].Shards, Shard{ID: ID{"r", fmt.Sprint(i)}, Range: coarseRange(r)})
		}
		want := covered(p.Rings[0].Shards)
		verdicts[want]++
		if err := p.Validate(); (err == nil) != want {
			t.Fatalf("%v: Validate() = %v, want covered = %v", p.Rings[0].Shards, err, want)
		}
	}
	t.Logf("Verdicts: %v", verdicts)
	if verdicts[true] < 100 || verdicts[false] < 100 {
		t.Errorf("too few of one verdict: %v", verdicts)
	}
}

func coarseRange(r *rand.Rand) Range {
	for {
		bound := func() uint64 { return r.Uint64N(4)<<62 + r.Uint64N(8)/7 }
		if out := (Range{bound(), bound()}); out.Validate() == nil {
			return out
		}
	}
}

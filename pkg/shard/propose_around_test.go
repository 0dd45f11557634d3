package shard

import (
	"slices"
	"testing"
)

// TestAroundWhatRests has member c above its share because its shards rest: they may not move for
// now. The others are within the trigger of the fair share, so nothing moves between them. What is
// pinned to c for good does not count for the others, which are balanced among themselves. A
// namespace heavier than a fair share is out of their reach, whether it rests or not.
func TestAroundWhatRests(t *testing.T) {
	members, homes := []string{"a", "b", "c"}, []string{"a", "a", "a", "b", "b", "b", "c", "c", "c"}
	for name, test := range map[string]struct {
		weights []int64
		rest    []int // Indexes of shards.
		pin     bool
		want    bool
	}{
		"all of c rests":             {[]int64{7500, 1000, 1000, 5500, 1000, 1000, 7000, 3500, 3500}, []int{6, 7, 8}, false, false},
		"all of c is pinned":         {[]int64{7500, 1000, 1000, 5500, 1000, 1000, 7000, 3500, 3500}, []int{6, 7, 8}, true, true},
		"half of c rests":            {[]int64{7500, 1000, 1000, 5500, 1000, 1000, 7000, 3500, 3500}, []int{6}, false, true},
		"a is beyond the trigger":    {[]int64{7500, 2000, 2000, 3500, 1000, 1000, 7000, 3500, 3500}, []int{6, 7, 8}, false, true},
		"a namespace beyond a share": {[]int64{7500, 1000, 1000, 5500, 1000, 1000, 20000, 0, 0}, []int{6, 7, 8}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			p, c := homed(t, homes, test.weights...)
			resting := map[ID]bool{}
			for _, i := range test.rest {
				if s := &p.Rings[0].Shards[i]; test.pin {
					s.Pin = s.Home
				} else {
					resting[s.ID] = true
				}
			}
			got, found, err := ProposeAround(p, "namespaces", Weights{Census: c}, members, DefaultLimits(), resting)
			if err != nil || found != test.want {
				t.Errorf("proposed %t: %v, %v, want %t", found, got.Steps, err, test.want)
			}
		})
	}
}

// TestRestingStay checks that a resting shard keeps its range, and its home unless that has left,
// whatever else changes.
func TestRestingStay(t *testing.T) {
	r := newRand(t)
	const cases = 300
	acted := 0
	for range cases {
		w := randomCase(t, r)
		resting, shards := map[ID]bool{}, w.plan.Rings[0].Shards
		for _, s := range shards {
			if r.IntN(3) == 0 {
				resting[s.ID] = true
			}
		}
		weights := Weights{Census: published(w.plan, w.full), Carried: w.carried}
		for rounds := 0; ; rounds++ {
			p, found, err := ProposeAround(w.plan, "namespaces", weights, w.members, w.limits, resting)
			if err != nil || rounds > 60 {
				t.Fatalf("round %d: %v", rounds, err)
			}
			if !found {
				acted += min(rounds, 1)
				break
			}
			for _, was := range shards {
				i := slices.IndexFunc(p.Plan.Rings[0].Shards, func(s Shard) bool { return s.ID == was.ID && s.Range == was.Range })
				switch {
				case !resting[was.ID]:
				case i < 0:
					t.Errorf("%s rests, and has lost its range", was.ID)
				case was.Home != "" && slices.Contains(w.members, was.Home) && p.Plan.Rings[0].Shards[i].Home != was.Home && was.Pin == "":
					t.Errorf("%s rests with %s, and went to %s", was.ID, was.Home, p.Plan.Rings[0].Shards[i].Home)
				}
			}
			w.plan = p.Plan
			weights.Census = published(w.plan, w.full)
		}
	}
	if acted < cases/2 {
		t.Errorf("something was to be done in %d of %d cases, want at least half", acted, cases)
	}
}

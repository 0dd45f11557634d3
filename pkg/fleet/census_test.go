package fleet

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestByMemory checks that cells weigh in proportion to the memory of their objects, and together
// as many objects as there are.
func TestByMemory(t *testing.T) {
	objects := map[string]int64{"a": 10, "b": 10, "c": 20}
	if got, want := byMemory(objects, nil).String(), shard.NewCensus(objects).String(); got != want {
		t.Errorf("without sizes %s, want %s", got, want)
	}
	got := byMemory(objects, map[string]int64{"a": 3000, "b": 500, "c": 500, "gone": 9})
	want := shard.NewCensus(map[string]int64{"a": 30, "b": 5, "c": 5})
	if got.String() != want.String() || strings.Count(got.String(), ",") != 2 {
		t.Errorf("by size %s, want %s", got, want)
	}
	got = byMemory(map[string]int64{"a": 10, "b": 10, "new": 3}, map[string]int64{"a": 3000, "b": 1000})
	want = shard.NewCensus(map[string]int64{"a": 15, "b": 5, "new": 3})
	if got.String() != want.String() {
		t.Errorf("with a namespace that is not measured %s, want %s", got, want)
	}
}

// TestRecentWrites checks that writes count less as time passes, that a new holder goes on from what
// is published, and that small changes are not published.
func TestRecentWrites(t *testing.T) {
	start := time.Now()
	w := newRecentWrites(1000, start)
	for _, tc := range []struct {
		after   time.Duration
		sent    int64
		want    int64
		changed bool
	}{
		{time.Minute, 0, 983, false},
		{2 * time.Minute, 200, 1167, false},
		{3 * time.Minute, 300, 1248, false},
		{4 * time.Minute, 400, 1327, true},
		{64 * time.Minute, 400, 488, true},
		{7 * time.Hour, 400, 1, true},
		{8 * time.Hour, 480, 80, false},
		{8 * time.Hour, 520, 120, true},
	} {
		n := w.count(tc.sent, start.Add(tc.after))
		if got := int64(math.Round(w.n)); got != tc.want || (n != nil) != tc.changed || n != nil && *n != tc.want {
			t.Errorf("after %v and %d writes: %d, published %v, want %d %v", tc.after, tc.sent, got, n != nil, tc.want, tc.changed)
		}
	}
}

// TestDiffers checks when a published number is too old to wait for the interval.
func TestDiffers(t *testing.T) {
	for _, tc := range []struct {
		published, objects int64
		want               bool
	}{{0, 99, false}, {0, 100, true}, {100, 0, true}, {1000, 1250, false}, {1000, 1251, true}, {1000, 749, true}, {100, 150, false}} {
		if got := differs(tc.published, tc.objects); got != tc.want {
			t.Errorf("%d after %d: %v", tc.objects, tc.published, got)
		}
	}
}

// TestPace checks when a holder publishes.
func TestPace(t *testing.T) {
	type look struct {
		after   int // seconds
		objects int64
		want    bool
	}
	for name, looks := range map[string][]look{
		"nothing changes":       {{10, 1000, true}, {20, 1000, false}, {60, 1000, false}, {70, 1000, true}, {120, 1000, false}, {130, 1000, true}},
		"a change waits":        {{10, 1000, true}, {20, 1290, false}, {30, 700, false}, {40, 1290, true}, {50, 1290, false}, {60, 100, false}, {70, 100, true}},
		"urgent growth":         {{10, 1000, true}, {20, 1310, true}, {30, 9000, false}, {60, 9000, false}, {70, 9000, true}, {80, 12000, true}, {120, 20000, false}, {130, 20000, true}},
		"the first objects":     {{10, 0, true}, {20, 99, false}, {30, 100, true}, {70, 5000, true}},
		"a small change is not": {{10, 1000, true}, {40, 1250, false}, {60, 751, false}, {70, 1250, true}},
	} {
		start, p := time.Now(), pace{every: time.Minute, urgent: 1.3}
		for _, l := range looks {
			now := start.Add(time.Duration(l.after) * time.Second)
			got := p.due(l.objects, now)
			if got != l.want {
				t.Errorf("%s: %d objects after %d s: %v, want %v", name, l.objects, l.after, got, l.want)
			}
			if l.want {
				p.published(l.objects, now)
			}
		}
	}
}

// TestCensusTwiceAMinute lets weights change at every look, and requires that no Lease of a shard is
// written more than twice in any minute, that the last weights arrive, and that none of it writes
// the plan's Lease.
func TestCensusTwiceAMinute(t *testing.T) {
	for name, grows := range map[string]bool{"up and down": false, "ever faster": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 2, func(t *testing.T, s *testFleet) {
				change := func(i int) {
					s.mu.Lock()
					defer s.mu.Unlock()
					s.weights = map[string]int64{"group nodes": int64(200 + i)}
					for n := range 20 {
						weight := int64(100 + 100*(i%2))
						if grows {
							weight = int64(100 * math.Pow(1.1, float64(i)))
						}
						s.weights[fmt.Sprintf("team-%d", n)] = weight
					}
				}
				change(0)
				s.launch("a", nil)
				pass(2 * time.Minute)
				began := len(s.store.History())
				for i := range 60 {
					change(i)
					pass(7 * time.Second)
				}
				s.mu.Lock()
				for n := range 20 {
					s.weights[fmt.Sprintf("team-%d", n)]++ // too little to be published before its time
				}
				s.mu.Unlock()
				pass(70 * time.Second)
				times := map[string][]time.Time{}
				for _, w := range s.store.History()[began:] {
					if w.After != nil && !strings.Contains(w.After.Name, "-member-") {
						times[w.After.Name] = append(times[w.After.Name], w.Time)
					}
				}
				for lease, at := range times {
					for i := 2; i < len(at); i++ {
						if within := at[i].Sub(at[i-2]); within < time.Minute {
							t.Errorf("%s was written three times in %v", lease, within)
						}
					}
				}
				if n := len(times[leaseapi.PlanLease("flotilla")]); n > 0 {
					t.Errorf("the plan's Lease was written %d times", n)
				}
				total, want := int64(0), int64(0)
				for _, id := range s.plan.Rings[0].IDs() {
					name := leaseapi.ShardLease("flotilla", id)
					if n := len(times[name]); n < 8 {
						t.Errorf("%s was written %d times in eight minutes, want at least 8", name, n)
					}
					memory := s.store.Get(name).Annotations[leaseapi.MemoryAnnotation]
					var cached, fixed int64
					if _, err := fmt.Sscanf(memory, "%d+%d", &cached, &fixed); err != nil {
						t.Errorf("%s has %q: %v", name, memory, err)
					}
					total += cached
				}
				for namespace, weight := range s.weights {
					if !strings.HasPrefix(namespace, "group ") {
						want += 100 * weight
					}
				}
				if total != want {
					t.Errorf("the Leases have %d bytes in the end, want %d", total, want)
				}
			})
		})
	}
}

// TestWeightOfAnEarlierTerm drains a member and takes it back. What it published of its shards
// before must not be on their Leases again: others have held them meanwhile, and they weigh
// something else.
func TestWeightOfAnEarlierTerm(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		weigh := func(objects int64) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.weights = map[string]int64{}
			for n := range 20 {
				s.weights[fmt.Sprintf("team-%d", n)] = objects
			}
		}
		weigh(100)
		s.launch("a", nil)
		s.launch("b", nil)
		pass(2 * time.Minute)
		old := map[string]string{}
		for _, id := range s.plan.Rings[0].IDs() {
			name := leaseapi.ShardLease("flotilla", id)
			memory := s.store.Get(name).Annotations[leaseapi.MemoryAnnotation]
			if leaserecord.MemberOf(s.holderOf(name)) == "a" && memory != "0+0" { // it may have no namespace
				old[name] = memory
			}
		}
		s.drain("a", "today")
		pass(time.Minute)
		weigh(900)
		pass(2 * time.Minute)
		s.allHeld("b")
		began := len(s.store.History())
		s.drain("a", "")
		pass(time.Minute)
		s.allHeld("a", "b")
		for _, w := range s.store.History()[began:] {
			if w.After != nil && old[w.After.Name] != "" && w.After.Annotations[leaseapi.MemoryAnnotation] == old[w.After.Name] {
				t.Errorf("at %v %s has its old weight again, %s", w.Time, w.After.Name, old[w.After.Name])
			}
		}
		if len(old) == 0 {
			t.Error("a had no range with a namespace")
		}
	})
}

package audit_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestUnowned has a shard that is handed over, taken over, released and taken again by the same
// member, and released for good.
func TestUnowned(t *testing.T) {
	report := check(t, append(handoff(lower),
		lease(lower, a, 3, 60, 15), lease(lower, "", 3, 61, 16), lease(lower, a, 4, 62, 19), lease(lower, "", 4, 63, 20),
		lease(upper, a, 1, 11, 0))...)
	requireKinds(t, report)
	id := func(s string) shard.ID { id, _ := shard.ParseID(s); return id }
	all := report.Unowned()
	got := all[id(lower)]
	want := audit.Unowned{
		Gaps:  []audit.Gap{{Before: a, After: b, Planned: true}, {Before: b, After: a}, {Before: a, After: a, Planned: true}},
		Moves: 2, P50: time.Second, P99: 3 * time.Second, Worst: 3 * time.Second, WorstUnplanned: 8 * time.Second,
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreTypes(time.Time{})); diff != "" {
		t.Errorf("unowned (-want +got):\n%s", diff)
	}
	var gaps []time.Duration
	for _, gap := range got.Gaps {
		gaps = append(gaps, gap.Duration())
	}
	if diff := cmp.Diff([]time.Duration{time.Second, 8 * time.Second, 3 * time.Second}, gaps); diff != "" {
		t.Errorf("gaps (-want +got):\n%s", diff)
	}
	if got.Vacant.Second() != 20 {
		t.Errorf("vacant since %v, want second 20", got.Vacant)
	}
	if u := all[id(upper)]; len(u.Gaps) > 0 || u.Moves > 0 || !u.Vacant.IsZero() {
		t.Errorf("a shard that never moved: %+v", u)
	}
}

func TestPercentile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for p, want := range map[int]time.Duration{0: 1, 1: 1, 50: 50, 99: 99, 100: 100} {
		if got := audit.Percentile(hundred, p); got != want {
			t.Errorf("%d of 100: %d, want %d", p, got, want)
		}
	}
	if got := audit.Percentile(hundred[:1], 99); got != 1 {
		t.Errorf("99 of one: %d", got)
	}
	if got := audit.Percentile(nil, 99); got != 0 {
		t.Errorf("99 of none: %d", got)
	}
}

func TestRate(t *testing.T) {
	report := check(t, append(handoff(lower),
		write(a, lower, 1, low, 11, 1), write(a, lower, 1, low, 12, 2), write(a, lower, 1, low, 13, 3), write(a, lower, 1, low, 0, 3).code(409),
		write(b, lower, 2, low, 45, 6))...)
	second := func(s int) time.Time { return time.Date(2026, 7, 1, 12, 0, s, 0, time.UTC) }
	tests := map[string]struct {
		who    string
		at     time.Time
		within time.Duration
		want   float64
	}{
		"all":             {a, second(3), 4 * time.Second, 0.75},
		"the last second": {a, second(3), time.Second, 1},
		"before it":       {a, second(0), time.Second, 0},
		"long after":      {a, second(60), 10 * time.Second, 0},
		"half":            {a, second(2), 4 * time.Second, 0.5},
		"another's":       {b, second(6), 2 * time.Second, 0.5},
		"unknown":         {"nobody_x", second(3), time.Second, 0},
		"no time":         {a, second(3), 0, 0},
	}
	for name, test := range tests {
		if got := report.Rate(test.who, test.at, test.within); got != test.want {
			t.Errorf("%s: %v writes/s, want %v", name, got, test.want)
		}
	}
}

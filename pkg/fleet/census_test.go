package fleet

import (
	"strings"
	"testing"
	"time"

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
		n, changed := w.count(tc.sent, start.Add(tc.after))
		if n != tc.want || changed != tc.changed {
			t.Errorf("after %v and %d writes: %d %v, want %d %v", tc.after, tc.sent, n, changed, tc.want, tc.changed)
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

package fleet

import (
	"strings"
	"testing"

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

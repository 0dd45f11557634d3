package app

import (
	"testing"
	"time"
)

// TestUsage measures from call to call, and not from the start of the process.
func TestUsage(t *testing.T) {
	now, used := time.Unix(1000, 0), 7*time.Second
	u := newUsage(func() time.Time { return now }, func() time.Duration { return used })
	for _, step := range []struct {
		elapsed, used time.Duration
		want          int64
	}{
		{10 * time.Second, 5 * time.Second, 500}, {10 * time.Second, 25 * time.Second, 2500}, {0, time.Second, 0},
		{time.Second, -time.Second, 0}, {10 * time.Second, 20 * time.Millisecond, 2},
	} {
		now, used = now.Add(step.elapsed), used+step.used
		if got := u.since(); got.CPU != step.want {
			t.Errorf("%v within %v is %d thousandths, want %d", step.used, step.elapsed, got.CPU, step.want)
		}
	}
	if processorTime() <= 0 {
		t.Error("the test has used no processor")
	}
}

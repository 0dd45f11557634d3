package heartbeat

import (
	"math"
	"testing"
	"time"
)

// TestBeatOfAnyLease: a heartbeat changes the beat whatever the Lease said before, and can be
// written.
func TestBeatOfAnyLease(t *testing.T) {
	now := time.Date(2026, time.May, 1, 12, 0, 0, 0, time.UTC)
	end := time.Date(9999, time.December, 31, 23, 59, 59, 999999000, time.UTC)
	for _, last := range []int64{
		math.MinInt64, 0, now.UnixMicro() - 1, now.UnixMicro(), now.UnixMicro() + 1, end.UnixMicro() - 1, end.UnixMicro(), end.UnixMicro() + 1, math.MaxInt64,
	} {
		next := beatAt(now, last)
		if _, err := time.UnixMicro(next).UTC().MarshalJSON(); err != nil || next == last {
			t.Errorf("after %d comes %d: %v", last, next, err)
		}
	}
}

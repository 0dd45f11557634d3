package election

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// Clock is the source of time for the loops of this package. k8s.io/utils/clock.RealClock and its
// fakes satisfy it.
//
// Now must never go backwards and should count time in suspend. Timers may stop in suspend and so
// fire late: no decision here relies on a timer having fired, each reads Now again.
//
// Implementations must be safe for concurrent use.
type Clock interface {
	Now() time.Time
	NewTimer(d time.Duration) clock.Timer
}

// NewClock returns the clock for production. On Linux it counts time in suspend (CLOCK_BOOTTIME).
// Elsewhere, and where the kernel refuses that clock, it is Go's, whose monotonic part may stop in
// suspend.
//
// On Linux its readings start at the wall-clock time of the call and do not follow later steps of
// the wall clock. Compare only readings of the same Clock.
func NewClock() Clock {
	if c, ok := newBoottimeClock(); ok {
		return c
	}
	return clock.RealClock{}
}

// Await returns when changed receives or is closed, after d by the clock, or when ctx ends. A nil
// channel never does.
func Await(ctx context.Context, clock Clock, changed <-chan struct{}, d time.Duration) {
	timer := clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C():
	case <-ctx.Done():
	}
}

package election

import (
	"time"

	"k8s.io/utils/clock"
)

// Clock is what the loops of this package know of time. k8s.io/utils/clock.RealClock and its fakes
// satisfy it.
//
// Now must never go backwards and should count time in suspend. Timers may stand still in suspend
// and so fire late: nothing here concludes from a timer that its time has come, every decision
// reads Now again.
//
// Implementations must be safe for concurrent use.
type Clock interface {
	Now() time.Time
	NewTimer(d time.Duration) clock.Timer
}

// NewClock returns the clock for production. On Linux it counts time in suspend (CLOCK_BOOTTIME);
// elsewhere, and where the kernel refuses that clock, it is Go's own, whose monotonic part may
// stand still in suspend.
//
// On Linux its readings start at the wall-clock time of the call and are not moved by later steps
// of the wall clock. Compare only readings of the same Clock with each other.
func NewClock() Clock {
	if c, ok := newBoottimeClock(); ok {
		return c
	}
	return clock.RealClock{}
}

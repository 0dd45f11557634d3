package election

import (
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// boottimeClock reads CLOCK_BOOTTIME, which advances in suspend. Its timers are Go's, which do not.
type boottimeClock struct {
	clock.RealClock
	wall time.Time
	boot time.Duration
}

func newBoottimeClock() (Clock, bool) {
	boot, err := boottime()
	if err != nil {
		return nil, false
	}
	// Round strips the monotonic reading, so that Sub and Before use only the sum in Now.
	return boottimeClock{wall: time.Now().Round(0), boot: boot}, true
}

// Now returns the wall-clock time of the clock's creation plus the boot time that has passed since.
func (c boottimeClock) Now() time.Time {
	boot, err := boottime()
	if err != nil {
		// The kernel had this clock at creation; without it there is no safe answer.
		panic("election: CLOCK_BOOTTIME cannot be read any more: " + err.Error())
	}
	return c.wall.Add(boot - c.boot)
}

// Since is Now minus ts.
func (c boottimeClock) Since(ts time.Time) time.Duration {
	return c.Now().Sub(ts)
}

func boottime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, err
	}
	return time.Duration(ts.Nano()), nil
}

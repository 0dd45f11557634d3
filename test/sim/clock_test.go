package sim

import (
	"math"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// skewedClock is a process's clock: it runs at a rate of its own, from a time of its own, and its timers do not fire while
// the process is suspended.
type skewedClock struct {
	gate  *gate
	begin time.Time
	rate  float64
	shift atomic.Int64
	// held is how long timers that came due in suspend fire late, as those of a suspended machine do.
	held atomic.Int64
}

// Now implements election.Clock.
func (c *skewedClock) Now() time.Time {
	return c.begin.Add(time.Duration(c.shift.Load() + int64(float64(time.Since(c.begin))*c.rate)))
}

// jump moves the clock.
func (c *skewedClock) jump(d time.Duration) { c.shift.Add(int64(d)) }

// NewTimer implements election.Clock.
func (c *skewedClock) NewTimer(d time.Duration) clock.Timer {
	t := &skewedTimer{clock: c, c: make(chan time.Time, 1)}
	t.timer = time.AfterFunc(c.virtual(d), t.due)
	return t
}

// virtual returns how long d takes. It is rounded up: a timer that fires before its time by the clock that set it would be
// set again and again, without any time passing.
func (c *skewedClock) virtual(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(math.Ceil(float64(d)/c.rate)) + 1
}

type skewedTimer struct {
	clock *skewedClock
	c     chan time.Time
	timer *time.Timer
}

func (t *skewedTimer) C() <-chan time.Time        { return t.c }
func (t *skewedTimer) Stop() bool                 { return t.timer.Stop() }
func (t *skewedTimer) Reset(d time.Duration) bool { return t.timer.Reset(t.clock.virtual(d)) }

func (t *skewedTimer) due() {
	suspended := false
	fire := func() {
		if late := time.Duration(t.clock.held.Load()); suspended && late > 0 {
			time.AfterFunc(late, t.fire)
			return
		}
		t.fire()
	}
	t.clock.gate.mu.Lock()
	suspended = t.clock.gate.closed != nil
	t.clock.gate.mu.Unlock()
	t.clock.gate.whenOpen(fire)
}

func (t *skewedTimer) fire() {
	select {
	case t.c <- t.clock.Now():
	default:
	}
}

package sim

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// skewedClock is a process's clock. It has its own rate and offset, and its timers do not fire
// while the process is suspended. A frozen clock stands still, like that of a paused virtual
// machine.
type skewedClock struct {
	barrier *barrier
	begin   time.Time
	rate    float64
	// held is how late timers fire that came due in a suspend, as those of a suspended machine do.
	held atomic.Int64

	mu     sync.Mutex
	shift  time.Duration
	frozen time.Time // what it shows while frozen; else zero
}

// Now implements election.Clock.
func (c *skewedClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.frozen.IsZero() {
		return c.frozen
	}
	return c.readingLocked()
}

func (c *skewedClock) readingLocked() time.Time {
	elapsed := time.Since(c.begin)
	if c.rate != 1 {
		elapsed = time.Duration(float64(elapsed) * c.rate)
	}
	return c.begin.Add(c.shift + elapsed)
}

// jump shifts the clock.
func (c *skewedClock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shift += d
}

// freeze stops the clock until thaw.
func (c *skewedClock) freeze() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frozen.IsZero() {
		c.frozen = c.readingLocked()
	}
}

// thaw restarts the clock from where it stopped, and reports whether it was frozen.
func (c *skewedClock) thaw() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frozen.IsZero() {
		return false
	}
	c.shift -= c.readingLocked().Sub(c.frozen)
	c.frozen = time.Time{}
	return true
}

// isFrozen reports whether the clock stands still.
func (c *skewedClock) isFrozen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.frozen.IsZero()
}

// NewTimer implements election.Clock.
func (c *skewedClock) NewTimer(d time.Duration) clock.Timer {
	t := &skewedTimer{clock: c, c: make(chan time.Time, 1)}
	t.timer = time.AfterFunc(c.virtual(d), t.due)
	return t
}

// virtual returns how long d takes in virtual time, rounded up. A timer that fires early by its own
// clock would be reset for ever without any time passing.
func (c *skewedClock) virtual(d time.Duration) time.Duration {
	if d <= 0 || *mistake == "hasty_timers" {
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
	suspended := t.clock.barrier.isClosed()
	t.clock.barrier.whenOpen(func() {
		if held := time.Duration(t.clock.held.Load()); suspended && held > 0 {
			time.AfterFunc(held, t.fire)
			return
		}
		t.fire()
	})
}

func (t *skewedTimer) fire() {
	select {
	case t.c <- t.clock.Now():
	default:
	}
}

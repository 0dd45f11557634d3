package leasetest

import (
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// JumpClock is the real clock, or the bubble's in a bubble, plus an offset. It simulates a
// suspended process.
type JumpClock struct {
	clock.RealClock
	offset atomic.Int64
}

// Now implements clock.PassiveClock.
func (c *JumpClock) Now() time.Time { return c.RealClock.Now().Add(time.Duration(c.offset.Load())) }

// Jump advances the clock by d at once.
func (c *JumpClock) Jump(d time.Duration) { c.offset.Add(int64(d)) }

// SkewedClock runs at Rate, and is off by Shift at Begin.
type SkewedClock struct {
	clock.RealClock
	Begin time.Time
	Shift time.Duration
	Rate  float64
}

// Now implements clock.PassiveClock.
func (c *SkewedClock) Now() time.Time {
	return c.Begin.Add(c.Shift + time.Duration(float64(c.RealClock.Now().Sub(c.Begin))*c.Rate))
}

// Real returns the real time at which this clock reads t.
func (c *SkewedClock) Real(t time.Time) time.Time {
	return c.Begin.Add(time.Duration(float64(t.Sub(c.Begin)-c.Shift) / c.Rate))
}

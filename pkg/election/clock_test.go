package election

import (
	"testing"
	"time"
)

func TestNewClock(t *testing.T) {
	c := NewClock()
	first := c.Now()
	if d := time.Since(first).Abs(); d > time.Minute {
		t.Errorf("Now() is %v from the wall clock, want it to start there", d)
	}
	timer := c.NewTimer(time.Millisecond)
	<-timer.C()
	if d := c.Now().Sub(first); d < time.Millisecond || d > time.Minute {
		t.Errorf("Now() moved by %v while a timer of 1ms ran", d)
	}
	for last := c.Now(); c.Now().Sub(first) < 5*time.Millisecond; {
		now := c.Now()
		if now.Before(last) {
			t.Fatalf("Now() went back from %v to %v", last, now)
		}
		last = now
	}
}

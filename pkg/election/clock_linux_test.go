package election

import "testing"

func TestClockCountsSuspendOnLinux(t *testing.T) {
	c := NewClock()
	if _, ok := c.(boottimeClock); !ok {
		t.Errorf("NewClock() is a %T on Linux, want one that counts time in suspend", c)
	}
}

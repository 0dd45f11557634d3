package election

import (
	"testing"
	"time"
)

// tripClock calls trip, once, when it is next read.
type tripClock struct {
	Clock
	trip func()
}

func (c *tripClock) Now() time.Time {
	now := c.Clock.Now()
	if trip := c.trip; trip != nil {
		c.trip = nil
		trip()
	}
	return now
}

// TestChangeBetweenStepAndWaitWakes ends the claimant, or revokes its claim, when a step has read
// everything but the clock, so that the step misses the change. The loop must not sleep through it.
func TestChangeBetweenStepAndWaitWakes(t *testing.T) {
	for name, trip := range map[string]func(*node){
		"end":        func(n *node) { n.Cancel() },
		"revocation": func(n *node) { close(n.revoked) },
	} {
		for _, desired := range []Desired{Released, Held} {
			t.Run(name+" with "+desired.String(), func(t *testing.T) {
				inBubble(t, func(t *testing.T, h *harness) {
					clock := &tripClock{}
					a := h.node("a", func(n *node, cfg *ClaimantConfig) {
						clock.Clock = cfg.Clock
						cfg.Clock = clock
					})
					h.Sleep(time.Minute)
					a.claimant.SetDesired(desired)
					h.Sleep(time.Second)
					clock.trip = func() { trip(a) }
					a.claimant.Touch()
					h.Sleep(time.Second)
					if a.claimant.Claim() != nil {
						t.Error("the claim is still held")
					}
					a.Cancel()
					h.Sleep(time.Second)
					select {
					case <-a.Stopped:
					default:
						t.Error("Run has not returned")
					}
				})
			})
		}
	}
}

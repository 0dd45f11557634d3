package election

import (
	"testing"
	"time"
)

// tripClock does something the first time that it is read after it was set.
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

// TestWhatComesBetweenStepAndWaitWakes ends the claimant, or revokes its claim, at the last moment
// of a step, after which the step does not know of it: at the reading of the clock. The loop must
// not go to sleep over it.
func TestWhatComesBetweenStepAndWaitWakes(t *testing.T) {
	for name, trip := range map[string]func(*node){
		"end":        func(n *node) { n.cancel() },
		"revocation": func(n *node) { close(n.revoked) },
	} {
		for _, desired := range []Desired{Released, Held} {
			t.Run(name+" with "+desired.String(), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					clock := &tripClock{}
					a := w.node("a", func(n *node, cfg *ClaimantConfig) {
						clock.Clock = cfg.Clock
						cfg.Clock = clock
					})
					w.sleep(time.Minute)
					a.claimant.SetDesired(desired)
					w.sleep(time.Second)
					clock.trip = func() { trip(a) }
					a.claimant.Touch()
					w.sleep(time.Second)
					if a.claimant.Claim() != nil {
						t.Error("the claim is held on")
					}
					a.cancel()
					w.sleep(time.Second)
					select {
					case <-a.stopped:
					default:
						t.Error("Run has not returned")
					}
				})
			})
		}
	}
}

package election

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// What is beside a claim takes its turns when it asked for them, and Run does not return before it
// has settled.
func TestBeside(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		var turns []time.Duration
		var ended []bool
		begin, done := time.Now(), false
		n := h.node("a", func(n *node, cfg *ClaimantConfig) {
			cfg.Beside = func(ctx context.Context) (time.Time, bool) {
				at := time.Since(begin)
				if len(turns) == 0 || turns[len(turns)-1] != at {
					turns, ended = append(turns, at), append(ended, ctx.Err() != nil)
				}
				if at < 300*time.Millisecond {
					return begin.Add(300 * time.Millisecond), false
				}
				return time.Time{}, done
			}
		})
		n.claimant.SetDesired(Released)
		h.Sleep(5 * time.Second)
		if last := turns[len(turns)-1]; last != 300*time.Millisecond {
			t.Errorf("turns at %v, the last must be when it was asked for, at 300 ms", turns)
		}
		n.claimant.Nudge()
		synctest.Wait()
		if last := turns[len(turns)-1]; last != 5*time.Second {
			t.Errorf("turns at %v, the last must be that of Nudge, at 5 s", turns)
		}
		h.Sleep(time.Second)
		n.Cancel()
		synctest.Wait()
		if closed(n.Stopped) || !ended[len(ended)-1] {
			t.Errorf("Run has returned (%t) before what is beside it had settled, or has not told it that it should (%v)", closed(n.Stopped), ended)
		}
		done = true
		n.claimant.Nudge()
		synctest.Wait()
		if !closed(n.Stopped) {
			t.Error("Run has not returned although everything has settled")
		}
	})
}

// A time far ahead that Beside returns does not put off the turns of a claim.
func TestBesideAClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		n := h.node("a", func(n *node, cfg *ClaimantConfig) {
			cfg.Beside = func(context.Context) (time.Time, bool) { return time.Now().Add(time.Hour), true }
		})
		h.Sleep(time.Minute)
		if n.claimant.Claim() == nil {
			t.Fatal("a does not hold the Lease")
		}
		for range 10 {
			h.Sleep(DefaultTiming().RetryPeriod / 2)
			if at, held := n.claimant.Turned(); !held || time.Since(at) > DefaultTiming().RetryPeriod/2 {
				t.Errorf("the last turn was %v ago, must be at most half a retry period", time.Since(at))
			}
		}
	})
}

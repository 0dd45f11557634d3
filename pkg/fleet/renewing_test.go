package fleet

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
)

// TestRenewing lets a member renew its Lease for a while, and then hang.
func TestRenewing(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		const tolerance = 20 * time.Second
		hangs, hang := make(chan struct{}), &atomic.Bool{}
		a := s.launch("a", func(c *Config) {
			observe := c.Observe
			c.Observe = func(e Event) {
				if hang.Load() && e.Type == election.EventRenewed && e.Name == "flotilla-member-a" {
					<-hangs
				}
				observe(e)
			}
		})
		requireWell := func(when string) {
			t.Helper()
			if err := a.Renewing(tolerance); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
		requireWell("at the start")
		for range 60 {
			pass(time.Second)
			requireWell("while it renews")
		}
		hang.Store(true)
		pass(15 * time.Second)
		requireWell("hanging within the tolerance")
		pass(25 * time.Second)
		if err := a.Renewing(tolerance); err == nil || !strings.Contains(err.Error(), "Lease flotilla-member-a") {
			t.Errorf("hanging: %v", err)
		}
		hang.Store(false)
		close(hangs)
		pass(time.Minute)
		requireWell("after it")
	})
}

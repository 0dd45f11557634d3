package fleet

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leadership"
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

// TestHungLoopEndsTheProcess lets the observer of events, which the program gives, block a loop for
// good. Nothing else ends such a process: the loop that would do so for work that hangs hangs
// itself.
func TestHungLoopEndsTheProcess(t *testing.T) {
	for name, in := range map[string]struct {
		on   election.EventType
		of   string
		cut  bool // the API server does not answer any more after a minute
		says string
	}{
		"of a leader lock":          {leadership.EventPrefix + election.EventRenewed, "main", false, "one of its loops hangs"},
		"of a claim":                {election.EventAcquired, "flotilla-namespaces-00", false, "Lease flotilla-namespaces-00 goes on"},
		"of a claim that has ended": {election.EventEnded, "flotilla-namespaces-00", true, "has not returned"},
		"of the heartbeat":          {election.EventRenewed, "flotilla-member-a", false, "Lease flotilla-member-a goes on"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 4, func(t *testing.T, s *testFleet) {
				hangs := make(chan struct{})
				a := s.launch("a", func(c *Config) {
					c.LeaderLocks = []string{"main"}
					observe := c.Observe
					c.Observe = func(e Event) {
						if e.Type == in.on && e.Name == in.of {
							<-hangs
						}
						observe(e)
					}
				})
				exits := func() []string {
					s.mu.Lock()
					defer s.mu.Unlock()
					return slices.Clone(s.exits)
				}
				pass(time.Minute)
				if got := exits(); len(got) != 0 {
					t.Errorf("after a minute: %q", got)
				}
				if in.cut {
					a.client.Block()
				}
				pass(90 * time.Second)
				if got := exits(); len(got) != 1 || !strings.Contains(got[0], in.says) {
					t.Errorf("90 s later: %q, want one that says %q", got, in.says)
				}
				close(hangs)
			})
		})
	}
}

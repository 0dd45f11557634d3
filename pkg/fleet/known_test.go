package fleet

import (
	"slices"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// aheadClock is a clock that was wrong when its process began.
type aheadClock struct {
	clock.RealClock
	by time.Duration
}

func (c aheadClock) Now() time.Time                  { return c.RealClock.Now().Add(c.by) }
func (c aheadClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// TestOneClockIsAhead has a member whose clock is an hour ahead or behind. A member that is away
// must be remembered exactly as long as with correct clocks.
func TestOneClockIsAhead(t *testing.T) {
	for name, by := range map[string]time.Duration{"right": 0, "ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 4, func(t *testing.T, s *testFleet) {
				a := s.launch("a", func(c *Config) { c.Clock = aheadClock{by: by} })
				b := s.launch("b", nil)
				c := s.launch("c", nil)
				pass(time.Minute)
				s.allHeld("a", "b", "c")
				known := func(proc *process) []string {
					var names []string
					for _, m := range leaseapi.KnownMembers("flotilla", proc.observer.List()) {
						names = append(names, m.Name)
					}
					return names
				}
				b.stop()
				<-b.ended
				for _, when := range []time.Duration{0, 10 * time.Minute, 4 * time.Minute} {
					pass(when)
					for _, proc := range []*process{a, c} {
						if got := known(proc); !slices.Equal(got, []string{"a", "b", "c"}) {
							t.Errorf("b is away for %v more, and %s knows %v", when, leaserecord.MemberOf(proc.Incarnation()), got)
						}
					}
				}
				pass(2 * time.Minute)
				for _, proc := range []*process{a, c} {
					if got := known(proc); !slices.Equal(got, []string{"a", "c"}) {
						t.Errorf("b is away for 16 minutes, and %s knows %v", leaserecord.MemberOf(proc.Incarnation()), got)
					}
				}
			})
		})
	}
}

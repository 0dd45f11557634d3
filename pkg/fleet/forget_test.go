package fleet

import (
	"slices"
	"testing"
	"time"
)

// TestWhatHasEndedForgets checks that each instance discards its caches once it has run or was
// closed, and has no way to write.
func TestWhatHasEndedForgets(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		a := s.launch("a", nil)
		pass(time.Minute)
		b := s.launch("b", func(c *Config) { c.Standby = true })
		pass(time.Minute) // Some shards move, and others are kept warm.
		for _, member := range []*process{a, b} {
			member.stop()
			<-member.ended
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.fakeWorks != 0 || s.built < 8 || s.forgotten != s.built {
			t.Errorf("%d of %d instances have discarded their caches, and %d have not ended; want all, and none", s.forgotten, s.built, s.fakeWorks)
		}
	})
}

// TestWhatIsForgotten checks that an acquisition names the controllers that begin again without
// their memory, unless nobody has run them on the shard.
func TestWhatIsForgotten(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		controllers := s.plan.Rings[0].Controllers
		forgets := func(c *Config) {
			c.Forgets = func(name string) bool { return name == controllers[0] }
		}
		s.launch("a", forgets)
		pass(time.Minute)
		s.allHeld("a")
		for _, id := range s.plan.Rings[0].IDs() {
			if a := s.acquisition(id); a.Reason != ReasonNew || len(a.Forgot) > 0 {
				t.Errorf("%s was acquired because it is %s, and forgot %v", id, a.Reason, a.Forgot)
			}
		}
		b := s.launch("b", forgets)
		pass(time.Minute)
		s.allHeld("a", "b")
		moved := 0
		for _, id := range s.plan.Rings[0].IDs() {
			if s.holder(id) != b.config.Member {
				continue
			}
			moved++
			if a := s.acquisition(id); !slices.Equal(a.Forgot, controllers[:1]) {
				t.Errorf("%s has moved, and forgot %v, want %v", id, a.Forgot, controllers[:1])
			}
		}
		if moved == 0 {
			t.Error("no range has moved")
		}
	})
}

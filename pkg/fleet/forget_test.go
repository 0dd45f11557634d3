package fleet

import (
	"testing"
	"time"
)

// TestWhatHasEndedForgets: each instance gives up its caches once it has run, or was given up, and
// cannot write any more.
func TestWhatHasEndedForgets(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *sea) {
		a := s.launch("a", nil)
		pass(time.Minute)
		b := s.launch("b", func(c *Config) { c.Standby = true })
		pass(time.Minute) // Some shards move, and others are kept warm.
		for _, member := range []*ship{a, b} {
			member.stop()
			<-member.ended
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.cargoes != 0 || s.built < 8 || s.forgotten != s.built {
			t.Errorf("%d of %d instances have given up their caches, and %d have not ended; want all, and none", s.forgotten, s.built, s.cargoes)
		}
	})
}

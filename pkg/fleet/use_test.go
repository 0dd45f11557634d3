package fleet

import (
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
)

// TestMemberSaysWhatItUses again and again, and a process that does not say leaves nothing of the one before it.
func TestMemberSaysWhatItUses(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *sea) {
		queued := int64(0)
		a := s.launch("a", func(c *Config) {
			c.Use = func() Use { queued++; return Use{CPU: 250, Queued: queued} }
		})
		said := func() string { return s.store.Get(election.MemberLease("flotilla", "a")).Annotations[UseAnnotation] }
		pass(time.Minute)
		first := said()
		pass(time.Minute)
		if second := said(); first == "" || second == "" || first == second {
			t.Errorf("it said %q, and a minute later %q", first, second)
		}
		a.stop()
		<-a.ended
		s.launch("a", nil)
		pass(time.Minute)
		if text := said(); text != "" {
			t.Errorf("of the process before, %q is left", text)
		}
	})
}

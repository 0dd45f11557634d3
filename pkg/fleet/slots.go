package fleet

import (
	"context"
	"slices"
	"sync"
)

// slots limit how many shards of a member prepare at a time, so that a member that will own many
// does not hold many caches twice, nor list everything at once. First come, first served. The
// methods are safe for concurrent use.
type slots struct {
	mu    sync.Mutex
	free  int
	queue []*slot
}

// slot is a place among those that prepare, or in the queue for one.
type slot struct {
	of *slots
	// granted is closed once the slot may be used. wake is called then, unless that was at once.
	granted chan struct{}
	wake    func()
}

func newSlots(n int) *slots { return &slots{free: n} }

// ask returns a slot, which is granted at once or later. wake must not block. Give every slot back.
func (s *slots) ask(wake func()) *slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := &slot{of: s, granted: make(chan struct{}), wake: wake}
	if s.free > 0 {
		s.free--
		close(asked.granted)
	} else {
		s.queue = append(s.queue, asked)
	}
	return asked
}

// wait returns a slot once it is granted, or why ctx has ended.
func (s *slots) wait(ctx context.Context) (*slot, error) {
	asked := s.ask(func() {})
	select {
	case <-asked.granted:
		return asked, nil
	case <-ctx.Done():
		asked.giveBack()
		return nil, context.Cause(ctx)
	}
}

// giveBack returns the slot, or leaves the queue. It must be called once.
func (s *slot) giveBack() {
	if next := s.of.passOn(s); next != nil {
		next.wake()
	}
}

// passOn returns the slot that is granted instead; nil if there is none.
func (s *slots) passOn(given *slot) *slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.queue, given); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
		return nil
	}
	if len(s.queue) == 0 {
		s.free++
		return nil
	}
	next := s.queue[0]
	s.queue = slices.Delete(s.queue, 0, 1)
	close(next.granted)
	return next
}

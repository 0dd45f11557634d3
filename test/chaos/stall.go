package main

import (
	"context"
	"sync"
	"time"

	"github.com/flotilla-kube/flotilla/test/command"
)

// stallTick is how often the stall watch checks the clock.
const stallTick = 50 * time.Millisecond

// stallWatch measures how long this machine kept a runnable process waiting. A failure on a machine
// that stood still for seconds proves little about the fleet.
type stallWatch struct {
	mu    sync.Mutex
	worst time.Duration
}

// Run measures until ctx ends.
func (s *stallWatch) Run(ctx context.Context) {
	last := time.Now()
	for command.Pause(ctx, stallTick) {
		now := time.Now()
		s.mu.Lock()
		s.worst = max(s.worst, now.Sub(last)-stallTick)
		s.mu.Unlock()
		last = now
	}
}

// take returns the longest stall since the last call.
func (s *stallWatch) take() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	worst := s.worst
	s.worst = 0
	return worst
}

package informer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// firstPage is how many objects are listed to see the present version: enough for most kinds to be listed whole.
	firstPage = 100
	// passPatience is how long the cache of a busy resource may take to pass the present version, before all of it is listed.
	passPatience = 50 * time.Millisecond
)

// moment is a point in the order of what happens in a process. Clocks do not tell what came first of two things that are near.
type moment int64

// freshness is what is known of how new a cache is, and finds it out.
type freshness struct {
	// asked is when the list was sent that the cache was first filled from; 0 if it was filled by following.
	asked atomic.Int64

	mu sync.Mutex
	// proven is the last moment of which it is known that all changes before have been seen.
	proven moment
	// check is under way; nil for none.
	check *check
	// ended says that there will be no more checks.
	ended bool
	// checking is one for each check under way.
	checking sync.WaitGroup
}

// check is one look at the present, for all who wait.
type check struct {
	began moment
	done  chan struct{}
	err   error
}

// noteAsked says that a list is about to be sent. Only that which fills the cache counts.
func (s *shared) noteAsked() {
	if !s.HasSynced() {
		s.known.asked.Store(int64(s.pool.now()))
	}
}

// fresh returns nil once the cache, which must have synced, has seen all that was written before since. The error says why that
// could not be found out, or that it had not by the time that a check may take.
func (s *shared) fresh(ctx context.Context, since moment) error {
	for {
		c, err := s.join(since)
		if c == nil {
			return err
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if c.began >= since {
			return c.err
		}
	}
}

// join returns the check that is under way, or begins one. It returns none where the answer is known already.
func (s *shared) join(since moment) (*check, error) {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	switch {
	case s.known.ended:
		return nil, errStopped
	case s.known.proven >= since || moment(s.known.asked.Load()) >= since:
		return nil, nil
	case s.known.check != nil:
		return s.known.check, nil
	}
	c := &check{began: s.pool.now(), done: make(chan struct{})}
	s.known.check = c
	s.known.checking.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, freshPatience)
		defer cancel()
		c.err = s.pool.upToDate(ctx, s)
		s.known.mu.Lock()
		defer s.known.mu.Unlock()
		if s.known.check = nil; c.err == nil {
			s.known.proven = c.began
		}
		close(c.done)
	})
	return c, nil
}

// endChecks returns when no check is under way, and there will be none.
func (s *shared) endChecks() {
	s.known.mu.Lock()
	s.known.ended = true
	s.known.mu.Unlock()
	s.known.checking.Wait()
}

// upToDate returns nil once s has seen all that was written before the call.
func (p *Pool) upToDate(ctx context.Context, s *shared) error {
	options := metav1.ListOptions{Limit: firstPage, FieldSelector: s.key.narrow}
	present, err := p.present(ctx, s.key.resource, options, nil)
	if err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, passPatience)
	defer cancel()
	if present.seenBy(soon, s) == nil {
		return nil
	}
	if !present.whole {
		options.Limit = 0
		if present, err = p.present(ctx, s.key.resource, options, nil); err != nil {
			return err
		}
	}
	return present.seenBy(ctx, s)
}

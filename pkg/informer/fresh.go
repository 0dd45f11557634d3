package informer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/store"
	"github.com/flotilla-kube/flotilla/pkg/informer/present"
)

// sharedPatience is for the caches that the process shares, for which many wait at once: the
// metadata of all objects of a kind may take a minute to be listed.
var sharedPatience = present.Patience{Look: freshPatience, Complete: time.Minute, Seen: freshPatience}

// moment is a point in the order of what happens in a process. Clocks cannot order two things that
// are close together. The past of a cache is what was written before a moment: before the factory
// was made. That is after the claim was acquired or the preparation began, and so after the writes
// of an earlier holder.
type moment int64

// freshness is what is known about how new a cache is, and the checks that find it out.
type freshness struct {
	// asked is when the last list of the current state was sent that filled the cache; nil if the
	// cache was filled by following. sent is when the list in progress was sent; nil if it need not
	// be of the current state.
	asked, sent atomic.Pointer[asked]
	// took is how long the list of asked took to fill the cache, in nanoseconds.
	took atomic.Int64
	// leader is the informer that this one follows; nil for none.
	leader atomic.Pointer[shared]

	mu sync.Mutex
	// proven is the last moment before which all changes are known to have been seen.
	proven moment
	// check is the check in progress; nil for none.
	check *check
	// ended says that there will be no more checks.
	ended bool
	// checking counts the checks in progress.
	checking sync.WaitGroup
	// restart makes the informer list again; nil while it does not read. listing says that it will
	// list, or does.
	restart context.CancelFunc
	listing bool
}

// asked is when a list was sent, by order and by the pool's clock.
type asked struct {
	moment moment
	time   time.Time
}

// isSince reports whether the list was sent after past, and so has every write before that.
func (a *asked) isSince(past moment) bool { return a != nil && a.moment >= past }

// check is one look at the current state, for all who wait.
type check struct {
	began moment
	done  chan struct{}
	err   error
}

// noteAsked records that a list is about to be requested, at version or later.
func (s *shared) noteAsked(version string) {
	if version == "" || version == "0" { // see current
		s.known.sent.Store(&asked{s.pool.now(), s.pool.config.Clock.Now()})
	} else {
		s.known.sent.Store(nil)
	}
}

// noteListed records that the cache has been filled from that list.
func (s *shared) noteListed() {
	if sent := s.known.sent.Load(); sent != nil {
		s.known.asked.Store(sent)
		s.known.took.Store(int64(s.pool.config.Clock.Now().Sub(sent.time)))
	}
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	s.known.listing = false
}

// took is how long reading has taken.
func (s *shared) took() time.Duration { return time.Duration(s.root().known.took.Load()) }

// rereading returns read as a source that can be made to list again.
func (s *shared) rereading(read store.Source) store.Source {
	return func(ctx context.Context, into *store.Sink) {
		for ctx.Err() == nil {
			run, stop := context.WithCancel(ctx)
			s.known.reads(stop, into.Place() == "")
			read(run, into)
			stop()
			into.SetLost(ctx.Err() == nil)
		}
		s.known.reads(nil, false)
	}
}

func (k *freshness) reads(restart context.CancelFunc, lists bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.restart, k.listing = restart, lists
}

// readAnew makes the informer list again, unless it does so already. Meanwhile it serves what it
// holds.
func (s *shared) readAnew() {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	if s.known.restart != nil && !s.known.listing {
		s.known.listing = true
		s.known.restart()
	}
}

// awaitFresh returns nil once the cache, which must have synced, has seen every write before past.
// If that takes long, it makes the informer list again: its watch may have stalled. It gives up
// only when ctx or the informer ends.
func (s *shared) awaitFresh(ctx context.Context, past moment) error {
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 7, Cap: freshPatience}
	for {
		from := s.root()
		err := from.fresh(ctx, past)
		switch {
		case err == nil && s.root() == from && abreast(s.Informer, from.Informer):
			return nil
		case err == nil && s.root() != from:
			continue
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case from == s && errors.Is(err, store.ErrStopped):
			return err
		}
		switch logger := klog.FromContext(ctx); {
		case err == nil: // It is about to go over to another informer.
		case errors.Is(err, present.ErrBehind):
			logger.Info("Could not confirm that a cache that shards share is up to date, reading it again", "resource", s.key.resource, "err", err)
			from.readAnew()
		default:
			logger.Info("Could not ask whether a cache that shards share is up to date, trying again", "resource", s.key.resource, "err", err)
		}
		select {
		case <-time.After(backoff.Step()):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// root returns the informer that reads what this one holds: both are at the same version.
func (s *shared) root() *shared {
	for {
		leader := s.known.leader.Load()
		if leader == nil {
			return s
		}
		s = leader
	}
}

// abreast reports whether a following informer is as far as the one that it follows. One that is
// being deserted may not be.
func abreast(i, lead *store.Informer) bool {
	to := lead.LastSyncResourceVersion() // Asked first, since both move at the same time.
	at := i.LastSyncResourceVersion()
	return i == lead || at == to || present.Reached(at, to)
}

// fresh returns nil once the cache, which must have synced, has seen every write before past. The
// error says why that could not be found out, or that the cache had not seen it within the time of
// a check.
func (s *shared) fresh(ctx context.Context, past moment) error {
	for {
		c, err := s.checkSince(past)
		if c == nil {
			return err
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if c.began >= past {
			return c.err
		}
	}
}

// checkSince returns the check in progress, or begins one. It returns none if the answer is known
// already.
func (s *shared) checkSince(past moment) (*check, error) {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	switch {
	case s.known.ended:
		return nil, store.ErrStopped
	case s.known.proven >= past || s.known.asked.Load().isSince(past):
		return nil, nil
	case s.known.check != nil:
		return s.known.check, nil
	}
	c := &check{began: s.pool.now(), done: make(chan struct{})}
	s.known.check = c
	s.known.checking.Go(func() {
		compared := s.pool.comparison(s.key, s)
		compared.Patience = sharedPatience
		c.err = compared.UpToDate(s.ctx)
		s.known.mu.Lock()
		defer s.known.mu.Unlock()
		if s.known.check = nil; c.err == nil {
			s.known.proven = c.began
		}
		close(c.done)
	})
	return c, nil
}

// endChecks prevents new checks, and returns when none is in progress.
func (s *shared) endChecks() {
	s.known.mu.Lock()
	s.known.ended = true
	s.known.mu.Unlock()
	s.known.checking.Wait()
}

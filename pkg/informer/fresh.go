package informer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

const (
	// firstPage is how many objects are listed to see the present version: enough for most kinds to be listed whole.
	firstPage = 100
	// listPatience is how long the metadata of all objects of a kind may take to be listed.
	listPatience = time.Minute
	// passPatience is how long the cache of a busy resource may take to pass the present version, before all of it is listed.
	passPatience = 50 * time.Millisecond
)

// moment is a point in the order of what happens in a process. Clocks do not tell what came first of two things that are near.
type moment int64

// past is what a cache must have seen before it is used.
type past struct {
	// until is the moment before which everything that was written has to have been seen: when the factory was made, which is
	// after the claim was acquired or the preparation begun, and so after what an earlier holder wrote.
	until moment
	// unheld is since when, by the pool's clock, there was nothing to be seen before until, because nobody could write it; zero
	// if that is not known.
	unheld time.Time
}

// freshness is what is known of how new a cache is, and finds it out.
type freshness struct {
	// asked is when the last list of the present was sent that the cache was filled from; nil if it
	// was filled by following. sent is when the one was sent that is under way; nil if that need
	// not be of the present.
	asked, sent atomic.Pointer[asked]
	// leader is the informer that this one follows; nil for none.
	leader atomic.Pointer[shared]

	mu sync.Mutex
	// proven is the last moment of which it is known that all changes before have been seen.
	proven moment
	// check is under way; nil for none.
	check *check
	// ended says that there will be no more checks.
	ended bool
	// checking is one for each check under way.
	checking sync.WaitGroup
	// restart has the informer list again; nil where it does not read. listing says that it will
	// list, or does.
	restart context.CancelFunc
	listing bool
}

// asked is when a list was sent, by order and by the pool's clock.
type asked struct {
	moment moment
	time   time.Time
}

// shows reports whether the list had all of a past.
func (a *asked) shows(p past) bool {
	return a != nil && (a.moment >= p.until || !p.unheld.IsZero() && a.time.After(p.unheld))
}

// check is one look at the present, for all who wait.
type check struct {
	began moment
	done  chan struct{}
	err   error
}

// noteAsked says that a list is about to be sent, of what there is at version or later.
func (s *shared) noteAsked(version string) {
	if version == "" || version == "0" { // see current
		s.known.sent.Store(&asked{s.pool.now(), s.pool.config.Clock.Now()})
	} else {
		s.known.sent.Store(nil)
	}
}

// noteListed says that the cache has been filled from that list.
func (s *shared) noteListed() {
	if sent := s.known.sent.Load(); sent != nil {
		s.known.asked.Store(sent)
	}
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	s.known.listing = false
}

// rereading is read as a source that lists again when it is told to.
func (s *shared) rereading(read source) source {
	return func(ctx context.Context, into *sink) {
		for ctx.Err() == nil {
			run, stop := context.WithCancel(ctx)
			s.known.reads(stop, into.place() == "")
			read(run, into)
			stop()
			into.lost = ctx.Err() == nil
		}
		s.known.reads(nil, false)
	}
}

func (k *freshness) reads(restart context.CancelFunc, lists bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.restart, k.listing = restart, lists
}

// readAnew has the informer list again, unless it does so already. What it holds is served
// meanwhile.
func (s *shared) readAnew() {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	if s.known.restart != nil && !s.known.listing {
		s.known.listing = true
		s.known.restart()
	}
}

// awaitFresh returns nil once the cache, which must have synced, has seen all of a past. It has the
// informer list again where that takes long: its watch may have stalled. It does not give up before
// ctx ends, or the informer.
func (s *shared) awaitFresh(ctx context.Context, p past) error {
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 7, Cap: freshPatience}
	for {
		from := s.root()
		err := from.fresh(ctx, p)
		switch {
		case err == nil && s.root() == from && abreast(s.Informer, from.Informer):
			return nil
		case err == nil && s.root() != from:
			continue
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case from == s && errors.Is(err, errStopped):
			return err
		}
		switch logger := klog.FromContext(ctx); {
		case err == nil: // It is about to go over to another one.
		case errors.Is(err, errBehind):
			logger.Info("A cache that shards of the process share has not been found to be of the present, and is read again", "resource", s.key.resource, "err", err)
			from.readAnew()
		default:
			logger.Info("Could not tell whether a cache that shards of the process share is of the present, trying again", "resource", s.key.resource, "err", err)
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

// abreast reports whether an informer that follows another one has come as far. One that is being
// deserted may not have.
func abreast(i, lead *Informer) bool {
	to := lead.LastSyncResourceVersion() // Asked first: both move at the same time.
	at := i.LastSyncResourceVersion()
	return i == lead || at == to || reached(at, to)
}

// fresh returns nil once the cache, which must have synced, has seen all of a past. The error says why that could not be found
// out, or that it had not by the time that a check may take.
func (s *shared) fresh(ctx context.Context, p past) error {
	for {
		c, err := s.join(p)
		if c == nil {
			return err
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if c.began >= p.until {
			return c.err
		}
	}
}

// join returns the check that is under way, or begins one. It returns none where the answer is known already.
func (s *shared) join(p past) (*check, error) {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	switch {
	case s.known.ended:
		return nil, errStopped
	case s.known.proven >= p.until || s.known.asked.Load().shows(p):
		return nil, nil
	case s.known.check != nil:
		return s.known.check, nil
	}
	c := &check{began: s.pool.now(), done: make(chan struct{})}
	s.known.check = c
	s.known.checking.Go(func() {
		c.err = s.pool.upToDate(s.ctx, comparison{
			resource: s.key.resource, options: metav1.ListOptions{FieldSelector: s.key.narrow},
			cached: s, patience: sharedPatience,
		})
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

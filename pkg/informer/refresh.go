package informer

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/informer/present"
)

const (
	// refreshAtOnce is how many resources are listed at a time to see whether their caches are
	// fresh.
	refreshAtOnce = 8
	// refreshPeriod is the first pause before checking a cache again. A watch event takes a few
	// milliseconds.
	refreshPeriod = 2 * time.Millisecond
)

// Refresh returns once every cache of the factory that is being filled has seen all changes that
// were made before the call. Use it for a cache whose past is unknown, such as a standby's. It
// asks the API server what there is, for each resource. For a cache that the process shares, and
// those that follow it, it asks once for all callers that come at one time. See package present
// for the cost of an answer and what it relies on. A shared cache that stays behind lists again.
// A resource that the API server does not have has no objects: Refresh skips its cache if that was
// never filled, and otherwise it must be empty. It also skips caches that [Factory.AwaitFilled] has
// given up and that are still not full. Informers that are asked for later sync with a state at
// least as new as the call. The error says which resource could not be listed, or which cache was
// not fresh when ctx ended.
func (f *Factory) Refresh(ctx context.Context) error {
	f.advance()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	slots, first := make(chan struct{}, refreshAtOnce), make(chan error, 1)
	until := f.pool.now()
	for _, e := range f.filling() {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := f.refresh(ctx, e, until); err != nil {
				select {
				case first <- err:
				default: // it may have failed because ctx has ended
				}
				cancel()
			}
		})
	}
	all.Wait()
	close(first)
	return <-first
}

// refresh returns once the cache of e has seen all changes made before until.
func (f *Factory) refresh(ctx context.Context, e *entry, until moment) error {
	if e.givenUp() {
		return nil
	}
	absent, err := e.absence.awaitSynced(ctx, e.cache().HasSyncedChecker())
	switch {
	case err != nil:
		return fmt.Errorf("the cache of %s has not been filled: %w", e.resource.GroupResource(), err)
	case absent:
		return nil
	}
	for {
		from := e.reads()
		if from == nil {
			return f.refreshAlone(ctx, e)
		}
		err := from.awaitFresh(ctx, until)
		switch {
		case err == nil && e.reads() == from && abreast(e.cache(), from.Informer):
			return nil
		case ctx.Err() != nil || err != nil && e.cache() == from.Informer:
			return fmt.Errorf("could not confirm that the cache of %s is up to date: %w",
				e.resource.GroupResource(), cmp.Or(err, context.Cause(ctx)))
		}
		select { // It is about to go over to another informer, or to read by itself.
		case <-time.After(refreshPeriod):
		case <-ctx.Done():
		}
	}
}

// refreshAlone does so for a cache that reads by itself, or together with other ranges.
func (f *Factory) refreshAlone(ctx context.Context, e *entry) error {
	c := f.pool.comparison(e.key, e)
	c.Keep = e.keep
	if e.resource != namespaces && f.pool.prober.Honoured(ctx, e.key.probed(), e.read) {
		c.ShardSelector = f.within.Selector()
	}
	return c.UpToDate(ctx)
}

// comparison compares a cache with all that an informer of key may hold.
func (p *Pool) comparison(key sharedKey, cached present.Cached) present.Comparison {
	return present.Comparison{
		Client: p.config.Metadata, Resource: key.resource, FieldSelector: key.narrow, Cached: cached,
	}
}

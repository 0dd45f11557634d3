package main

import (
	"context"
	"errors"
	"time"

	"github.com/flotilla-kube/flotilla/test/command"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	// slowLasts is how long a replica is slow, stormLasts how long a storm lasts.
	slowLasts  = 10 * time.Second
	stormLasts = 12 * time.Second

	// stormErrors is the share of requests that a storm answers with an error, stormGone the share
	// of new watches that it answers with 410.
	stormErrors = 0.25
	stormGone   = 0.4
	// stormPause is the time between two cuts of all watches.
	stormPause = 3 * time.Second
)

// networkFault disturbs one replica's connection to the API server.
type networkFault struct {
	env    *environment
	mode   harness.Mode
	victim *manager
	// before is how often the proxy had interfered before the fault.
	before int64
}

// Begin implements fault.
func (f *networkFault) Begin(ctx context.Context) (expectation, error) {
	var err error
	if f.victim, err = f.env.loadedVictim(ctx); err != nil {
		return expectation{}, err
	}
	f.before = f.victim.proxy.Hindered()
	f.victim.proxy.Set(f.mode)
	e := expectation{victims: []string{f.victim.name}}
	switch f.mode {
	case harness.Slow:
		e.lasts, e.unharmed, e.progress = slowLasts, true, true
		return e, nil
	case harness.Stranded:
		e.lasts, e.unharmed, e.progress = 2*f.env.opts.timing.LeaseDuration, true, true
		return e, nil
	}
	e.lasts, e.replaced, e.ends = f.env.opts.timing.LeaseDuration+beyondLease, true, true
	return e, nil
}

// End implements fault.
func (f *networkFault) End(context.Context) error {
	if f.victim == nil {
		return nil
	}
	f.victim.proxy.Set(harness.Pass)
	n := f.victim.proxy.Hindered() - f.before
	f.env.out.printf("      hindered %d times", n)
	if n == 0 {
		return errors.New("the fault has hit nothing")
	}
	return nil
}

// stormFault answers requests of all replicas instead of the API server, or ends their watches.
type stormFault struct {
	env     *environment
	watches bool
	before  int64
	stop    context.CancelFunc
	done    chan struct{}
}

// Begin implements fault.
func (f *stormFault) Begin(ctx context.Context) (expectation, error) {
	if _, err := f.env.loadedVictim(ctx); err != nil {
		return expectation{}, err
	}
	f.before = f.injected()
	refused, gone := stormErrors, 0.0
	if f.watches {
		refused, gone = 0, stormGone
	}
	for _, m := range f.env.wanted() {
		m.injector.Set(refused, gone)
		m.proxy.Set(harness.Terminate)
	}
	ctx, f.stop = context.WithCancel(ctx)
	f.done = make(chan struct{})
	go func() {
		defer close(f.done)
		f.cutWatches(ctx)
	}()
	// Errors may hit all renewals of a claim in a row; cut watches must not hurt any.
	return expectation{lasts: stormLasts, everyone: !f.watches, progress: true}, nil
}

func (f *stormFault) cutWatches(ctx context.Context) {
	for f.watches && command.Pause(ctx, stormPause) {
		for _, m := range f.env.all() {
			m.injector.EndWatches()
		}
	}
}

func (f *stormFault) injected() int64 {
	n := int64(0)
	for _, m := range f.env.all() {
		n += m.injector.Injected()
	}
	return n
}

// End implements fault.
func (f *stormFault) End(context.Context) error {
	if f.stop == nil {
		return nil
	}
	f.stop()
	<-f.done
	for _, m := range f.env.all() {
		m.injector.Set(0, 0)
		m.proxy.Set(harness.Pass)
	}
	n := f.injected() - f.before
	f.env.out.printf("      %d answers injected, including ended watches", n)
	if n == 0 {
		return errors.New("the storm has hit nothing")
	}
	return nil
}

package main

import (
	"context"
	"fmt"
	"time"
)

// killFault kills a replica at work.
type killFault struct {
	env    *environment
	victim *manager
}

// Begin implements fault.
func (f *killFault) Begin(ctx context.Context) (expectation, error) {
	var err error
	if f.victim, err = f.env.loadedVictim(ctx); err != nil {
		return expectation{}, err
	}
	return expectation{victims: []string{f.victim.name}, replaced: true}, f.victim.kill()
}

// End implements fault.
func (f *killFault) End(context.Context) error {
	if f.victim == nil {
		return nil
	}
	return f.victim.up()
}

// beyondLease is how much longer than the lease duration a replica is kept from renewing.
const beyondLease = 2 * time.Second

// stopFault suspends a replica at work for longer than its Leases last, and resumes it.
type stopFault struct {
	env *environment
	// burst adds a burst of work in the victim's shards just before.
	burst  bool
	victim *manager
}

// Begin implements fault.
func (f *stopFault) Begin(ctx context.Context) (expectation, error) {
	var err error
	if f.victim, err = f.env.loadedVictim(ctx); err != nil {
		return expectation{}, err
	}
	if f.burst {
		if err := f.startBurst(ctx); err != nil {
			return expectation{}, err
		}
	}
	e := expectation{
		victims: []string{f.victim.name}, replaced: true, ends: true, lasts: f.env.opts.timing.LeaseDuration + beyondLease,
	}
	return e, f.victim.freeze()
}

// startBurst returns when the victim has begun to work on the burst.
func (f *stopFault) startBurst(ctx context.Context) error {
	before := f.env.journal.writesEver(f.env.authorOf(f.victim))
	if err := f.env.load.burst(ctx, f.env.namespacesOf(f.victim)); err != nil {
		return err
	}
	const begun = 10
	_, err := f.env.await(ctx, loadedLimit, "the burst has begun", func(context.Context) error {
		if n := f.env.journal.writesEver(f.env.authorOf(f.victim)) - before; n < begun {
			return fmt.Errorf("%d writes", n)
		}
		return nil
	})
	return err
}

// End implements fault.
func (f *stopFault) End(context.Context) error {
	if f.victim == nil {
		return nil
	}
	return f.victim.thaw()
}

// rollingFault restarts all replicas one at a time, cleanly.
type rollingFault struct{ env *environment }

// Begin implements fault.
func (f *rollingFault) Begin(ctx context.Context) (expectation, error) {
	if _, err := f.env.loadedVictim(ctx); err != nil {
		return expectation{}, err
	}
	for _, m := range f.env.wanted() {
		if err := f.env.restart(ctx, m); err != nil {
			return expectation{}, err
		}
	}
	// The stock controller manager does not release its Lease.
	if f.env.opts.target == stockTarget {
		return expectation{everyone: true}, nil
	}
	return expectation{}, nil
}

// End implements fault.
func (f *rollingFault) End(context.Context) error { return nil }

// restart stops a replica cleanly, starts it again and waits until it is ready.
func (env *environment) restart(ctx context.Context, m *manager) error {
	if err := m.leave(ctx); err != nil {
		return err
	}
	if err := m.up(); err != nil {
		return err
	}
	limit := 2*env.opts.timing.LeaseDuration + 2*env.opts.margin
	took, err := env.await(ctx, limit, m.name+" is ready again", func(ctx context.Context) error { return env.readyOne(ctx, m) })
	env.out.printf("      %s restarted, ready %.1f s after it was started", m.name, took.Seconds())
	return err
}

// scaleFault adds replicas under load, and removes as many.
type scaleFault struct {
	env *environment
	// more is how many replicas to add, come how many have been added.
	more, come int
}

// Begin implements fault.
func (f *scaleFault) Begin(ctx context.Context) (expectation, error) {
	env := f.env
	f.more = 1 + env.random.IntN(2)
	began := time.Now()
	for i := 0; f.come < f.more; i++ {
		m, err := env.join(memberName(i), memberName(i))
		if err != nil {
			return expectation{}, err
		}
		if m.isWanted() {
			continue
		}
		if err := m.up(); err != nil {
			return expectation{}, err
		}
		f.come++
	}
	took, err := env.awaitWhole(ctx, began)
	if err != nil {
		return expectation{}, err
	}
	env.out.printf("      %d more replicas: whole with %d after %.1f s", f.more, len(env.wanted()), took.Seconds())
	return expectation{}, nil
}

// End implements fault.
func (f *scaleFault) End(ctx context.Context) error {
	env := f.env
	for range f.come {
		victim, err := env.loadedVictim(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := victim.leave(ctx); err != nil {
			return err
		}
		env.out.printf("      %s left in %.1f s", victim.name, time.Since(began).Seconds())
	}
	return nil
}

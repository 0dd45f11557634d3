package main

import (
	"context"
	"fmt"
	"time"
)

// killFault kills a replica at work.
type killFault struct {
	world  *world
	victim *manager
}

// Begin implements fault.
func (f *killFault) Begin(ctx context.Context) (expectation, error) {
	var err error
	if f.victim, err = f.world.loadedVictim(ctx); err != nil {
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
	world *world
	// burst adds a burst of work in the victim's shards just before.
	burst  bool
	victim *manager
}

// Begin implements fault.
func (f *stopFault) Begin(ctx context.Context) (expectation, error) {
	var err error
	if f.victim, err = f.world.loadedVictim(ctx); err != nil {
		return expectation{}, err
	}
	if f.burst {
		if err := f.startBurst(ctx); err != nil {
			return expectation{}, err
		}
	}
	e := expectation{
		victims: []string{f.victim.name}, replaced: true, ends: true, lasts: f.world.opts.timing.LeaseDuration + beyondLease,
	}
	return e, f.victim.freeze()
}

// startBurst returns when the victim has begun to work on the burst.
func (f *stopFault) startBurst(ctx context.Context) error {
	before := f.world.journal.writesEver(f.world.authorOf(f.victim))
	if err := f.world.load.burst(ctx, f.world.namespacesOf(f.victim)); err != nil {
		return err
	}
	const begun = 10
	_, err := f.world.await(ctx, loadedLimit, "the burst has begun", func(context.Context) error {
		if n := f.world.journal.writesEver(f.world.authorOf(f.victim)) - before; n < begun {
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
type rollingFault struct{ world *world }

// Begin implements fault.
func (f *rollingFault) Begin(ctx context.Context) (expectation, error) {
	if _, err := f.world.loadedVictim(ctx); err != nil {
		return expectation{}, err
	}
	for _, m := range f.world.wanted() {
		if err := f.world.restart(ctx, m); err != nil {
			return expectation{}, err
		}
	}
	// The stock controller manager does not release its Lease.
	if f.world.opts.target == stockTarget {
		return expectation{everyone: true}, nil
	}
	return expectation{}, nil
}

// End implements fault.
func (f *rollingFault) End(context.Context) error { return nil }

// restart stops a replica cleanly, starts it again and waits until it is ready.
func (w *world) restart(ctx context.Context, m *manager) error {
	if err := m.leave(ctx); err != nil {
		return err
	}
	if err := m.up(); err != nil {
		return err
	}
	limit := 2*w.opts.timing.LeaseDuration + 2*w.opts.margin
	took, err := w.await(ctx, limit, m.name+" is ready again", func(ctx context.Context) error { return w.readyOne(ctx, m) })
	w.out.printf("      %s restarted, ready %.1f s after it was started", m.name, took.Seconds())
	return err
}

// scaleFault adds replicas under load, and removes as many.
type scaleFault struct {
	world *world
	// more is how many replicas to add, come how many have been added.
	more, come int
}

// Begin implements fault.
func (f *scaleFault) Begin(ctx context.Context) (expectation, error) {
	w := f.world
	f.more = 1 + w.random.IntN(2)
	began := time.Now()
	for i := 0; f.come < f.more; i++ {
		m, err := w.join(memberName(i), memberName(i))
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
	took, err := w.awaitWhole(ctx, began)
	if err != nil {
		return expectation{}, err
	}
	w.out.printf("      %d more replicas: whole with %d after %.1f s", f.more, len(w.wanted()), took.Seconds())
	return expectation{}, nil
}

// End implements fault.
func (f *scaleFault) End(ctx context.Context) error {
	w := f.world
	for range f.come {
		victim, err := w.loadedVictim(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := victim.leave(ctx); err != nil {
			return err
		}
		w.out.printf("      %s left in %.1f s", victim.name, time.Since(began).Seconds())
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flotilla-kube/flotilla/test/command"
)

// faults runs as many rounds as the options say. After a failed round it continues once the fleet
// is whole again. If the fleet does not recover, it stops, because later rounds would prove
// nothing. The error has all failures.
func (c *chaos) faults(ctx context.Context) error {
	took, err := c.awaitWhole(ctx, time.Now())
	if err != nil {
		return err
	}
	c.out.printf("under load and whole after %.1f s", took.Seconds())
	c.calmSince = time.Now()
	var errs []error
	deck := &schedule{names: c.opts.faults, random: newRandom(c.opts.seed, scheduleChance)}
	var dealt time.Time // when each fault of the list had come
	for i := 0; ; i++ {
		if i == len(c.opts.faults) {
			dealt = time.Now()
		}
		if !c.goesOn(i, dealt) {
			break
		}
		if err := c.calibrate(ctx); err != nil {
			return errors.Join(append(errs, err)...)
		}
		err := errors.Join(c.quiet(), c.fault(ctx, i+1, faultByName(deck.next())))
		if err == nil {
			continue
		}
		errs = append(errs, err)
		if c.opts.failFast || ctx.Err() != nil {
			return errors.Join(errs...)
		}
		if err := c.recover(ctx); err != nil {
			return errors.Join(append(errs, fmt.Errorf("after round %d: %w", i+1, err))...)
		}
	}
	command.Pause(ctx, calmTime)
	return errors.Join(append(errs, c.quiet())...)
}

// fault runs one round.
func (c *chaos) fault(ctx context.Context, number int, kind faultKind) error {
	c.out.printf("[%d] %s", number, kind.name)
	start := time.Now()
	c.stall.take()
	c.journal.takeSlowest()
	tampered, err := (&round{env: c.environment, kind: kind}).Run(ctx)
	c.calmSince = time.Now()
	if tampered != nil {
		if tampered.to.IsZero() {
			tampered.to = time.Now()
		}
		c.tamperings = append(c.tamperings, *tampered)
	}
	c.outcomes = append(c.outcomes, outcome{name: kind.name, took: time.Since(start), err: err})
	if stalled := c.stall.take(); stalled > stallNoted {
		c.out.printf("      this machine kept a process waiting for up to %v", millis(stalled))
	}
	if slowest := c.journal.takeSlowest(); slowest > stallNoted {
		c.out.printf("      a write of a Lease took the API server up to %v", millis(slowest))
	}
	if err == nil {
		return nil
	}
	c.out.printf("      FAILED %v", err)
	return fmt.Errorf("round %d, %s: %w", number, kind.name, err)
}

// quiet returns an error if anything was lost or ended since the last fault was over.
func (c *chaos) quiet() error {
	r := &round{env: c.environment}
	err := wrap("while there was no fault", errors.Join(r.bystanders(expectation{}, c.calmSince), r.leaderLock(expectation{}, c.calmSince)))
	if err != nil {
		c.out.printf("      FAILED %v", err)
	}
	return err
}

// recover returns once the fleet is whole after a failed fault.
func (c *chaos) recover(ctx context.Context) error {
	began := time.Now()
	if err := c.restore(ctx); err != nil {
		return err
	}
	took, err := c.awaitWhole(ctx, began)
	c.calmSince = time.Now()
	c.out.printf("      recovered in %.1f s", took.Seconds())
	return err
}

// goesOn reports whether another fault follows. done is how many there were, dealt when each of the
// list had come.
func (c *chaos) goesOn(done int, dealt time.Time) bool {
	switch {
	case c.opts.rounds > 0:
		return done < c.opts.rounds
	case done < len(c.opts.faults):
		return true
	default:
		return time.Since(dealt) < time.Duration(c.opts.minutes*float64(time.Minute))
	}
}

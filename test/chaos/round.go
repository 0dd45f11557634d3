package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/test/command"
)

// round is one fault, from a whole fleet to a whole fleet.
type round struct {
	env  *environment
	kind faultKind
}

// Run returns an error if a check failed, and the fault's tampering, if any.
func (r *round) Run(ctx context.Context) (*tampering, error) {
	env := r.env
	f := r.kind.make(env)
	began := time.Now()
	env.journal.phase(r.kind.name, began)
	defer func() { env.journal.phase(calm, time.Now()) }()
	expect, err := f.Begin(ctx)
	if err != nil {
		return expect.tampered, errors.Join(fmt.Errorf("begin: %w", err), wrap("end", f.End(ctx)))
	}
	waitErr := r.during(ctx, expect, began)
	ended := time.Now()
	// Also after a failure, so that what is left does not look worse than it is.
	if err := errors.Join(waitErr, wrap("end", f.End(ctx))); err != nil {
		return expect.tampered, err
	}
	if err := r.endings(ctx, expect, began); err != nil {
		return expect.tampered, err
	}
	took, err := env.awaitWhole(ctx, ended)
	if err != nil {
		return expect.tampered, err
	}
	if expect.verify != nil {
		err = expect.verify(ctx)
	}
	env.out.printf("      whole again %.1f s after its end; %s", took.Seconds(), r.summary(began))
	return expect.tampered, errors.Join(err, r.bystanders(expect, began), r.leaderLock(expect, began), r.bounds(expect, began), env.panicked())
}

// endings waits until the victims' processes have ended by themselves, if they must.
func (r *round) endings(ctx context.Context, e expectation, began time.Time) error {
	if !e.ends {
		return nil
	}
	_, err := r.env.await(ctx, r.env.opts.margin, "the victims' processes end by themselves", func(context.Context) error {
		for _, m := range r.env.all() {
			if slices.Contains(e.victims, m.name) && len(m.endingsSince(began)) == 0 {
				return fmt.Errorf("%s runs, see %s", m.name, m.logPath())
			}
		}
		return nil
	})
	if err != nil || r.env.opts.target == stockTarget {
		return err
	}
	var errs []error
	for _, m := range r.env.all() {
		for _, ending := range m.endingsSince(began) {
			if ending.err == nil {
				errs = append(errs, fmt.Errorf("%s ended with status 0, as if it had been told to: see %s", m.name, m.logPath()))
			}
		}
	}
	return errors.Join(errs...)
}

// leaderLock returns an error if the fleet did not hold its leader lock in one term throughout.
func (r *round) leaderLock(e expectation, began time.Time) error {
	if e.everyone || e.leaderLockMoves {
		return nil
	}
	for _, c := range r.env.journal.leaderLockChangesSince(began) {
		return fmt.Errorf("the leader lock went from %q (term %d) to %q (term %d) at %s, although the fault was not about it",
			c.from.holder, c.from.transitions, c.to.holder, c.to.transitions, c.at.UTC().Format(time.RFC3339Nano))
	}
	return nil
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// during waits for what must happen while the fault lasts, and until it has lasted long enough.
func (r *round) during(ctx context.Context, e expectation, began time.Time) error {
	env := r.env
	acting := time.Now()
	limit := env.opts.timing.LeaseDuration + env.opts.margin
	if e.replaced {
		took, err := env.await(ctx, limit, "the others hold all shards", func(context.Context) error { return env.held(acting, e.victims...) })
		if err != nil {
			return err
		}
		env.out.printf("      others held and had renewed everything after %.1f s", took.Seconds())
		_, err = env.await(ctx, limit, "canaries move without the victim", func(context.Context) error {
			return env.journal.progressed(env.namespaces, acting)
		})
		if err != nil {
			return err
		}
	}
	if left := e.lasts - time.Since(began); left > 0 {
		command.Pause(ctx, left)
	}
	if e.progress {
		if e.everyone {
			limit = env.wholeLimit() // Members may end and return while it lasts.
		}
		_, err := env.await(ctx, limit, "canaries move while it lasts", func(context.Context) error {
			return env.journal.progressed(env.namespaces, acting)
		})
		return err
	}
	return ctx.Err()
}

// bystanders returns an error if a manager lost a claim or ended that should not have.
func (r *round) bystanders(e expectation, began time.Time) error {
	if e.everyone {
		return nil
	}
	var errs []error
	hit := func(member string) bool { return slices.Contains(e.victims, member) && !e.unharmed }
	for _, c := range r.env.journal.changesSince(began) {
		if e.tampered != nil && c.lease == e.tampered.lease {
			continue
		}
		if c.lost && !hit(leaserecord.MemberOf(c.from)) && r.env.opts.target == fleetTarget {
			errs = append(errs, fmt.Errorf("a member that was not a victim lost a claim: %v at %s", c, c.at.UTC().Format(time.RFC3339Nano)))
		}
	}
	for _, m := range r.env.all() {
		if hit(m.name) {
			continue
		}
		for _, ending := range m.endingsSince(began) {
			errs = append(errs, fmt.Errorf("a process that was not a victim ended: %v, see %s", ending, m.logPath()))
		}
	}
	return errors.Join(errs...)
}

// summary says what happened to claims and processes since the fault began.
func (r *round) summary(began time.Time) string {
	var parts []string
	handed, lost := gaps(r.env.journal.changesSince(began))
	parts = append(parts, "handed over "+durations(handed), "lost "+durations(lost))
	for _, m := range r.env.all() {
		for _, ending := range m.endingsSince(began) {
			parts = append(parts, "process ended: "+ending.String())
		}
	}
	return strings.Join(parts, "; ")
}

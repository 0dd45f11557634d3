package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flotilla-kube/flotilla/test/calibrate"
)

// calibrate measures the machine under load, for the rest of the calm between two faults.
func (c *chaos) calibrate(ctx context.Context) error {
	machine, err := calibrate.Measure(ctx, calmTime, calibrate.Writes(c.client))
	if err != nil {
		return err
	}
	c.machine = machine
	return nil
}

// hold prints a measurement beside its bound. It returns an error if the bound is exceeded and
// -bounds is on.
func (env *environment) hold(what string, took, promised time.Duration, steps int, on calibrate.Machine) error {
	bound := calibrate.Bound{What: what, Promised: promised, Steps: steps, On: on}
	env.out.printf("      %s: %v, %v", what, millis(took), bound)
	if !env.opts.bounds {
		return nil
	}
	return bound.Check(took)
}

// bounds returns an error if the victims' shards were unowned for longer than a takeover takes. It
// collects the gaps of planned moves for the end, when there are enough of them.
func (r *round) bounds(e expectation, began time.Time) error {
	env := r.env
	if env.opts.target == stockTarget || e.everyone {
		return nil
	}
	handed, lost := gaps(env.journal.changesSince(began))
	if r.kind.orderly {
		env.handed, env.slowest = append(env.handed, handed...), env.slowest.Slower(env.machine)
	}
	worst := slices.Max(append(append(lost, handed...), 0))
	if !e.replaced || worst == 0 {
		return nil
	}
	return env.hold("takeover, from the last renewal", worst, calibrate.AfterRenewal(env.opts.timing.LeaseDuration), calibrate.TakeoverSteps, env.machine)
}

// gaps returns how long shards were unowned that were handed over, and that were lost.
func gaps(changes []change) (handed, lost []time.Duration) {
	for _, c := range changes {
		switch {
		case c.to == "":
		case c.lost:
			lost = append(lost, c.gap)
		case c.gap > 0:
			handed = append(handed, c.gap)
		}
	}
	slices.Sort(handed)
	slices.Sort(lost)
	return handed, lost
}

// errNoHandoffs means that the run's faults should have caused planned moves, and none was
// measured.
var errNoHandoffs = errors.New("no planned handoff was measured")

// handoffs returns an error if planned moves took longer than promised, given how slow the machine
// was before the slowest of those faults.
func (c *chaos) handoffs() error {
	if c.opts.target == stockTarget || !slices.ContainsFunc(c.outcomes, func(o outcome) bool { return faultByName(o.name).orderly }) {
		return nil
	}
	if len(c.handed) == 0 {
		return errNoHandoffs
	}
	s := newSpread("", c.handed)
	return c.hold(fmt.Sprintf("p99 of %d planned handoffs", s.n), s.p99, calibrate.Handoff, calibrate.HandoffSteps, c.slowest)
}

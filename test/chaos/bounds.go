package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flotilla-kube/flotilla/test/calibrate"
)

// calibrate measures the machine for as long as is left calm between two faults, under the load.
func (c *chaos) calibrate(ctx context.Context) error {
	machine, err := calibrate.Measure(ctx, calmTime, calibrate.Writes(c.client))
	if err != nil {
		return err
	}
	c.machine = machine
	return nil
}

// hold prints what was measured beside its bound, and returns an error if it is beyond and bounds
// are to be held.
func (w *world) hold(what string, took, promised time.Duration, steps int, on calibrate.Machine) error {
	bound := calibrate.Bound{What: what, Promised: promised, Steps: steps, On: on}
	w.out.printf("      %s: %v, %v", what, millis(took), bound)
	if !w.opts.bounds {
		return nil
	}
	return bound.Check(took)
}

// bounds returns an error if the victims' shards were without a holder for longer than a takeover
// takes. How long those were that were moved as planned is kept until the end, when there are
// enough of them.
func (r *round) bounds(e expectation, began time.Time) error {
	w := r.world
	if w.opts.target == stockTarget || e.everyone {
		return nil
	}
	handed, lost := gaps(w.journal.changesSince(began))
	if r.kind.orderly {
		w.handed, w.slowest = append(w.handed, handed...), w.slowest.Slower(w.machine)
	}
	worst := slices.Max(append(append(lost, handed...), 0))
	if !e.replaced || worst == 0 {
		return nil
	}
	return w.hold("takeover, from the last renewal", worst, calibrate.AfterRenewal(w.opts.timing.LeaseDuration, w.opts.timing.RetryPeriod), calibrate.TakeoverSteps, w.machine)
}

// gaps returns for how long nobody held what was handed over, and what was lost.
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

// errNoHandoffs is for a run whose faults should have moved something as planned.
var errNoHandoffs = errors.New("no planned handoff was measured")

// handoffs returns an error if planned moves took longer than is promised, on the slowest machine
// that this one was before them.
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

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flotilla-kube/flotilla/test/command"
	"github.com/flotilla-kube/flotilla/test/conformance/verdict"
)

// runDisturbed runs the list while members are killed and restarted, one at a time. It tries again
// what did not pass, alone, once the fleet is whole and left alone.
func (s *system) runDisturbed(ctx context.Context, list []string) (verdict.Run, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The context is separate so that the current step can finish when the suite ends.
	disturbing, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() {
		err := s.disturb(disturbing, ctx)
		if err != nil {
			// If the fleet does not become whole, every spec fails. Do not wait for all of them to
			// do so.
			cancel(err)
		}
		done <- err
	}()
	r := verdict.Run{System: s.name}
	began := time.Now()
	var err error
	r.First, err = s.runSuite(ctx, "suite", list, s.o.procs)
	r.Took = time.Since(began)
	stop()
	if err := errors.Join(<-done, err); err != nil {
		return r, err
	}
	return s.tryAgain(ctx, r, list)
}

// disturb carries out the schedule until ctx ends. A step that has begun is finished within the
// context whole.
func (s *system) disturb(ctx, whole context.Context) (err error) {
	began := time.Now()
	say := func(format string, args ...any) {
		fmt.Printf("%6.1fs %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	kills, rolls := 0, 0
	defer func() {
		fmt.Printf("disturbed by %d kills and %d rolling restarts, seed %d\n", kills, rolls, s.o.seed)
		if err == nil && kills+rolls == 0 && time.Since(began) > longestPause {
			err = fmt.Errorf("nothing was disturbed in %v", time.Since(began))
		}
	}()
	schedule := newSchedule(s.o.seed, len(s.members))
	for {
		d := schedule.next()
		if !command.Pause(ctx, d.after) {
			return nil
		}
		// The next step begins when the fleet is whole, so at most one member is away at a time.
		say("%s", d)
		step := s.kill
		if d.roll {
			step = s.roll
			rolls++
		} else {
			kills++
		}
		if err := step(whole, d); err != nil {
			return fmt.Errorf("%s: %w", d, err)
		}
		say("the fleet is whole")
	}
}

func (s *system) kill(ctx context.Context, d disturbance) error {
	m := s.members[d.victim]
	status, err := s.status(ctx)
	if err != nil {
		return err
	}
	for _, ring := range status.Rings {
		for _, shard := range ring.Shards {
			if shard.Holder == m.name() {
				s.gone[shard.Incarnation] = true
			}
		}
	}
	if err := m.kill(); err != nil {
		return err
	}
	// Start the member in any case, so that specs that are tried again find a whole fleet.
	command.Pause(ctx, d.away)
	if err := m.start(); err != nil {
		return err
	}
	return s.whole(ctx)
}

func (s *system) roll(ctx context.Context, _ disturbance) error {
	for _, m := range s.members {
		if err := m.leave(ctx); err != nil {
			return err
		}
		if err := m.start(); err != nil {
			return err
		}
		if err := s.whole(ctx); err != nil {
			return err
		}
	}
	return nil
}

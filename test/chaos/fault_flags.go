package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/flotilla-kube/flotilla/test/harness"
)

// twinFault starts a second process under the name of a running member.
type twinFault struct {
	env     *environment
	twin    *manager
	process *harness.Manager
}

// Begin implements fault.
func (f *twinFault) Begin(ctx context.Context) (expectation, error) {
	original, err := f.env.loadedVictim(ctx)
	if err != nil {
		return expectation{}, err
	}
	if f.twin, err = f.env.join("twin-of-"+original.name, original.member); err != nil {
		return expectation{}, err
	}
	p, err := f.twin.upOnce()
	if err != nil {
		return expectation{}, err
	}
	f.process = p
	limit := f.env.opts.timing.LeaseDuration + 2*f.env.opts.margin
	_, err = f.env.await(ctx, limit, "the twin says that it waits", p.Logs("Waiting for the member's Lease"))
	if err != nil {
		return expectation{}, err
	}
	return expectation{lasts: f.env.opts.timing.LeaseDuration + beyondLease, progress: true}, f.waits(ctx)
}

// waits returns an error unless the twin's process runs and is not ready.
func (f *twinFault) waits(ctx context.Context) error {
	if err := f.process.Running(); err != nil {
		return err
	}
	status, err := f.env.status(ctx, f.twin)
	if err == nil && status < http.StatusInternalServerError {
		err = fmt.Errorf("the twin says that it is ready: status %d", status)
	}
	return err
}

// End implements fault.
func (f *twinFault) End(ctx context.Context) error {
	if f.process == nil {
		return nil
	}
	return errors.Join(f.waits(ctx), f.twin.leave(ctx))
}

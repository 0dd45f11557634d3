package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// twinFault starts a second process under the name of a member that is there.
type twinFault struct {
	world   *world
	twin    *manager
	process *controlplane.Process
}

// Begin implements fault.
func (f *twinFault) Begin(ctx context.Context) (expectation, error) {
	original, err := f.world.loadedVictim(ctx)
	if err != nil {
		return expectation{}, err
	}
	if f.twin, err = f.world.join("twin-of-"+original.name, original.member); err != nil {
		return expectation{}, err
	}
	p, err := f.twin.upOnce()
	if err != nil {
		return expectation{}, err
	}
	f.process = p
	limit := f.world.opts.timing.LeaseDuration + 2*f.world.opts.margin
	_, err = f.world.await(ctx, limit, "the twin says that it waits", func(context.Context) error {
		return logHas(p, "Waiting for the member's Lease")
	})
	if err != nil {
		return expectation{}, err
	}
	return expectation{lasts: f.world.opts.timing.LeaseDuration + beyondLease, progress: true}, f.waits(ctx)
}

// waits returns an error unless the twin's process is there and says that it is not ready.
func (f *twinFault) waits(ctx context.Context) error {
	select {
	case <-f.process.Done():
		return fmt.Errorf("the twin ended by itself: %w, see %s", f.process.Wait(), f.process.LogPath())
	default:
	}
	status, err := f.world.status(ctx, f.twin)
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

// logHas returns nil if a line of the process's log has all of the texts.
func logHas(p *controlplane.Process, texts ...string) error {
	log, err := os.ReadFile(p.LogPath())
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(log)) {
		missing := false
		for _, text := range texts {
			missing = missing || !strings.Contains(line, text)
		}
		if !missing {
			return nil
		}
	}
	return fmt.Errorf("%s has no line with %q", p.LogPath(), texts)
}

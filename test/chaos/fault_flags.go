package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// twinFault starts a second process under the name of a member that is there.
type twinFault struct {
	world *world
	twin  *manager
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
	limit := f.world.opts.timing.LeaseDuration + 2*f.world.opts.margin
	_, err = f.world.await(ctx, limit, "the twin says that it waits", func(context.Context) error {
		return logHas(p, "Waiting for the member's Lease")
	})
	if err != nil {
		return expectation{}, err
	}
	if err := f.world.readyOne(ctx, f.twin); err == nil {
		return expectation{}, errors.New("the twin says that it is ready")
	}
	return expectation{lasts: f.world.opts.timing.LeaseDuration + beyondLease, progress: true}, nil
}

// End implements fault.
func (f *twinFault) End(ctx context.Context) error { return f.twin.leave(ctx) }

// shardsFault starts a member with another number of shards, which must refuse.
type shardsFault struct {
	world *world
	other *manager
}

// Begin implements fault.
func (f *shardsFault) Begin(ctx context.Context) (expectation, error) {
	if _, err := f.world.loadedVictim(ctx); err != nil {
		return expectation{}, err
	}
	shards := f.world.opts.shards + 1 + f.world.random.IntN(7)
	var err error
	// The last of two equal flags counts.
	if f.other, err = f.world.join(fmt.Sprintf("other-%d", shards), fmt.Sprintf("other-%d", shards), fmt.Sprintf("--shards=%d", shards)); err != nil {
		return expectation{}, err
	}
	p, err := f.other.upOnce()
	if err != nil {
		return expectation{}, err
	}
	limit := f.world.opts.timing.LeaseDuration + 2*f.world.opts.margin
	took, err := f.world.await(ctx, limit, "the member with other shards ends", func(context.Context) error {
		select {
		case <-p.Done():
			return nil
		default:
			return errors.New("it runs")
		}
	})
	if err != nil {
		return expectation{}, err
	}
	if p.Wait() == nil {
		return expectation{}, fmt.Errorf("a member with %d shards ended with status 0, see %s", shards, p.LogPath())
	}
	f.world.out.printf("      a member with --shards=%d ended after %.1f s: %v", shards, took.Seconds(), p.Wait())
	return expectation{lasts: time.Second, progress: true}, logHas(p, fmt.Sprintf("%d shards", shards), "--shards")
}

// End implements fault.
func (f *shardsFault) End(context.Context) error { return f.other.kill() }

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

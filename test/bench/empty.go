package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/flotilla-kube/flotilla/test/bench/measure"
	"github.com/flotilla-kube/flotilla/test/bench/result"
	"github.com/flotilla-kube/flotilla/test/bench/scenario"
	"github.com/flotilla-kube/flotilla/test/bench/system"
	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// footprint is the memory of a system's processes on a cluster without objects, by name.
type footprint map[string]struct{ rss, heap uint64 }

// measureEmpty measures each kind and size of system once on an empty cluster, with each state of
// the feature gate that the runs have.
func (b *bench) measureEmpty(ctx context.Context) error {
	for _, j := range b.jobs() {
		s := j.system
		s.Rate = result.RateDefault
		if _, done := b.empty[s]; done || s.Kind == result.Ceiling {
			continue
		}
		j := job{scenario: scenario.IdleCost, system: s}
		err := b.onPlane(ctx, j, func(plane *controlplane.ControlPlane) (err error) {
			running, err := b.start(ctx, j, plane)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, running.Stop()) }()
			if err := running.Quiet(ctx); err != nil {
				return err
			}
			b.empty[s], err = look(ctx, running)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s on an empty cluster: %w", nameOf(s), err)
		}
		fmt.Printf("%s on an empty cluster: %s\n", nameOf(s), b.empty[s])
	}
	return nil
}

func look(ctx context.Context, running *system.Running) (footprint, error) {
	f := footprint{}
	for _, p := range running.Processes() {
		memory, err := measure.MemoryOf(p.Pid())
		if err != nil {
			return nil, err
		}
		heap, err := running.Heap(ctx, p)
		if err != nil {
			return nil, err
		}
		f[p.Name] = struct{ rss, heap uint64 }{memory.RSS, heap}
	}
	return f, nil
}

// String returns the largest figures of any process.
func (f footprint) String() string {
	rss, heap := uint64(0), uint64(0)
	for _, p := range f {
		rss, heap = max(rss, p.rss), max(heap, p.heap)
	}
	return fmt.Sprintf("RSS %s, heap %s in the largest process", megabytes(rss), megabytes(heap))
}

// addEmpty adds the figures to a run of the same system.
func (b *bench) addEmpty(run *result.Run) {
	s := run.System
	s.Rate = result.RateDefault
	for i := range run.Processes {
		if p, found := b.empty[s][run.Processes[i].Name]; found {
			run.Processes[i].EmptyRSS, run.Processes[i].EmptyHeap = &p.rss, &p.heap
		}
	}
}

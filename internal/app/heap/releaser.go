package heap

import (
	"context"
	"runtime/debug"
	"time"

	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
)

const (
	// Quiet is how long nothing must have come or gone.
	Quiet = 10 * time.Second
	// Apart is the least time between two releases, and the longest that restlessness puts one off.
	Apart = time.Minute
)

// Releaser gives memory back. Its methods are safe for concurrent use.
type Releaser struct {
	clock   election.Clock
	release func()
	stirred chan struct{}
}

// NewReleaser returns a Releaser that calls release, by default [debug.FreeOSMemory].
func NewReleaser(clock election.Clock, release func()) *Releaser {
	if release == nil {
		release = debug.FreeOSMemory
	}
	return &Releaser{clock: clock, release: release, stirred: make(chan struct{}, 1)}
}

// Stir says that something large has come or gone. It does not block.
func (r *Releaser) Stir() {
	select {
	case r.stirred <- struct{}{}:
	default:
	}
}

// Observe stirs when an event of the fleet means that caches have been filled or left. It does not block.
func (r *Releaser) Observe(e fleet.Event) {
	switch e.Type {
	case fleet.EventPrepared, fleet.EventRunning, election.EventEnded, election.EventReturned, fleet.EventForgotten:
		r.Stir()
	}
}

// Run gives memory back until ctx ends.
func (r *Releaser) Run(ctx context.Context) {
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.stirred:
		}
		if !r.settle(ctx, last) {
			return
		}
		r.release()
		last = r.clock.Now()
		klog.FromContext(ctx).V(2).Info("Gave free memory back to the system")
	}
}

// settle returns when memory is to be given back, and reports whether that is so: it is not when ctx has ended.
func (r *Releaser) settle(ctx context.Context, last time.Time) bool {
	first := r.clock.Now()
	stirred := first
	for {
		wait := due(first, stirred, last).Sub(r.clock.Now())
		if wait <= 0 {
			return true
		}
		timer := r.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-r.stirred:
			stirred = r.clock.Now()
		case <-timer.C():
		}
		timer.Stop()
	}
}

// due returns when memory is to be given back if first and stirred are when something first and last came or went since it was
// given back, at last; zero if it never was.
func due(first, stirred, last time.Time) time.Time {
	at := stirred.Add(Quiet)
	if latest := first.Add(Apart); at.After(latest) {
		at = latest
	}
	if again := last.Add(Apart); !last.IsZero() && at.Before(again) {
		at = again
	}
	return at
}

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
	// Quiet is how long nothing may have come or gone before a release.
	Quiet = 10 * time.Second
	// Apart is the minimum time between two releases, and the longest that changes can delay one.
	Apart = time.Minute
)

// Releaser returns free memory to the system. Its methods are safe for concurrent use.
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

// Stir records that something large has come or gone. It does not block.
func (r *Releaser) Stir() {
	select {
	case r.stirred <- struct{}{}:
	default:
	}
}

// Observe calls Stir when an event of the fleet means that caches have been filled or left. It does
// not block.
func (r *Releaser) Observe(e fleet.Event) {
	switch e.Type {
	case fleet.EventPrepared, fleet.EventRunning, election.EventEnded, election.EventReturned, fleet.EventForgotten:
		r.Stir()
	}
}

// Run releases memory until ctx ends.
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

// settle waits until memory should be released, and returns true; false when ctx has ended.
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

// due returns when memory should be released. first and stirred are when something first and last
// came or went since the last release, at last; zero if there was none.
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

package heap

import (
	"context"
	"os"
	"runtime/debug"
	"sync"
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

// Percent is the GC percent from the beginning of a fill to the next release, unless the environment
// has a GOGC. Go's default is 100. The garbage of lists is then collected once the heap has grown
// by a half, and not by its whole.
const Percent = 50

// Releaser returns free memory to the system, and makes Go collect sooner while caches are filled.
// Its methods are safe for concurrent use.
type Releaser struct {
	clock   election.Clock
	release func()
	percent func(int) int
	stirred chan struct{}

	mu sync.Mutex
	// fills counts the fills in progress. eager says that Percent applies, and usual is what applied
	// before.
	fills int
	eager bool
	usual int
}

// NewReleaser returns a Releaser that calls release, by default [debug.FreeOSMemory].
func NewReleaser(clock election.Clock, release func()) *Releaser {
	if release == nil {
		release = debug.FreeOSMemory
	}
	percent := debug.SetGCPercent
	if _, set := os.LookupEnv("GOGC"); set {
		percent = func(int) int { return 0 }
	}
	return &Releaser{clock: clock, release: release, percent: percent, stirred: make(chan struct{}, 1)}
}

// Fill records that caches are being filled, until done is called for the first time. It does not
// block.
func (r *Releaser) Fill() (done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fills++; !r.eager {
		r.eager, r.usual = true, r.percent(Percent)
	}
	r.Stir()
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.fills--
		r.Stir()
	})
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
		r.end()
		last = r.clock.Now()
		klog.FromContext(ctx).V(2).Info("Gave free memory back to the system")
	}
}

// end releases memory after the usual GC percent has been restored.
func (r *Releaser) end() {
	r.mu.Lock()
	if r.eager {
		r.eager = false
		r.percent(r.usual)
	}
	r.mu.Unlock()
	r.release()
}

// fill reports whether caches are being filled.
func (r *Releaser) fill() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fills > 0
}

// settle waits until memory should be released, and returns true; false when ctx has ended.
func (r *Releaser) settle(ctx context.Context, last time.Time) bool {
	first := r.clock.Now()
	stirred := first
	for {
		wait := due(first, stirred, last, r.fill()).Sub(r.clock.Now())
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
// came or went since the last release, at last; zero if there was none. fill says that caches are
// being filled.
func due(first, stirred, last time.Time, fill bool) time.Time {
	at := stirred.Add(Quiet)
	if latest := first.Add(Apart); fill || at.After(latest) {
		at = latest
	}
	if again := last.Add(Apart); !last.IsZero() && at.Before(again) {
		at = again
	}
	return at
}

package heap

import (
	"context"
	"os"
	"runtime"
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
	// Longest is the longest that fills can delay a release: a cache that may not be listed never
	// fills.
	Longest = 10 * time.Minute
)

const (
	// Percent is the GC percent while caches are filled, and for Calm after that, unless the
	// environment has a GOGC. Go's default is 100. The garbage of lists is then collected when the
	// heap has grown by half, instead of when it has doubled.
	Percent = 50
	// Calm is how long no cache may have been filled before the usual GC percent applies again.
	Calm = 2 * time.Second
)

// Releaser returns free memory to the system, and makes Go collect sooner while caches are filled.
// Its methods are safe for concurrent use.
type Releaser struct {
	clock   election.Clock
	release func()
	// collect collects garbage.
	collect func()
	// fixed says that the operator has set the GC percent.
	fixed   bool
	stirred chan struct{}

	mu sync.Mutex
	// fills counts the fills in progress, and ended is when the last one ended. eager is set while
	// Percent applies, and usual is what applied before.
	fills int
	ended time.Time
	eager bool
	usual int
}

// NewReleaser returns a Releaser that calls release, by default [debug.FreeOSMemory].
func NewReleaser(clock election.Clock, release func()) *Releaser {
	if release == nil {
		release = debug.FreeOSMemory
	}
	return &Releaser{clock: clock, release: release, collect: runtime.GC, fixed: os.Getenv("GOGC") != "", stirred: make(chan struct{}, 1)}
}

// Fill records that caches are being filled, until done is called for the first time. It does not
// block.
func (r *Releaser) Fill() (done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fills++; !r.eager && !r.fixed {
		r.eager, r.usual = true, debug.SetGCPercent(Percent)
	}
	r.Stir()
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.fills--; r.fills == 0 {
			r.ended = r.clock.Now()
		}
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

// Observe calls Stir when an event of the fleet means that controllers have begun, or that caches
// have left. It does not block.
func (r *Releaser) Observe(e fleet.Event) {
	switch e.Type {
	case fleet.EventRunning, election.EventEnded, election.EventReturned, fleet.EventForgotten:
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
	r.restoreLocked()
	r.mu.Unlock()
	r.release()
}

func (r *Releaser) filling() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fills > 0
}

// calm restores the usual GC percent once no cache has been filled for Calm. It returns how long
// that takes; false if nothing is to be restored, or caches are being filled. It first collects
// what lists have left behind. Otherwise the heap could grow to twice what it was in the middle of
// a list.
func (r *Releaser) calm() (wait time.Duration, soon bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.eager || r.fills > 0 {
		return 0, false
	}
	if wait = r.ended.Add(Calm).Sub(r.clock.Now()); wait > 0 {
		return wait, true
	}
	r.mu.Unlock()
	r.collect() // takes long, and a fill must not wait for it
	r.mu.Lock()
	if r.fills == 0 {
		r.restoreLocked()
	}
	return 0, false
}

// restoreLocked makes the usual GC percent apply.
func (r *Releaser) restoreLocked() {
	if r.eager {
		r.eager = false
		debug.SetGCPercent(r.usual)
	}
}

// settle waits until memory should be released, and returns true; false when ctx has ended.
func (r *Releaser) settle(ctx context.Context, last time.Time) bool {
	began := r.clock.Now()
	first, stirred := began, began
	for filled := false; ; {
		filling := r.filling()
		if filling || filled {
			first = r.clock.Now()
		}
		filled = filling
		wait := due(began, first, stirred, last, filling).Sub(r.clock.Now())
		if wait <= 0 {
			return true
		}
		if calm, soon := r.calm(); soon {
			wait = min(wait, calm)
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

// due returns when memory should be released. began and stirred are when something first and last
// came or went since the last release, at last; zero if there was none. filling says that caches
// are being filled; first is the end of the last fill, or began if there was none.
func due(began, first, stirred, last time.Time, filling bool) time.Time {
	at := stirred.Add(Quiet)
	if latest := first.Add(Apart); at.After(latest) {
		at = latest
	}
	if latest := began.Add(Longest); filling || at.After(latest) {
		at = latest
	}
	if again := last.Add(Apart); !last.IsZero() && at.Before(again) {
		at = again
	}
	return at
}

package heap

import (
	"context"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
)

// TestReleases checks when memory is released, for calls of Stir and for fills at the given
// seconds.
func TestReleases(t *testing.T) {
	restless := make([]int, 0, 20)
	for at := 0; at < 100; at += 5 {
		restless = append(restless, at)
	}
	var fills [][2]int
	for at := 0; at < 650; at += 8 {
		fills = append(fills, [2]int{at, at + 1})
	}
	for name, test := range map[string]struct {
		stirs []int
		fills [][2]int
		want  []int
	}{
		"nothing":                 {},
		"one":                     {[]int{5}, nil, []int{15}},
		"a start":                 {[]int{1, 3, 8, 12}, nil, []int{22}},
		"again, too soon":         {[]int{0, 20}, nil, []int{10, 70}},
		"again, later":            {[]int{0, 100}, nil, []int{10, 110}},
		"no end of moves":         {restless, nil, []int{60, 120}},
		"while it is held":        {[]int{0, 20, 69}, nil, []int{10, 79}},
		"a fill":                  {nil, [][2]int{{1, 4}}, []int{14}},
		"a small and a large one": {[]int{2}, [][2]int{{1, 2}, {1, 30}}, []int{40}},
		"a long one":              {nil, [][2]int{{5, 500}}, []int{510}},
		"one without end":         {[]int{1000}, [][2]int{{5, 1100}}, []int{605, 1110}},
		"no end of fills":         {nil, fills, []int{600, 660}},
		"one amid moves":          {restless, [][2]int{{58, 70}}, []int{105}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				var got []int
				began := time.Now()
				r := NewReleaser(clock.RealClock{}, func() { got = append(got, int(time.Since(began).Seconds())) })
				var all sync.WaitGroup
				all.Go(func() { r.Run(ctx) })
				at := func(second int, do func()) {
					all.Go(func() { time.Sleep(time.Duration(second) * time.Second); do() }) // virtual
				}
				for _, second := range test.stirs {
					at(second, r.Stir)
				}
				for _, fill := range test.fills {
					at(fill[0], func() { at(fill[1]-fill[0], r.Fill()) })
				}
				time.Sleep(20 * time.Minute) // virtual
				cancel()
				all.Wait()
				if !slices.Equal(got, test.want) {
					t.Errorf("released at %v s, want %v", got, test.want)
				}
			})
		})
	}
}

// TestCollectsSooner checks that the GC percent is lower from the beginning of a fill until a
// moment after the last one has ended, and that of the operator at all other times. A collection
// comes before it rises.
func TestCollectsSooner(t *testing.T) {
	for name, test := range map[string]struct {
		env                           string
		before, during, late, release int
	}{
		"by default":            {"", 100, Percent, Percent, 100},
		"the operator's counts": {"100", 100, 100, 100, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOGC", test.env)
			synctest.Test(t, func(t *testing.T) {
				defer debug.SetGCPercent(debug.SetGCPercent(100))
				require := func(when string, want int) {
					t.Helper()
					got := debug.SetGCPercent(100)
					debug.SetGCPercent(got)
					if got != want {
						t.Errorf("%s: %d %%, want %d", when, got, want)
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				released, collected := 0, 0
				r := NewReleaser(clock.RealClock{}, func() { released++; require("at a release", test.release) })
				r.collect = func() { collected++; runtime.GC() }
				var running sync.WaitGroup
				running.Go(func() { r.Run(ctx) })
				for range 2 {
					require("before a fill", test.before)
					first, second := r.Fill(), r.Fill()
					first()
					first() // It counts once.
					require("during a fill", test.during)
					time.Sleep(2 * Apart) // virtual
					require("late in a fill", test.late)
					second()
					time.Sleep(Calm / 2) // virtual
					require("a moment after it", test.late)
					third := r.Fill()
					time.Sleep(Calm) // virtual
					require("in one that came soon", test.late)
					third()
					before := collected
					time.Sleep(2 * Calm) // virtual
					require("after the last", test.before)
					if collected > before != (test.env == "") {
						t.Errorf("garbage was collected %d times", collected-before)
					}
					time.Sleep(Apart) // virtual
				}
				require("after a release", test.before)
				cancel()
				running.Wait()
				if released != 2 {
					t.Errorf("released %d times, want 2", released)
				}
			})
		})
	}
}

// TestFillDoesNotWait begins a fill during the collection that ends the last one. It does not wait,
// and garbage is collected sooner until it has ended.
func TestFillDoesNotWait(t *testing.T) {
	t.Setenv("GOGC", "")
	synctest.Test(t, func(t *testing.T) {
		defer debug.SetGCPercent(debug.SetGCPercent(100))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		collecting, collected := make(chan struct{}), make(chan struct{})
		r := NewReleaser(clock.RealClock{}, func() {})
		r.collect = func() { close(collecting); <-collected }
		go r.Run(ctx)
		r.Fill()()
		<-collecting
		r.Fill()
		close(collected)
		synctest.Wait()
		got := debug.SetGCPercent(100)
		if debug.SetGCPercent(got); got != Percent {
			t.Errorf("during a fill: %d %%, want %d", got, Percent)
		}
	})
}

// TestEndsWhileItWaits checks that Run returns when ctx ends, and releases nothing after that.
func TestEndsWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), Quiet/2)
		defer cancel()
		r := NewReleaser(clock.RealClock{}, func() { t.Error("released") })
		r.Stir()
		r.Run(ctx)
	})
}

// TestObserves checks that events that fill or empty caches count, and a renewal does not.
func TestObserves(t *testing.T) {
	for kind, want := range map[election.EventType]int{fleet.EventRunning: 1, fleet.EventForgotten: 1, election.EventReturned: 1, election.EventRenewed: 0} {
		r := NewReleaser(clock.RealClock{}, nil)
		r.Observe(fleet.Event{Event: election.Event{Type: kind}})
		r.Observe(fleet.Event{Event: election.Event{Type: kind}}) // This must not block.
		if got := len(r.stirred); got != want {
			t.Errorf("%s stirs %d times, want %d", kind, got, want)
		}
	}
}

package heap

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
)

// TestReleases checks when memory is released, for calls of Stir at the given seconds.
func TestReleases(t *testing.T) {
	restless := make([]int, 0, 20)
	for at := 0; at < 100; at += 5 {
		restless = append(restless, at)
	}
	for name, test := range map[string]struct{ stirs, want []int }{
		"nothing":          {nil, nil},
		"one":              {[]int{5}, []int{15}},
		"a start":          {[]int{1, 3, 8, 12}, []int{22}},
		"again, too soon":  {[]int{0, 20}, []int{10, 70}},
		"again, later":     {[]int{0, 100}, []int{10, 110}},
		"no end of moves":  {restless, []int{60, 120}},
		"while it is held": {[]int{0, 20, 69}, []int{10, 79}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				began := time.Now()
				var got []int
				r := NewReleaser(clock.RealClock{}, func() { got = append(got, int(time.Since(began).Seconds())) })
				ended := make(chan struct{})
				go func() { r.Run(ctx); close(ended) }()
				for _, at := range test.stirs {
					time.Sleep(time.Until(began.Add(time.Duration(at) * time.Second)))
					r.Stir()
				}
				time.Sleep(10 * time.Minute)
				cancel()
				<-ended
				if !slices.Equal(got, test.want) {
					t.Errorf("released at %v s, want %v", got, test.want)
				}
			})
		})
	}
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

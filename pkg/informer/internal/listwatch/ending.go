package listwatch

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// ending is the clock of a Reflector: with it, no pause outlasts ctx.
//
// A Reflector that is refused a list in the form of a watch pauses before the next attempt, for up
// to a minute, without checking whether it should end (reflector.go: watchList). Anyone who waits
// for a shard's informers to end would wait for that.
type ending struct {
	clock.RealClock
	ctx context.Context // the context of the Reflector's run
}

// After implements clock.Clock.
func (e ending) After(d time.Duration) <-chan time.Time {
	over := make(chan time.Time, 1)
	pause, cancel := context.WithTimeout(e.ctx, d)
	context.AfterFunc(pause, func() {
		cancel()
		over <- e.Now()
	})
	return over
}

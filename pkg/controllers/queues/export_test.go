package queues

// This file must import nothing: see the package comment.

// Register registers the series for /metrics.
var Register = register

// Goroutine returns the number of the calling goroutine.
var Goroutine = goroutine

// Tick is called by client-go twice a second for each queue.
var Tick = ticker{}.Set

// Wait observes how long an item has waited.
func (g *Group) Wait(seconds float64) { g.waited.Observe(seconds) }

// Known returns the number of queues with a name, and the number of goroutines, that the package
// tracks.
func Known(name string) (queues, goroutines int) {
	return len(works.of[name]), len(groups.of)
}

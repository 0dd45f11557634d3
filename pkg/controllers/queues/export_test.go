package queues

// This file must import nothing: see the package comment.

// Register puts the series on /metrics.
var Register = register

// Goroutine returns the number of the calling goroutine.
var Goroutine = goroutine

// Tick is what client-go calls twice a second for each queue.
var Tick = ticker{}.Set

// Wait observes how long an item has waited.
func (g *Group) Wait(seconds float64) { g.waited.Observe(seconds) }

// Known returns of how many queues of a name, and of how many goroutines, something is known.
func Known(name string) (queues, goroutines int) {
	return len(works.of[name]), len(groups.of)
}

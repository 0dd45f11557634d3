// Package scenario is the work that a benchmark gives to controller managers: Deployments to create
// and change, namespaces and owners to clean up, or nothing at all. The same calls in the same
// order, whatever the system is.
//
// A Scenario has three parts, of which only the last is measured:
//
//	Prepare (before the system starts) -> Ready (the system is whole) -> Work
//
// Work is done when a watcher has seen every object in its wanted state. Nothing is verified beyond
// that.
package scenario

// Package scenario is the work that a benchmark gives to controller managers: Deployments to create
// and change, namespaces to equip, namespaces and owners to clean up, or nothing at all. It makes
// the same calls in the same order, whatever the system.
//
// A Scenario has three parts, of which only the last is measured:
//
//	Prepare (before the system starts) -> Ready (the system is whole) -> Work
//
// Work is done when a watcher has seen every object in its wanted state. Nothing else is verified.
package scenario

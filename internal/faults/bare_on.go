//go:build bare

package faults

// Bare says that a member measures and tells nothing of the fleet: no metrics of its own, no events, no log lines of them, no
// journal.
const Bare = true

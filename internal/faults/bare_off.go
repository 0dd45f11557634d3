//go:build !bare

package faults

// Bare says that a member does not observe the fleet: no metrics of its own, no events, no log
// lines for them, no journal.
const Bare = false

// Package events turns what happens to a member's claims into one log line, one Kubernetes event on
// the Lease, and one count.
//
// The text of an event is a pure function of the event; [Recorder] is the shell around it. A
// planned move of a shard writes two lines, one on each side. "Handed over shard" says to whom, and
// how long draining and releasing took. "Acquired shard" says how the shard came, from whom, and
// for how long nobody could write on it. The second line is written when the controllers run, and
// not before.
//
// An idle fleet logs nothing at the default verbosity. Steps in between are at verbosity 1,
// frequent ones at 2. A request that fails again and again is logged once for each kind of failure,
// at the default verbosity.
package events

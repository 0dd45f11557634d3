// Package events makes of what happens to a member's claims one log line, one Kubernetes event on the Lease, and one count.
//
// What a thing that happened reads like is a pure function of the event; [Recorder] is the shell around it. A planned move of
// a shard reads as two lines, one on each side: "Handed over shard" says to whom, and how long draining and releasing took,
// "Acquired shard" how it came, from whom, and for how long nobody could write on it. The second is
// said when the controllers run, and not before.
//
// A fleet that is at rest logs nothing at the default verbosity. Steps in between are at verbosity 1, what comes often at 2.
// A request that fails again and again is logged once, at the default verbosity, for each kind of failure.
package events

// Package calibrate compares measurements with what is promised, taking the machine's speed into
// account.
//
// A promise such as "a planned handoff leaves a shard without a holder for 250 ms at most" is for a
// machine with time to spare. Before a test asserts it, Measure writes to the API server for a few
// seconds and measures how late timers are, under the machine's other load. A Bound is the promise
// plus the extra time of its steps on that machine; its messages have both.
//
// The promises are constants of this package, and are in docs/design/ownership.md and
// docs/migration.md with the same figures; a test compares them.
package calibrate

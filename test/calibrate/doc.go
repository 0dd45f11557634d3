// Package calibrate holds what was measured against what is promised, with regard to the machine
// that it was measured on.
//
// A promise such as "a planned handoff leaves a shard without a holder for 250 ms at most" is for a
// machine with time to spare. Before it is asserted, Measure writes to the API server for a few
// seconds and looks at how late timers are, beside whatever else the machine does. A Bound is the
// promise and what its steps may take longer on that machine; its messages name both.
//
// The promises are constants of this package, and stand in docs/design/ownership.md and
// docs/migration.md with the same figures; a test compares them.
package calibrate

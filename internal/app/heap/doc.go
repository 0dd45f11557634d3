// Package heap lowers the peak of memory while caches are filled, and gives memory back to the
// operating system once a process has become quiet.
//
// Decoding a list leaves garbage behind, and so does a shard that goes, with its caches. Go keeps
// the space for later: a process that has just started, or handed shards over, takes up to twice
// what it holds, and gives the rest back over many minutes. [Releaser] gives it back at once, when
// nothing has come or gone for some seconds.
//
// # Guarantees
//
//   - After a start or a move of shards, the surplus is given back within [Apart] and a collection,
//     even if moves never stop.
//   - Nothing is given back while caches are being filled, unless that takes longer than [Apart]. A
//     shard that is filled before others does not make the process pause for them.
//   - It runs at most once in [Apart]. It costs a collection, some 100 ms of CPU for each 500 MB of
//     live heap.
//   - From the beginning of a fill until memory has been given back, Go collects garbage when the
//     heap has grown by [Percent], unless the operator has set GOGC. That costs CPU, and memory
//     limits are set by peaks.
//
// # Non-guarantees
//
//   - It does not bound the peak. GOMEMLIMIT does: docs/tune.md.
//   - Memory that something still refers to stays.
package heap

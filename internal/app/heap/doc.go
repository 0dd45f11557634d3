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
//   - Nothing is given back while caches are being filled, unless changes and fills have gone on
//     for [Longest]. A small shard that is full early does not cause a collection while others are
//     being filled.
//   - After a start or a move of shards, the surplus is given back within [Apart] of the last fill,
//     plus a collection, even if moves never stop; within [Longest] even if a fill never ends.
//   - A release runs at most once in [Apart] and costs a collection, some 100 ms of CPU for each
//     500 MB of live heap.
//   - While caches are filled, and for [Calm] after that, Go collects garbage when the heap has
//     grown by [Percent], unless the operator has set GOGC. That costs CPU and lowers the peak, by
//     which memory limits are set. A collection ends it: one for each time that no cache has been
//     filled for [Calm].
//
// # Non-guarantees
//
//   - It does not bound the peak. GOMEMLIMIT does: docs/tune.md.
//   - Caches that controllers ask for while they run do not count as being filled: those of the
//     garbage collector and of resource quotas.
//   - Memory that something still refers to stays.
package heap

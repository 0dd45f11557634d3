// Package heap gives memory back to the operating system once a process has become quiet.
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
//   - It runs at most once in [Apart]. It costs a collection, some 100 ms of CPU for each 500 MB of
//     live heap.
//
// # Non-guarantees
//
//   - It does not lower the peak. GOMEMLIMIT bounds that: docs/tune.md.
//   - Memory that something still refers to stays.
package heap

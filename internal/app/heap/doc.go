// Package heap gives memory back to the operating system once a process has become quiet.
//
// Lists leave behind what they were decoded from, and a shard that goes leaves its caches. Go keeps the space for later: a
// process that has just started, or handed shards over, takes up to twice what it holds, and gives the rest back over many
// minutes. [Releaser] has it given back at once, when nothing has come or gone for some seconds.
//
// # Guarantees
//
//   - After a start or a move of shards, the surplus is given back within [Apart] and a collection, even if there is no end of moves.
//   - Never more often than once in [Apart]. It costs a collection, some 100 ms of CPU for each 500 MB that are live.
//
// # Non-guarantees
//
//   - The peak is no lower for it. GOMEMLIMIT is what bounds that: docs/tune.md.
//   - What is still referred to stays, whoever has forgotten it.
package heap

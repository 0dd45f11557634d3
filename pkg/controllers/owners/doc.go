// Package owners wraps the informers of upstream's garbage collector. At the start its handlers
// receive what there is kind by kind, owners before what they own, and it decides nothing by a
// graph that lacks dependents.
//
// The garbage collector asks the API server for each owner that it first learns of from a
// dependent, and for that owner's own owners, under its client's limit (graph_builder.go:
// addDependentToOwners); collection waits behind that. In stock, where all kinds are listed at the
// same time, the long list of pods comes last. Here pods are often cached already, while
// ReplicaSets are only then listed by their metadata: the collector would ask for each of them.
//
// The order is read from the objects, and not fixed (ReplicaSets and Jobs before pods, say): that
// would be enough for built-in kinds, but nobody knows beforehand who owns the objects of a custom
// kind, or what these own.
//
// The garbage collector's handlers only put events into a queue, from which one worker builds the
// graph. So a controller has synced only when the worker has processed what its handlers received;
// then garbage is collected. Deletions that are decided by an owner's dependents are withheld from
// the handlers until the graph is complete.
//
// # Guarantees
//
//   - The handlers of kinds that are asked for before a call of Start belong together. They receive
//     objects once all of these kinds have synced, or after 10 s from those that have; the rest
//     follow as they sync. Of two kinds, the one that owns objects of the other comes first.
//   - A controller has synced once its handlers have received what there is, and the graph contains
//     it.
//   - Deletions that depend on dependents arrive when the graph contains all kinds that were asked
//     for, and not while more are added later. A kind that cannot be read holds them up for 30 s:
//     as long as stock waits for it.
//   - Notifications of one object arrive in order.
//   - Nothing starts after Close, which returns when every goroutine has ended.
//
// # Non-guarantees
//
//   - Later events have no order between kinds.
//   - Who owns whom is read from the caches once, before the first handler receives anything. Where
//     kinds own each other in a circle, one of them comes first anyway.
//   - The collector still asks for owners of a kind that takes longer than 10 s, and for an owner
//     that comes after a dependent of its own kind: objects of one kind have no order.
//   - A handler that waits for its turn cannot be removed. It goes with the informers.
package owners

// Package store is the core of an informer: what it holds, whom it notifies, and who follows it. It
// does not read: a [Source] fills it through a [Sink].
//
// An [Informer] implements cache.SharedIndexInformer. Other informers of the process may follow it
// ([Informer.Follow]): they receive each of its changes under its mutex, as far as their filters
// let them through, so that both are always at the same version, and hold the same objects. An
// informer of slim copies ([Copies]) holds the objects of the ranges that follow it whole.
//
// # Guarantees
//
//   - What the filter does not let through is never stored, indexed or handed to a handler.
//   - A handler sees its notifications one after the other and in order, and never before the store
//     does. Handlers do not wait for each other.
//   - A follower never goes back in time: it follows only what has seen as much as it has.
//   - RunWithContext returns only after all goroutines of the informer have, and the last call of
//     each handler that has not been removed.
//
// # Non-guarantees
//
//   - Sinks of one informer must not be used at the same time: the source sees to that.
//   - Whether what it holds is of the present is the source's concern.
package store

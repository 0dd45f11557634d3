// Package informer gives one shard its caches: a SharedInformerFactory and a
// metadata informer factory that hold what lies in the shard's range and
// nothing else.
//
// A factory decides kind by kind:
//
//   - A namespaced kind gets an informer of this shard alone. It lists and
//     watches with the API server's shardSelector where a probe has shown that
//     the server honours it (KEP-5866), and filters again on the client always.
//   - A cluster-scoped kind is one informer for the whole process, taken from a
//     [Pool] and shared by all shards. The shard sees it through a view; what it
//     registered there goes when the shard goes.
//   - Namespace objects are cluster-scoped, but each shard sees only those whose
//     name hashes into its range. They are derived from the process's one
//     Namespace informer and cost no further watch.
//   - A factory whose range is everything takes all its informers from the pool:
//     the groups of cluster-scoped controllers that one process runs share one
//     cache of all pods.
//
// # Guarantees
//
//   - Nothing outside the range is ever stored, indexed or handed to a handler,
//     whatever the server sends.
//   - The caches of shards whose ranges partition the keyspace partition the
//     unfiltered cache: every object is in exactly one of them.
//   - A handler sees its notifications one after the other and in order; handlers
//     do not wait for each other. The store is never older than a notification
//     that was delivered. (As client-go's shared informers.)
//   - Shutdown returns only after every goroutine, handler, index registration
//     and pool reference of the factory has gone; informers that other shards use
//     go on undisturbed.
//
// # Non-guarantees
//
//   - No ordering between kinds, between shards, or between handlers.
//   - A LIST that is under way at the end is cancelled but not waited for: client-go's
//     Reflector sends it from a goroutine that it does not keep.
//   - SetWatchErrorHandler is not supported; watch errors are logged by client-go.
//   - A view does not stop the informer behind it, and cannot set its transform.
//
// # Why not client-go's sharedIndexInformer
//
// A shard has about 50 informers and 80 handlers. client-go spends 7 goroutines
// on each informer and 2 goroutines and a ring of 1,024 slots on each handler,
// whether anything happens or not; that was half of an idle shard's cost. Here a
// handler has a goroutine only while it has something to deliver, and resync is a
// timer. Listing, watching, retrying and indexing are still client-go's Reflector
// and Indexer. A differential test holds the notifications against those of
// client-go's informer.
package informer

// Package informer gives one shard its caches: a SharedInformerFactory, and informers of any other
// resource, that hold only objects in the shard's range.
//
// A factory decides kind by kind:
//
//   - A namespaced kind gets an informer of this shard alone. It lists and watches with the API
//     server's shardSelector if a probe has shown that the server honours it (KEP-5866), and always
//     filters again on the client. A probe that fails changes nothing: the last answer counts. If
//     the server does not filter, the ranges of the process read together. If the process has an
//     informer of all of the kind, the shard's informer follows that one instead of reading: see
//     below.
//   - A cluster-scoped kind is one informer for the whole process, taken from a [Pool] and shared
//     by all shards. The shard sees it through a view; what it registered there goes when the shard
//     goes.
//   - Namespace objects are cluster-scoped, but each shard sees only those whose name hashes into
//     its range. They follow the process's one Namespace informer and need no further watch.
//   - A factory whose range is everything takes all its informers from the pool: the groups of
//     cluster-scoped controllers that one process runs share one cache of all pods.
//   - A controller that goes through all kinds, or reads only a part of one, or little of each
//     object, does not need whole objects in a cache: see [Factory.ObjectOrMetadata],
//     [Factory.Narrowed] and [Factory.Slimmed]. All of a kind, each part of it, slim copies of all
//     and its metadata are separate informers.
//
// # Packages
//
// What an informer holds, whom it notifies and who follows it is in internal/store; how a resource
// is listed and watched, and who filters it, in internal/listwatch; whether a cache has seen the
// present, in present. Here is what puts these together: sources (reading alone, reading together,
// following), the pool, and the factories. They are one package because an informer changes its
// source while it runs: factories, feeds and the pool settle that among themselves, and would have
// to export how.
//
// # Any type
//
// The types of client-go's clientset are built in. Informers of any others give the same
// guarantees:
//
//   - [Factory.Dynamic] has *unstructured.Unstructured objects of any resource.
//   - [Factory.Metadata] has *metav1.PartialObjectMetadata of any resource.
//   - [Factory.Custom] has objects of a type of the caller's own; a [Resource] says how to read
//     them. InformerFor and ForResource also return those of [PoolConfig.Resources].
//
// An informer's identity in a pool is the resource and the form of its objects: dynamic, metadata,
// or a Go type. Callers that ask for the same identity share the informer, follow it or read
// together with it, and never use another form: two forms of a resource are two caches and two
// watches. Only metadata of a built-in resource follows whole objects. Even so, [Factory.Weights]
// and [Load] count an object once.
//
// For a resource that is not built in, the factory's [ScopeFunc] or the Resource says whether it is
// namespaced. If neither knows, asking for an informer fails. It is asked once. If a resource later
// gets another scope, an informer still holds no object of a foreign namespace, but lacks others.
//
// A resource that is not built in may be defined later, or go. Its informers try again until they
// can read it; while the API server says that it does not have it, those of a process ask about as
// often as one of them would. [Factory.Warm] and [Factory.Refresh] do not wait for a resource that
// the API server says it does not have, nor does [Factory.CatchUp] if the cache holds nothing;
// HasSynced and WaitForCacheSync do, as with client-go.
//
// # Following
//
// An informer that follows another one of the process holds the same objects, as far as its filter
// lets them through. It receives each change under the other one's lock: both are always at the
// same version. A range follows an informer of everything, or slim copies among which its objects
// are whole; metadata follows whole objects or slim copies; a part of a kind and slim copies follow
// all of it. Followers do not keep an informer alive. When its last user goes, they read by
// themselves: they watch from their version, and list only if the server no longer knows that
// version. When an informer begins and has seen as much, they follow it. Meanwhile they serve what
// they hold.
//
// An informer of slim copies keeps the objects of its ranges whole, so that the process receives
// and holds each of them once. [Pool.Expect] says which ranges will come: their objects stay whole
// from the list on, and such a range reads nothing. A range that comes unexpected, or was there
// before, reads its part by itself at first. Meanwhile the informer of slim copies stores changes
// in that range whole, and takes the rest over from the range once both agree. When a range leaves
// that is not expected any more, its objects become slim copies.
//
// # Reading together
//
// If the API server does not filter a kind, it sends all of it to every watcher. So the ranges of a
// process then share one list and watch of the kind, which stores nothing and passes on to each
// range what is in it. Ranges that come at the same time begin together; a later one lists by
// itself, and joins the oldest watch when it has seen as much. When the server starts to filter,
// the ranges part at the next request, and when it stops, they come together at the next request.
// They continue from their versions.
//
// # Is a cache new enough
//
// There are three questions, each of which uses the answer to the one before:
//
//   - Has an informer that shards share seen everything that was written before a moment? One check
//     answers for all who wait (fresh.go). Each informer is asked this before a factory counts it
//     as synced.
//   - Have all caches of a factory? [Factory.Refresh] asks, for a factory whose past is unknown.
//   - Have they seen the last writes that an earlier holder left? [Factory.CatchUp] compares
//     versions and objects, and asks the server nothing, except about parts of a kind.
//
// # Guarantees
//
//   - Nothing outside the range is ever stored, indexed or handed to a handler, whatever the server
//     sends.
//   - The caches of shards whose ranges partition the keyspace partition the unfiltered cache:
//     every object is in exactly one of them.
//   - A handler sees its notifications one after the other and in order; handlers do not wait for
//     each other. The store is never older than a notification that was delivered. (As client-go's
//     shared informers.)
//   - The informers of a factory sync with a state at least as new as the moment when the factory
//     was made, whether they read, follow or are shared: they have seen everything that was written
//     before. A shared informer whose watch has stalled lists again.
//   - If handlers were added before the start, controllers find an informer synced only once these
//     handlers have handled all existing objects, or after a minute.
//   - An informer never goes back in time, even when its source changes.
//   - An informer whose watch ends or fails watches again from its version. It lists only if that
//     fails too, or if the server says why it cannot be done. client-go's informers list again
//     after most failures, and after a watch that ends within a second; an API server under load
//     ends all watches like that.
//   - No object is held twice in one version, whole and slim, once a range follows the informer of
//     slim copies.
//   - Shutdown returns only after every goroutine, handler and pool reference of the factory has
//     gone; informers that other shards use continue undisturbed. After
//     [Factory.Forget] the caches hold nothing that nobody else uses.
//
// # Non-guarantees
//
//   - Factories that share an informer share its indexes: the first function of a name serves all,
//     for as long as the informer runs. Give an index that is one controller's a name of its own.
//   - There is no order between kinds, between shards, or between handlers.
//   - If the server does not filter, a range that comes while the process lists a kind waits for
//     that list before it lists itself. An expected range waits for the first list of slim copies,
//     for a minute at most, even if the server filters.
//   - A LIST that is under way at the end is cancelled but not waited for: client-go's Reflector
//     sends it from a goroutine that it does not keep. The same holds for the LIST of an informer
//     that has started to follow instead.
//   - An informer that has synced is not checked again: its watch may stall later.
//     [Factory.Refresh] and [Factory.CatchUp] check again; their comments say what the check relies
//     on.
//   - Handlers and listers of metadata that [Factory.ObjectOrMetadata] returns receive typed
//     objects while it follows these.
//   - Objects of a resource that is gone stay in the cache, if the watch ended before the objects
//     did. [Factory.Refresh] fails then.
//   - SetWatchErrorHandler is not supported; watch errors are logged by client-go.
//   - Handlers and listers of slim copies may receive whole objects. If a controller keeps some of
//     those, they stay whole after the range has left; attach-detach keeps Pods in its desired
//     state.
//   - SetTransform is refused: all informers of a kind have the pool's transform. A view does not
//     stop the informer behind it.
//   - If a Resource's ListerWatcher drops the options it receives, every shard reads everything.
//     Objects outside the range are dropped all the same.
//
// # Why not client-go's sharedIndexInformer
//
// A shard has about 50 informers and 80 handlers. client-go spends 7 goroutines on each informer
// and 2 goroutines and a ring of 1,024 slots on each handler, whether anything happens or not; that
// was half of an idle shard's cost. Here a handler has a goroutine only while it has something to
// deliver, and resync is a timer. Listing, watching, retrying and indexing are still client-go's
// Reflector and Indexer. A differential test compares the notifications with those of client-go's
// informer.
package informer

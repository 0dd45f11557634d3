// Package informer gives one shard its caches: a SharedInformerFactory, and informers of any other
// resource, that hold what lies in the shard's range and nothing else.
//
// A factory decides kind by kind:
//
//   - A namespaced kind gets an informer of this shard alone. It lists and watches with the API
//     server's shardSelector where a probe has shown that the server honours it (KEP-5866), and
//     filters again on the client always. A probe that fails changes nothing: the last answer
//     counts. Where the server does not, the ranges of the process read together. Where the process
//     has an informer of all of the kind, it follows that one instead of reading: see below.
//   - A cluster-scoped kind is one informer for the whole process, taken from a [Pool] and shared
//     by all shards. The shard sees it through a view; what it registered there goes when the shard
//     goes.
//   - Namespace objects are cluster-scoped, but each shard sees only those whose name hashes into
//     its range. They follow the process's one Namespace informer and cost no further watch.
//   - A factory whose range is everything takes all its informers from the pool: the groups of
//     cluster-scoped controllers that one process runs share one cache of all pods.
//   - Who goes through all kinds, reads only a part of one, or little of each object, need not have
//     whole objects cached: see [Factory.ObjectOrMetadata], [Factory.Narrowed] and
//     [Factory.Slimmed]. All of a kind, each part of it, slim copies of all and its metadata are
//     informers of their own.
//
// # Any type
//
// The types of client-go's clientset are built in. Informers of any others differ from theirs in no
// guarantee below:
//
//   - [Factory.Dynamic] has *unstructured.Unstructured objects of any resource.
//   - [Factory.Metadata] has *metav1.PartialObjectMetadata of any resource.
//   - [Factory.Custom] has objects of a type of the caller's own, which a [Resource] says how to
//     read. Those of [PoolConfig.Resources] are also what InformerFor and ForResource return.
//
// An informer's identity in a pool is the resource and the form of its objects: dynamic, metadata,
// or a Go type. Those who ask for the same one share it, follow it or read together with it, and
// nothing of another form: two forms of a resource are two caches and two watches. Only metadata of
// a built-in resource follows whole objects. [Factory.Weights] and [Load] count an object once all
// the same.
//
// Whether a resource that is not built in is namespaced is for the [ScopeFunc] of the factory to
// say, or for the Resource. Where nobody knows it, asking for an informer fails. It is asked once:
// where a resource comes to have another scope later, an informer still holds no object of a
// foreign namespace, but lacks others.
//
// A resource that is not built in may be defined later, or go. Its informers try again until they
// can read it. [Factory.Warm] and [Factory.Refresh] do not wait for what the API server says it
// does not have, nor does [Factory.CatchUp] where the cache holds nothing; HasSynced and
// WaitForCacheSync do, as with client-go.
//
// # Following
//
// An informer that follows another one of the process holds the same objects, as far as its filter
// lets them through, and is told of each change under the other one's lock: both are always at the
// same version. A range follows an informer of everything; metadata follows whole objects or slim
// copies; a part of a kind and slim copies follow all of it. Followers do not keep an informer
// alive. When its last user goes, they read by themselves: they watch from the version that they
// are at, and list only where the server does not know that one any more. When an informer begins
// and has seen as much, they follow it. What they hold is served meanwhile.
//
// # Reading together
//
// What the API server does not filter it sends whole to everyone who watches. So the ranges of a
// process then share one list and watch of a kind, which stores nothing and passes on to each what
// is in its range. Ranges that come at the same time begin together; a later one lists by itself,
// and goes over to the oldest watch when it has seen as much. When the server comes to filter, they
// part at the next request, and go on from where they are; when it ceases to, each reads on and
// joins the others where it would have to list.
//
// An informer of slim copies of everything takes part in that. It stores the same object as a range
// that holds it, and slim copies of all else, made as objects arrive. While there is one, ranges
// stay with it though the server filters: the process is sent everything anyway. A range that comes
// later reads its part by itself first. When it leaves, the informer of slim copies puts copies in
// the place of what it has shared.
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
//   - The informers of a factory sync with what is at least as new as the moment when it was made,
//     whether they read, follow or are shared: what was written before has been seen. A shared
//     informer whose watch has stalled lists again. A list that was made when nobody could write
//     any more, as [Pool.NewFactory] is told, is new enough.
//   - Where handlers were added before the start, controllers find an informer synced only once
//     these have returned from what there is, or after a minute.
//   - An informer never goes back in time, also not when what fills it changes.
//   - No object is held twice in one version, whole and slim, once a range and the informer of slim
//     copies read together.
//   - Shutdown returns only after every goroutine, handler, index registration and pool reference
//     of the factory has gone; informers that other shards use go on undisturbed. After
//     [Factory.Forget] the caches hold nothing that nobody else uses.
//
// # Non-guarantees
//
//   - No ordering between kinds, between shards, or between handlers, but for what [OwnersFirst]
//     tells at the start.
//   - Where the server does not filter, a range that comes while the process lists a kind waits for
//     that before it lists itself.
//   - A LIST that is under way at the end is cancelled but not waited for: client-go's Reflector
//     sends it from a goroutine that it does not keep. The same holds for one that has come to
//     follow instead.
//   - What has synced is not held against the present again: a watch may stall later.
//     [Factory.Refresh] and [Factory.CatchUp] look again. What such a look relies on is said there.
//   - Handlers and listers of metadata that [Factory.ObjectOrMetadata] returns are given typed
//     objects while it follows these.
//   - What is cached of a resource that is gone stays, if the watch ended before the objects did.
//     [Factory.Refresh] fails then.
//   - SetWatchErrorHandler is not supported; watch errors are logged by client-go.
//   - Handlers and listers of slim copies may be given whole objects. What a controller keeps of
//     those stays whole after the range has left, as do the Pods in attach-detach's desired state.
//   - A view does not stop the informer behind it, and cannot set its transform.
//   - A Resource's ListerWatcher that drops the options it is given has every shard read
//     everything. What is outside the range is dropped all the same.
//
// # Why not client-go's sharedIndexInformer
//
// A shard has about 50 informers and 80 handlers. client-go spends 7 goroutines on each informer
// and 2 goroutines and a ring of 1,024 slots on each handler, whether anything happens or not; that
// was half of an idle shard's cost. Here a handler has a goroutine only while it has something to
// deliver, and resync is a timer. Listing, watching, retrying and indexing are still client-go's
// Reflector and Indexer. A differential test holds the notifications against those of client-go's
// informer.
package informer

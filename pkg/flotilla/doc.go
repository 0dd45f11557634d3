// Package flotilla runs anybody's controllers as a fleet: on several replicas that are all active,
// each with a part of the namespaces, instead of on one leader and its idle standbys.
//
//	f, err := flotilla.New(config, flotilla.Options{Fleet: "certs", Namespace: "certs", Member: pod})
//	if err != nil { ... }
//	f.Namespaced("issuer", func(ctx context.Context, s *flotilla.Shard) (flotilla.Runnable, error) { ... })
//	f.Singleton("webhook-ca", func(ctx context.Context, s *flotilla.Shard) (flotilla.Runnable, error) { ... })
//	return f.Run(ctx)
//
// The namespaces of the cluster are divided into ranges by a hash of their names. Each range is a
// shard, owned by one replica at a time, on which one instance of every namespaced controller runs.
// Each singleton is a shard of its own. A [Shard] gives a controller all it needs: a configuration
// whose clients write only while the shard is owned, and informers of the shard's namespaces.
//
// A controller is built for a shard, run once, and thrown away. It is often built before the shard
// is owned, so that its caches are warm when another replica hands the shard over:
//
//  1. Build: the controller asks the shard for its informers and adds its handlers. Requests that
//     could change anything are refused.
//  2. The informers fill, but call no handler yet. A controller with caches of its own fills them
//     as a [Warmer].
//  3. The shard is acquired, and the informers have seen what its last owner wrote.
//  4. Run: the handlers receive all existing objects, and may do so before Run is called. Writes
//     pass.
//  5. Run's context ends: the controller finishes its current work and returns; then the shard is
//     released. Writes are refused five seconds after the end of the context
//     ([Options.HandoffTimeout]).
//
// If a program's controllers cannot be built one by one, it gives [Fleet.Shards] a function that
// builds whole shards. kube-controller-manager's fleet does that too, so there is only one way into
// a fleet.
//
// docs/library.md says what must be true of a controller: it decides about an object by what lies
// in the object's namespace and by what it reads through the API server, and keeps nothing in
// memory that the next owner would miss. In a test, [Fleet.Check] finds what a controller does
// outside of its range.
//
// # Guarantees
//
// For controllers that are added one by one:
//
//   - At most one replica writes through a shard's configuration at a time, whatever fails: a
//     network, a clock within the tolerated drift, a process that hangs.
//   - No write passes through it in a namespace of another range, except of events.
//   - A shard's informers hold objects of its range and nothing else.
//   - When a shard is handed over, its next controllers begin with caches that have seen every
//     write of the previous owner.
//   - The configuration's QPS and Burst limit the requests of one controller in the whole process,
//     however many shards it has.
//   - Run returns only after every controller has returned, and after everything that the fleet has
//     started, except for an event that is being sent.
//
// For whole shards, [fleet.Work.Fence] fences whatever passes through it in the same way, and Run
// returns only after the work of every shard has returned. The program must keep the other promises
// itself.
//
// # Non-guarantees
//
//   - A write through a client that does not come from [Shard.Config], [Shard.Wrap] or
//     [Shard.WrapAPI] is not fenced.
//   - Ownership is by namespace. If a controller writes a cluster-scoped object from several ranges,
//     or an object through [Shard.AnyNamespace], [Shard.Wrap] or [Shard.WrapAPI], nothing keeps two
//     members apart.
//   - [Fleet.Shards] does not limit what a program's shards read, or how fast: the program provides
//     informers of the range and limits on requests.
//   - A write that was cut off by the end of a claim may still arrive. It was sent while the shard
//     was owned.
package flotilla

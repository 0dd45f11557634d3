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
//  2. The informers are filled; handlers are told nothing yet. A controller with caches of its own
//     fills them as a [Warmer].
//  3. The shard is acquired, and the informers have seen what its last owner wrote.
//  4. Run: the handlers are told what there is. Writes pass.
//  5. Run's context ends: the controller finishes what it is doing and returns. Then the shard is
//     released. Five seconds later ([Options.HandoffTimeout]) writes are refused.
//
// A program whose controllers cannot be built one by one gives [Fleet.Shards] a function that
// builds whole shards. kube-controller-manager's fleet does, so there is one way into a fleet.
//
// What must be true of a controller is in docs/library.md: it decides about an object by what lies
// in the object's namespace and by what it reads through the API server, and keeps nothing in
// memory that the next owner would miss. [Fleet.Check] finds in a test what a controller does
// outside of its range.
//
// # Guarantees
//
// Of controllers that are added one by one:
//
//   - At most one replica writes through a shard's configuration at a time, whatever fails: a
//     network, a clock within the tolerated drift, a process that hangs.
//   - A shard's informers hold objects of its range and nothing else.
//   - A controller of a shard that is handed over begins with caches which have seen every write of
//     the owner before.
//   - The requests of one controller are limited by QPS and Burst of the configuration once a
//     process, however many shards it has.
//   - Run returns after every controller has, and after all that the fleet has started.
//
// Of whole shards, what passes [fleet.Work.Fence] is fenced in the same way, and Run returns after
// the work of every shard has. The rest is the program's to keep.
//
// # Non-guarantees
//
//   - A write through a client that does not come from [Shard.Config] or [Shard.Wrap] is not
//     fenced.
//   - Ownership is by namespace. Two controllers that write the same object from different
//     namespaces, or on a cluster-scoped object from several ranges, are not kept apart.
//   - What [Fleet.Shards] builds reads what it likes, at any rate: informers of the range and
//     limits of requests are the program's.
//   - A write that a claim's end has cut off may still arrive. It was sent while the shard was
//     owned.
package flotilla

// Package manager runs controllers written with sigs.k8s.io/controller-runtime on a fleet: one
// Manager for each shard that this process owns or is about to own.
//
//	f, err := flotilla.New(config, flotilla.Options{...})
//	f.Namespaced("website", manager.Build(scheme, func(mgr ctrl.Manager) error {
//		r := &controller.WebsiteReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme()}
//		return r.SetupWithManager(mgr)
//	}))
//
// Reconcilers, their watches and their tests stay as they are; examples/controller-runtime shows
// the change of main.go. A shard's Manager has no leader election, metrics server, health probes or
// webhook server: these belong to the process, which may have a Manager of its own for them. The
// metrics of all controllers are in controller-runtime's registry; see the non-guarantees.
//
// # The life of a shard's Manager
//
//  1. [Build] makes the Manager and calls the function that sets it up. Nothing is started.
//  2. The caches fill, and the controllers' sources start. Event handlers are not called yet.
//     Runnables that need no leader election start.
//  3. The shard is acquired, and the caches have seen what its last owner wrote.
//  4. Elected is closed, and event handlers receive all existing objects. Then the controllers
//     reconcile.
//  5. The shard is handed over: the Manager ends. Reconciles under way finish first.
//
// # Guarantees
//
//   - The cache holds only objects of the shard's range: for a namespaced kind those in its
//     namespaces, for Namespaces those whose name is in the range, for cluster-scoped kinds all.
//     That holds for typed and unstructured objects and for metadata, and for kinds that are first
//     read in Reconcile. The API server filters where it can, and the client always.
//   - If the cached client is asked about a namespace outside the range, it asks the API server. So
//     "not found" means that there is no such object. That is true of Get for an object in such a
//     namespace, or for the Namespace itself, and of List for one namespace.
//   - No reconciler runs before its shard is owned, nor after Run of the shard has returned.
//   - No write passes unless the shard is owned, whichever client of the Manager or of its
//     configuration sends it. The error is fence.ErrRefused. Nor does a write in a namespace of
//     another range, except of events, with the error flotilla.ErrOutside.
//   - The Managers of one process share reads of what they have in common: their cost to the API
//     server does not grow with the number of shards.
//
// # Non-guarantees
//
//   - List of all namespaces returns those of the range: the shard's part of the work. A controller
//     that concludes from it that something exists nowhere must ask
//     [ctrlmanager.Manager.GetAPIReader].
//   - Watches report only objects in the range, and all cluster-scoped ones: see [Owns]. A
//     controller that must react to an object in a namespace of another range cannot be namespaced:
//     see docs/library.md.
//   - Reads outside the range are requests: they count against the controller's limit, may be a
//     little ahead of the cache, and know no index except the API server's own.
//     flotilla.Options.Outside receives them.
//   - Selectors of cache.Options choose what a Manager sees. They do not change what is cached,
//     which other controllers share, so they save no memory. An index function is also called for
//     objects that are not selected. A field selector can name only metadata.name and
//     metadata.namespace.
//   - Options that would change the cache for all are refused: namespaces and transforms of
//     cache.Options, and its error handler.
//   - If a handler hangs on an object that it receives at the start, the controllers of its shard
//     wait for a minute. Then the log names the handler, and they begin.
//   - A controller with NeedLeaderElection false starts before its shard is owned if its source
//     does not read a cache of the Manager, such as source.Channel. Its writes are refused all the
//     same.
//   - If several shards have a controller of one name, these gauges of controller-runtime show only
//     one shard: max_concurrent_reconciles, active_workers, unfinished_work_seconds and
//     workqueue_depth. Counters and histograms add up.
//   - Controllers with EnableWarmup off, and sources that do not read a cache of the Manager, start
//     cold, once the shard is owned.
//   - Events that are recorded shortly before a shard is handed over may be lost.
//     controller-runtime sends them from goroutines that Start does not wait for; the fence ends
//     these.
//   - Clusters of multicluster-runtime are not divided. Its Coordinator decides which replica
//     engages a cluster, by Leases or a hash of its own, and has no point at which a claim could be
//     fenced. That would need a ring of clusters, which Flotilla does not have.
package manager

import ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

var _ ctrlmanager.Manager // for the links above

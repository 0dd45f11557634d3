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
// the change of main.go. A shard's Manager has no leader election, metrics server, health probes
// and webhook server: these are the process's, which may have a Manager of its own for them. The
// metrics of all controllers are in controller-runtime's registry; see the non-guarantees.
//
// # A shard's Manager in time
//
//  1. [Build] makes the Manager and calls the function that sets it up. Nothing is started.
//  2. The caches are filled, and the controllers' sources are started. Event handlers are told
//     nothing. Runnables that need no leader election are started.
//  3. The shard is acquired, and the caches have seen what its last owner wrote.
//  4. Elected is closed, and event handlers are told what there is. Then the controllers reconcile.
//  5. The shard is to be handed over: the Manager ends. Reconciles that are under way are finished.
//
// # Guarantees
//
//   - The cache holds objects of the shard's range and nothing else: of a namespaced kind those in
//     its namespaces, of Namespaces those whose name is in the range, of cluster-scoped kinds all.
//     That holds for typed and unstructured objects and for metadata, and for kinds that are first
//     read in Reconcile. The API server filters where it can, and the client always.
//   - What the cached client is asked of a namespace outside the range, it asks the API server. So
//     "not found" means that there is no such object. That goes for Get of an object in such a
//     namespace, or of the Namespace itself, and for List of one namespace.
//   - No reconciler runs before its shard is owned, nor after Run of the shard has returned.
//   - No write passes unless the shard is owned, whatever client of the Manager or of its
//     configuration sends it. The error is fence.ErrRefused.
//   - The Managers of one process read together what they have in common: what they cost the API
//     server does not grow with the number of shards.
//
// # Non-guarantees
//
//   - List of all namespaces returns those of the range: the shard's part of the work. A controller
//     that concludes from it that something exists nowhere must ask
//     [ctrlmanager.Manager.GetAPIReader].
//   - Watches tell of objects in the range. A controller that must react to an object in a
//     namespace of another range cannot be namespaced: see docs/library.md.
//   - Reads outside the range are requests: they count against the controller's limit, may be a
//     little ahead of the cache, and know no index but the API server's own.
//     flotilla.Options.Outside tells of them.
//   - Selectors of cache.Options choose what a Manager sees, and not what is cached, which other
//     controllers share: they save no memory. An index function is called for objects that are not
//     selected, too. A field selector can name metadata.name and metadata.namespace alone.
//   - What changes the cache for all is refused: namespaces and transforms of cache.Options, and
//     its error handler.
//   - A handler that hangs in what it is told at the start holds the controllers of its shard up
//     for a minute. Then it is named in the log, and they begin.
//   - A controller with NeedLeaderElection false is not held back, though its writes are, if its
//     source reads no cache of the Manager, such as source.Channel.
//   - Gauges of controller-runtime are those of one shard where several shards have a controller of
//     one name: max_concurrent_reconciles, active_workers, unfinished_work_seconds and
//     workqueue_depth. Counters and histograms add up.
//   - Controllers with EnableWarmup off, and sources that read no cache of the Manager, start cold,
//     once the shard is owned.
//   - Events that are recorded shortly before a shard is handed over may be lost.
//     controller-runtime sends them from goroutines that Start does not wait for; the fence ends
//     these.
//   - Clusters of multicluster-runtime are not divided. Its Coordinator decides which replica
//     engages a cluster, by Leases or a hash of its own, and has no point at which a claim could be
//     fenced; that needs a ring of clusters, which Flotilla does not have.
package manager

import ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

var _ ctrlmanager.Manager // for the links above

// Package catalogue says how each controller of upstream's controller manager is sharded. It is the
// table of all controllers of k8s.io/kubernetes v1.37.1, one Row each, with the reason and with
// what a runner must know to build and run it. [DefaultPlan] is made from the table, and
// [CheckPlan] checks any plan against it.
//
// It is pure data; file names in the rows are upstream's, below pkg/controller unless they say
// otherwise.
//
//	scope namespaced   one reconcile reads and writes one namespace
//	                   -> one instance per range of namespaces
//	scope cluster      it decides over cluster-scoped objects or over
//	                   all namespaces at once
//	                   -> one instance in the fleet, in its group's shard
//
// # Guarantees
//
//   - Complete: every controller that upstream knows has exactly one row, and no row is for
//     anything else. A test compares the two, so a new upstream controller that nobody has
//     classified breaks the build.
//   - Names are upstream's names, never their aliases.
//   - A namespaced row is right under a filtered view: if its Needs are met, the instance decides
//     nothing from the absence of an object of another namespace.
//   - Every type of upstream's controllers that is made to be shared in memory is either covered by
//     the Picture of a row or known to need none. A test goes through the source, and finds in it
//     what Pictures refer to.
//   - Clients is what the constructor asks of its client builder, and the factors that it applies;
//     a test builds every controller and compares.
//   - Workers point only into the configuration they are given, and keep no reference to it.
//   - Every function returns new values: callers may change them.
//
// # Non-guarantees
//
//   - The rows hold for the upstream version in go.mod. A test notices new controllers, clients and
//     flags, but not new behaviour behind old ones: read the diff of pkg/controller on every
//     update.
//   - The table does not say whether a controller is enabled. Feature gates, flags and upstream's
//     disabled-by-default list decide that.
//   - A table cannot make an instance safe. The claim and the fence do.
//
// # What holds for every controller
//
//   - Building registers handlers and indexers on the informers it is given. Some indexers cannot
//     be registered twice: build on informers that no other instance of the same controller was
//     built on.
//   - Handlers queue from the moment the informers start, whether or not Run was called. Some
//     queues do not merge equal entries (the pods of endpoints and endpointslice, the changes of
//     resourcequota), so a warm instance grows until it runs.
//   - When its context ends, Run works off what is left in its queues before it returns. Requests
//     with that context fail at once. But endpointslice, statefulset, daemonset's and statefulset's
//     revisions, cronjob, replicaset's status and the expander write without it, and go on until
//     their queues are empty. To stop them quickly, refuse their requests in the client.
//   - The context given to a constructor must live until Run has returned, and end then: event
//     broadcasters stop with it.
//   - It begins when its caches have synced. An informer of a shard has synced when its cache is
//     filled with the present state and the handlers that were added before the start have handled
//     all existing objects. Nobody waits for work that these handlers have queued, except for the
//     garbage collector's graph (pkg/controllers/owners). That is enough for most: a key in a
//     queue says only what to look at, and the decision uses the listers. Controllers that keep
//     more in memory have a Picture, which says why something missing does no harm, or what is done
//     about it. It does not cover a controller's own writes that it waits to see again
//     (expectations of replicaset, replication, daemonset and job, consistency stores, the trackers
//     of endpoints and endpointslices), of which none are left at a start. Quota keeps no counts:
//     each sync counts with the listers, and fails while one of them has not synced
//     (k8s.io/apiserver/pkg/quota/v1/generic/evaluator.go:79). Disruption lists a budget's Pods in
//     each sync (disruption/disruption.go:631).
//   - Metrics are global to the process. Workqueue metrics are labelled by the queue's name:
//     instances add up, and items that a stopped instance left in its queue stay counted.
package catalogue

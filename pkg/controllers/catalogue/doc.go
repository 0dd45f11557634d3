// Package catalogue says how each controller of upstream's controller manager
// is sharded: the table of all controllers of k8s.io/kubernetes v1.37.1, one
// Row each, with the reason and with what a runner must know to build and run
// it. [DefaultPlan] is made of the table, and [CheckPlan] holds any plan against it.
//
// Pure data; file names in the rows are upstream's, below pkg/controller
// unless they say otherwise.
//
//	scope namespaced   one reconcile reads and writes one namespace
//	                   -> one instance per range of namespaces
//	scope cluster      it decides over cluster-scoped objects or over
//	                   all namespaces at once
//	                   -> one instance in the fleet, in its group's shard
//
// # Guarantees
//
//   - Complete: every controller that upstream knows has exactly one row, and
//     no row is for anything else. A test compares the two, so a new upstream
//     controller that nobody has classified breaks the build.
//   - Names are upstream's names, never their aliases.
//   - A namespaced row is right under a filtered view: the instance decides
//     nothing from the absence of an object of another namespace, provided that
//     its Needs are met.
//   - Every type of upstream's controllers that is made to be shared in memory is
//     covered by the Picture of a row, or known to be none: a test goes through the
//     source, and finds what Pictures refer to in it.
//   - Clients is what the constructor asks of its client builder, and the
//     factors it applies; a test builds every controller and compares.
//   - Workers point into the configuration they are given and nowhere else, and
//     keep no reference to it.
//   - Every function returns values of its own: callers may change them.
//
// # Non-guarantees
//
//   - The rows hold for the upstream version in go.mod. A test notices new
//     controllers, clients and flags, not a new behaviour behind old ones: read
//     the diff of pkg/controller on every update.
//   - Enabled or not is not said here. Feature gates, flags and upstream's
//     disabled-by-default list decide that.
//   - A table cannot make an instance safe. The claim and the fence do.
//
// # What holds for every controller
//
//   - Building registers handlers and indexers on the informers it is given.
//     Some indexers cannot be registered twice: build on informers that no other
//     instance of the same controller was built on.
//   - Handlers queue from the moment the informers start, whether or not Run
//     was called. Some queues do not merge equal entries (the pods of endpoints
//     and endpointslice, the changes of resourcequota), so a warm instance grows
//     until it runs.
//   - When its context ends, Run works off what is left in its queues before it
//     returns. Requests with that context fail at once. But endpointslice,
//     statefulset, daemonset's and statefulset's revisions, cronjob, replicaset's
//     status and the expander write without it, and go on until their queues are
//     empty: whoever wants a short stop refuses their requests in the client.
//   - The context given to a constructor must live until Run has returned, and end
//     then: event broadcasters stop with it.
//   - It begins when its caches have synced. An informer of a shard has synced when its
//     cache is filled with the present and the handlers that were added before the start
//     have returned from what there is; nobody waits for what these have queued, but for the
//     garbage collector's graph (OwnersFirst of pkg/informer).
//     That is enough for most: a key in a queue says only what to look at, and
//     the decision is made by the listers. Picture is set for those that keep more, and
//     says why what may be missing does no harm, or what is done about it. Not counted
//     as such are a controller's own writes that it waits to see again (expectations of
//     replicaset, replication, daemonset and job, consistency stores, the
//     trackers of endpoints and endpointslices), of which none are left at a start. Quota
//     keeps no counts: each sync counts by the listers, and fails while one of them has
//     not synced (k8s.io/apiserver/pkg/quota/v1/generic/evaluator.go:79). Disruption
//     lists a budget's Pods in each sync (disruption/disruption.go:631).
//   - Metrics are global to the process. Work queue metrics are labelled by the
//     queue's name: instances add up, and what a stopped instance left in its
//     queue stays counted.
package catalogue

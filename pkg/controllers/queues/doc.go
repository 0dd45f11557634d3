// Package queues measures the workqueues of a process that runs many shards.
//
// client-go's workqueues know only their name, and have one provider of metrics for the whole
// process. This package is that provider. It keeps the series that every Kubernetes component has,
// workqueue_*{name}, and adds how long items take in each shard: a [Group] stands for one instance
// of a shard's controllers, and a queue that is made within [Group.Do] belongs to it.
//
// # How it becomes the provider
//
// The first call of workqueue.SetProvider wins. k8s.io/component-base/metrics/prometheus/workqueue
// calls it from an init function, and so does this package. Go first initialises the packages that
// have nothing left to wait for, in the order of their import paths (the language's specification,
// "Program initialization"). This package imports only what that one imports, and internal/faults,
// which imports nothing; so it must not import anything else. Tests here and in internal/app fail
// if it comes second.
//
// # How it finds a queue's group
//
// By the goroutine that makes the queue, on which client-go asks its provider for metrics. In
// Kubernetes 1.37.1 the configuration of a queue may name another provider, but every constructor
// of kube-controller-manager makes that configuration itself, leaves the provider out, and accepts
// neither a provider nor a queue. What else was weighed:
//
//   - One shard is built at a time, under a lock, and a variable names it. Constructors send
//     requests to the API server: one that waits would hold up all shards.
//   - The call stack names functions and not shards, and labels of runtime/pprof cannot be read
//     back.
//   - No groups, and no series of shards. The alert FlotillaCanaryWorse, autoscaling and the
//     dashboard read those series. An instance with a garbage collector waits for its own queue
//     (see [Group.Settle]), and without [Group.Close] what an instance leaves in its queues would
//     count for ever.
//   - Upstream's constructors are copied, or patched. That is never done here.
//
// Once upstream hands a provider to its constructors, [Group.Do] can go, and with it the need to be
// the first provider.
//
// # Guarantees
//
//   - workqueue_* have the names, labels, buckets, help and stability that component-base gives
//     them, and count the queues of all shards together, as its provider would.
//   - Unlike component-base's, workqueue_unfinished_work_seconds is the sum over the queues of a
//     name, and workqueue_longest_running_processor_seconds the longest, not the last value of one
//     of them. Both are computed at the moment of the scrape, not up to half a second earlier.
//     Items left in the queues of an instance that has ended do not count.
//   - An empty queue uses no CPU except for the heartbeat that client-go gives a delaying queue,
//     every 10 s.
//   - A shard has series from the moment a Group is made for it until [Forget].
//
// # Non-guarantees
//
//   - A queue that is made by a goroutine which was started within Do belongs to no shard. No
//     upstream controller has one.
package queues

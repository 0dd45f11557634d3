// Package queues measures the workqueues of a process that runs many shards.
//
// client-go's workqueues know their name and nothing else, and have one provider of metrics for the whole process. This
// package is that provider. It keeps the series that every Kubernetes component has, workqueue_*{name}, and adds how long
// things take in each shard: a [Group] stands for one instance of a shard's controllers, and a queue that is made within
// [Group.Do] belongs to it.
//
// # How it becomes the provider
//
// The first call of workqueue.SetProvider wins. k8s.io/component-base/metrics/prometheus/workqueue calls it from an init
// function, and so does this package. Go initialises those packages first that have nothing left to wait for, in the order of
// their import paths (the language's specification, "Program initialization"), and this one imports no more than that one
// does, and internal/faults, which imports nothing: so it must import nothing else. Tests here and
// in internal/app fail if it comes second.
//
// # Guarantees
//
//   - workqueue_* have the names, labels, buckets, help and stability that component-base gives them, and count the queues
//     of all shards together, as its provider would.
//   - Unlike there, workqueue_unfinished_work_seconds is the sum, and workqueue_longest_running_processor_seconds the
//     longest, over the queues of a name, and not what one of them said last; both are of the moment when somebody asks, and
//     not of the last half second; and what is left in the queues of an instance that has ended does not count any more.
//   - An empty queue uses no CPU but for the heartbeat that client-go gives a delaying one, every 10 s.
//   - There are series of a shard from when a Group was made for it until [Forget].
//
// # Non-guarantees
//
//   - A queue that is made by a goroutine which was started within Do belongs to no shard. None of upstream's controllers
//     has one.
package queues

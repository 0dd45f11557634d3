// Package controllers runs upstream's control loops, unmodified, for one shard at a time.
//
// A [Process] is what all shards of one process share: the connection to the API server,
// service-account identities and their tokens, rate limits, the pool of shared informers, the REST
// mapper, and the place where health checks and debug handlers are mounted. It builds an [Instance]
// for a shard: one of upstream's app.ControllerContext, with the informers of the shard's range,
// and one instance of each controller that the shard runs.
//
// # Start and stop order of an instance
//
//  1. Build: the client builder, the informer factory, then the controllers: serviceaccount-token
//     first, because the others get credentials through it, then by name, and quota last, because
//     it gets what the others cache whole. Each controller's informers hold no more than it reads
//     (catalogue: FieldSelectors, Slim, TypedKinds). Building does not write to the API server, except for the
//     service accounts that upstream's client builder creates if they are missing. Health checks
//     and debug handlers are mounted last, when nothing can fail any more.
//  2. Run: the informers start, then all controllers run at once, as upstream's do; each waits for
//     the caches that it needs. While the process is young, they first wait for
//     --controller-start-interval.
//  3. The end of Run's context: every controller returns; then the informers stop; then health
//     checks, debug handlers and handlers on shared informers go. The informers outlive the
//     controllers, so that a controller that finishes its work still sees its writes.
//
// # Guarantees
//
//   - Run returns only after every goroutine that the instance started has ended, and leaves
//     nothing of it behind in the process. The exception is [Spec].ShutdownTimeout, for a process
//     that then ends: Run may leave controllers behind. Close cleans up an instance that is never
//     run.
//   - Every request of the instance goes through the transport of its [Spec], the fence.
//   - A process's request rate per controller is what the flags say, however many shards it runs.
//     With [Process.ShareLimits] it is only the part that its running shards are of their ring. Its
//     workers per controller are divided over the shards that a member expects to hold, at least
//     one each.
//   - Once the fence is closed, no request waits for a rate limit, and errors of the fence are not
//     delayed, so controllers with deep queues return soon.
//   - An update of a controller that awaits its updates (catalogue: AwaitUpdates) returns when the
//     shard's cache has seen it, or after 50 ms.
//
// # Non-guarantees
//
//   - Without [Spec].ShutdownTimeout, Run does not return before every controller has; the caller
//     must bound how long that may take.
//   - Upstream keeps some state per process; package catalogue lists it under RestartHazards.
package controllers

// Package cloud runs a cloud controller manager as a fleet: upstream's controllers of
// k8s.io/cloud-provider, unmodified, on several replicas that are all active, for any provider that
// implements cloudprovider.Interface.
//
// In the main function of a provider, replace app.NewCloudControllerManagerCommand with
// [NewCommand]. It takes the same arguments, and has upstream's flags and a section of its own:
//
//	command := cloud.NewCommand(options, initializer, constructors, aliases, flags, stop)
//
// Programs with a command of their own call [Add] on a flotilla.Fleet instead.
//
// # What runs where
//
// Services of type LoadBalancer are divided by namespace: the controller service-lb-controller runs
// once on each range. If load balancers share something in the cloud that is changed by reading it
// and writing it back, it must run once in the fleet instead (Controllers.UndividedServices). All
// other controllers run once in the fleet, each on one member at a time: node-route-controller,
// cloud-node-controller, cloud-node-lifecycle-controller, and those that the provider adds, unless
// it says that they are namespaced. A process reads Nodes once.
//
// The provider's cloud is one object in each process, as upstream, and serves all shards that the
// process ever owns. When a shard leaves and comes back, what the provider remembers may be of an
// earlier term. The provider's Initialize is called when the member runs a controller for the first
// time, which is when a stock manager would have been elected. What it starts goes on until the
// process ends. Clients from the builder that Initialize receives write only while the member runs
// any controller. Controllers begin once the informers of SetInformers are full.
//
// # How the cloud is fenced
//
// The fence of package flotilla is in the clients of the API server. A cloud is another server.
// Three parts keep two members from working on one load balancer:
//
//   - A guard around the cloud, for every provider. A call to the cloud begins only while the shard
//     is owned. If another member asks for the shard, the call may finish within the handoff
//     timeout; then its context ends. The member hands the shard over when the last call has
//     returned. If a call does not return before another member could own the shard, the process
//     ends. The context also ends when the call returns.
//   - A fence in the provider's transport, if the provider puts it there: [Transport], one line. It
//     checks before each request, with a clock that counts suspended time, and cuts off requests
//     that are under way when ownership ends. It needs the context of the call in the request.
//   - [ShardOf], for calls that are not HTTP: the shard's term, which grows with every owner.
//
// Without the transport there is one gap: a process that is suspended during a call, past the end
// of its claim, may continue the call for a moment when it wakes up, before it ends.
//
// Even with all three there is one gap, which a stock manager has as well: a request that was sent
// while the shard was owned may take effect later. A provider closes it with names or idempotency
// tokens that it makes from the Service's UID.
//
// # Guarantees
//
//   - No call to the cloud begins for a shard that is not owned, or while a stock leader holds the
//     leader lock.
//   - Run of the fleet returns only after every call to the cloud has returned.
//
// # Non-guarantees
//
//   - Upstream's controllers do not wait for their workers when they stop. Work that follows a
//     worker's last call to the cloud, such as writing the status, may be refused by the fence. The
//     next owner repeats it.
//   - A new owner of a range ensures all its load balancers, as a stock leader does for all
//     Services when it is elected.
//   - Whatever the provider does by itself, outside of calls, runs in every member that has ever
//     owned anything, also beside a stock leader once the fleet has been stopped.
//   - Two members may work on different load balancers at the same time. What these share in the
//     cloud is not protected.
package cloud

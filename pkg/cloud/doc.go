// Package cloud runs a cloud controller manager as a fleet: upstream's controllers of
// k8s.io/cloud-provider, unmodified, on several replicas that are all active, for any provider that
// implements cloudprovider.Interface.
//
// In the main function of a provider, [NewCommand] takes the place of
// app.NewCloudControllerManagerCommand. It takes the same arguments, and has upstream's flags and a
// section of its own:
//
//	command := cloud.NewCommand(options, initializer, constructors, aliases, flags, stop)
//
// Programs with a command of their own call [Add] on a flotilla.Fleet instead.
//
// # What runs where
//
// Services of type LoadBalancer are divided by namespace: the controller service-lb-controller runs
// once on each range. All other controllers run once in the fleet, each on a member of its own
// choice: node-route-controller, cloud-node-controller, cloud-node-lifecycle-controller, and those
// that the provider adds, unless it says that they are namespaced. Nodes are read once a process.
//
// The provider's cloud is one object a process, as upstream. Its Initialize is called when the
// member runs a controller for the first time, which is when a stock manager would have been
// elected. Clients from the builder that Initialize is given write only while the member runs any
// controller.
//
// # How the cloud is fenced
//
// The fence of package flotilla is in the clients of the API server. A cloud is another server.
// What keeps two members from working on one load balancer has three parts:
//
//   - A guard around the cloud, for every provider. A call to the cloud begins only while the shard
//     is owned. It may end after the shard has been asked for, within the handoff timeout; then its
//     context ends. The shard is handed over when the last call has returned. If a call does not
//     return before another member could own the shard, the process ends.
//   - A fence in the provider's transport, if the provider puts it there: [Transport], one line. It
//     looks before each request, with a clock that counts suspended time, and cuts off what is
//     under way when ownership ends. It needs the context of the call in the request.
//   - [ShardOf], for what is not HTTP: the shard's term, which grows with every owner.
//
// Without the transport there is one gap: a process that is suspended during a call, past the end
// of its claim, may go on with the call for a moment when it wakes up, before it ends.
//
// With all of them there is one gap, which a stock manager has as well: a request that was sent
// while the shard was owned may take effect later. A provider closes it with names or idempotency
// tokens that it makes from the Service's UID.
//
// # Guarantees
//
//   - No call to the cloud begins for a shard that is not owned, nor while a stock leader holds the
//     leader lock.
//   - Run of the fleet returns after every call to the cloud has.
//
// # Non-guarantees
//
//   - Upstream's controllers do not wait for their workers when they stop. What a worker does after
//     its last call to the cloud, such as writing the status, may be refused by the fence. The next
//     owner repeats it.
//   - Each owner ensures all load balancers of a range when it takes it, as a stock leader does for
//     all Services when it is elected.
//   - What the provider does by itself, outside of calls, runs in every member that owns anything.
package cloud

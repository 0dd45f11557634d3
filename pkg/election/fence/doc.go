// Package fence refuses writes that are not backed by a valid claim. A [Fence] wraps the transport
// of all clients of one shard. It knows nothing about Leases: [Claim] is all that it needs of a
// claim.
//
// # Guarantees
//
//   - The fence sends a mutating request only if the claim was valid at a reading of the clock made
//     for that request. It gives the request up when the claim ends, or when its Lease expires.
//     While heartbeats go on, a request to a server other than the API server may take longer
//     than a lease duration. One to the API server may not: an answer that got lost would hold up
//     its controller for ever.
//   - It hands the body of a mutating request to the connection only while the claim's Lease has not
//     expired, by another reading of the clock. So a process that was suspended after the first
//     reading does not send the request when it resumes, nor does a transport that tries it again.
//   - A connection to a pod, a service or a node (exec, attach, portforward, proxy) counts as a
//     mutating request to the API server, even by GET. An open one may last longer than a lease
//     duration while heartbeats go on; the fence closes one that an answer has handed over when the
//     claim ends, or when its Lease expires.
//   - The User-Agent of every request says under which claim it was made.
//   - Afterwards the fence reports what was written last to the API server, and whether that is
//     known ([Writes]).
//   - A write that was sent is answered although its caller has given it up, if the answer comes
//     within a second and the claim does not end before. So what a controller has sent when it is
//     told to stop is known, and done, before its Lease is released. A caller's deadline ends a
//     write at once.
//   - [Fence.Await] waits as long for writes of goroutines that outlive their controller. What they
//     have not been answered by then counts as not known.
//   - The fence waits for nothing else, and is safe for concurrent use.
//
// # Non-guarantees
//
//   - A connection whose transport keeps it to itself: client-go's remotecommand and portforward
//     do, by SPDY and by WebSocket. Without a valid claim it is not opened, but the fence cannot
//     close it. Its user must, when the work is to end.
//   - What was sent through a connection before it was closed: a command goes on in its container.
//     Writes says nothing of what a connection has changed.
//   - Other subresources that connect by GET, such as the console of KubeVirt's aggregated API,
//     count as reads. They may be opened before the fence is; one that is opened before is not
//     closed.
//   - A request that has left the process cannot be recalled: the server may execute it for as long
//     as it keeps it.
//   - Writes does not say that the deletion of a collection has shortened the grace periods of
//     objects that were already being deleted. No controller of kube-controller-manager does that.
//   - A goroutine that is suspended between the second reading and the system call writes when it
//     resumes, and so does one with a request that has no body, between the first and the call.
package fence

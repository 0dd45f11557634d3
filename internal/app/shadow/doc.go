// Package shadow lets a process rehearse: it fills the caches and runs the controllers that a
// member would own, beside whoever runs the cluster, and no write of theirs reaches the API server.
//
//	controllers, informers
//	        |
//	   the shadow's transport    passes reads and counts them; answers writes itself, and counts them
//	        |
//	   the fence of the shard    never opened: refuses writes a second time, and says so if one comes
//	        |
//	   the API server            <- questions about rights, by a client that can send nothing else
//
// # Guarantees
//
//   - A request passes only if it is a GET or HEAD, asks for no upgrade of the connection, and is not
//     for exec, attach, portforward or proxy, which act by GET. Everything else is refused: unknown
//     methods, aggregated APIs, evictions, bindings, tokens of service accounts, reviews, events.
//     What is allowed is listed; what is new is refused.
//   - The only other requests of the process are the creation of SelfSubjectAccessReviews and
//     SubjectAccessReviews, which change nothing. They have a client whose transport passes these two
//     paths and not even reads. (Who asks the secure port for something is authenticated and
//     authorized as with upstream, by the kubeconfigs of those flags.)
//   - A shadow holds no Lease, is nobody's member, and touches no leader lock. A fleet of the same
//     name does not see it.
//   - Controllers that act on more than the API server (catalogue: ActsOutside) fill their caches and
//     do not run.
//   - What is kept of refused writes, reads and rights is bounded: see the constants of each.
//
// # How writes are counted, and why they are not sent with dryRun
//
// A refused write is answered with 403, as by RBAC. A controller tries again, at longer and longer
// intervals, so attempts say little. What counts is objects: a client, a verb, a resource and an
// object's namespace and name count once, however often the controller tries. Of objects that get
// their name from the server, those of one generateName in one namespace count as one. An object is
// lasting if the controller tries again [LastingAfter] after its first attempt: whoever runs the
// cluster has not done by then what the shadow would do. That is the figure to look at: beside a
// leader with the same flags it stays at 0, while the first attempts are mostly races for the same
// event. Events about objects are counted apart: many are about the refusals.
//
// dryRun=All would show the answers of admission. But it needs the very rights that a shadow should
// not have; it calls webhooks; the audit log has it as a write; and an aggregated API server or a
// subresource that does not know the parameter would write. That is not impossible enough. Answering
// with success would have controllers go on as though it were done, on objects that do not exist.
//
// # Rights
//
// Each kind of request, by identity, verb and resource, is asked about once, with the namespace and
// name of the first one seen: may this identity do that? With --use-service-account-credentials the
// identity of a controller's request is its service account, whose token a shadow cannot ask for,
// and the process's own requests are those of --shadow-rights-of, by default whoever the shadow is.
// What only a member does, with Leases and tokens, is asked about at the start.
//
// # Non-guarantees
//
//   - What follows a refused write is not seen: a ReplicaSet that is never made has no Pods.
//   - Reads of a shadow are those of its own identity. All controllers share it.
//   - Bytes are those of answers' bodies, without headers and TLS.
package shadow

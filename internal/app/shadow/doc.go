// Package shadow lets a process rehearse. It fills the caches and runs the controllers that a
// member would own, beside the fleet or leader that runs the cluster, and none of their writes
// reaches the API server.
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
//   - A request passes only if it is a GET or HEAD, asks for no upgrade of the connection, and is
//     not for exec, attach, portforward or proxy, which act by GET. Everything else is refused:
//     unknown methods, aggregated APIs, evictions, bindings, tokens of service accounts, reviews,
//     events. It is a list of what is allowed, so anything new is refused.
//   - The only other requests of the process create SelfSubjectAccessReviews and
//     SubjectAccessReviews, which change nothing. Their client's transport passes only these two
//     paths, and not even reads. (The secure port authenticates and authorizes its callers as
//     upstream does, with the kubeconfigs of those flags.)
//   - A shadow holds no Lease, is not a member, and touches no leader lock. A fleet of the same
//     name does not see it.
//   - Controllers that act on more than the API server (catalogue: ActsOutside) fill their caches
//     and do not run. They find no driver plugins, which the events alone would make them call.
//   - The records of refused writes, reads and rights are bounded: see the constants of each.
//
// # How writes are counted, and why they are not sent with dryRun
//
// A refused write is answered with 403, as RBAC would. A controller tries again, at longer and
// longer intervals, so attempts say little. So the shadow counts objects: a client, a verb, a
// resource and an object's namespace and name count once, however often the controller tries.
// Objects that get their name from the server count as one for each generateName and namespace. An
// object is lasting if the controller tries again [LastingAfter] after its first attempt: by then
// the cluster's leader has not done what the shadow would do. That is the figure to look at: beside
// a leader with the same flags it stays at 0, while the first attempts are mostly races for the
// same event. Events about objects are counted separately: many are about the refusals.
//
// dryRun=All would show the answers of admission. But it needs the very rights that a shadow should
// not have; it calls webhooks; it appears as a write in the audit log; and an aggregated API server
// or a subresource that does not know the parameter would write. A shadow must not be able to write
// at all. If the shadow answered with success, controllers would go on as though the write were
// done, on objects that do not exist.
//
// # Rights
//
// For each kind of request, by identity, verb and resource, the shadow asks once whether this
// identity may do that, with the namespace and name of the first request seen. With
// --use-service-account-credentials the identity of a controller's request is its service account,
// whose token a shadow cannot ask for. The process's own requests are those of --shadow-rights-of,
// by default the shadow's own identity. The shadow asks at the start about what only a member does,
// with Leases and tokens.
//
// # Non-guarantees
//
//   - The consequences of a refused write are not seen: a ReplicaSet that is never made has no
//     Pods.
//   - A shadow reads with its own identity, which all its controllers share.
//   - Bytes are those of answers' bodies, without headers and TLS.
package shadow

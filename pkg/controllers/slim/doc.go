// Package slim makes slim copies of Pods for the controllers of the groups "nodes" and "volumes",
// which look at all Pods of the cluster and read little of each. It also makes slim copies of Nodes
// for the controllers of ranges.
//
// # What a slim copy of a Pod has
//
//	metadata     name, namespace, uid, resourceVersion, generation, creationTimestamp,
//	             deletionTimestamp, ownerReferences, finalizers
//	spec         nodeName, resourceClaims, schedulingGroup, volumes that may be attached
//	status       phase, reason, observedGeneration, conditions Ready and DisruptionTarget,
//	             resourceClaimStatuses; the states of containers while the Pod is being deleted
//
// These controllers read the fields, in Kubernetes 1.37.1, below pkg/controller unless the path
// says otherwise:
//
//	generation, observedGeneration     pkg/api/v1/pod/util.go:473, 484: podgc's patch of a status
//	creationTimestamp                  podgc/gc_controller.go:341: the oldest go first
//	deletionTimestamp                  podgc/gc_controller.go:139, pkg/volume/util/util.go:299
//	ownerReferences, finalizers        the garbage collector, whose informer of metadata follows the
//	                                   slim copies (garbagecollector/graph_builder.go)
//	resourceVersion, uid               writes, and what events refer to
//	spec.nodeName                      all of them
//	spec.resourceClaims,               devicetainteviction/device_taint_eviction.go:1580
//	  status.resourceClaimStatuses
//	spec.schedulingGroup               devicetainteviction/device_taint_eviction.go:1052
//	spec.volumes                       volume/common/common.go, volume/attachdetach/util/util.go
//	status.phase, reason               podgc/gc_controller.go:130, 333
//	condition Ready                    util/node/controller_utils.go:134
//	condition DisruptionTarget         podgc/gc_controller.go:355: not patched twice
//	states of containers               pkg/volume/util/util.go:299, of Pods being deleted: an empty
//	                                   list would say that nothing runs, and detach volumes in use
//
// Slim copies lack volumes of the kinds emptyDir, configMap, secret, downwardAPI, projected,
// hostPath, gitRepo and image: no plugin attaches them, and they have no claim.
//
// # What a slim copy of a Node has
//
//	metadata     as of a Pod, and labels: daemon/daemon_controller.go:740, nodeaffinity;
//	             k8s.io/endpointslice/utils.go:63 (the zone), topologycache/topologycache.go:216
//	spec         taints: daemon/daemon_controller.go:742, tainteviction/taint_eviction.go:426
//	status       the condition Ready and allocatable: k8s.io/endpointslice/topologycache:
//	             utils.go:255, topologycache.go:225
//
// The controllers are daemonset, endpointslice and taint-eviction. None of them writes a Node. Slim
// copies lack the images on a Node, its annotations and its other conditions.
//
// # Guarantees
//
//   - A slim copy is a new object; its original stays as it is. Both may share what neither
//     changes.
//   - A slim copy of a slim copy is equal to it.
//   - A test goes through the source of the controllers that get slim copies (catalogue: Slim). It
//     fails if they read a field that slim copies lack, or pass a Node to code that may send it.
//     Another test runs the controllers of Pods on whole Pods and on slim copies through the same
//     history, and compares what they write.
//   - [Client] lets a controller update a Pod's status from a slim copy without losing anything.
//
// # Non-guarantees
//
//   - Logs at high levels show slim copies.
//   - A patch of podgc, which upstream computes from the cached status, names only the slim copy's
//     conditions where it gives their order. The result is the same.
package slim

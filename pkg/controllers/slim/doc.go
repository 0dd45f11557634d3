// Package slim makes slim copies of Pods for the controllers of the groups "nodes" and "volumes",
// which look at all Pods of the cluster and read little of each; and of Nodes for the controllers of
// ranges.
//
// # What a slim copy of a Pod has
//
//	metadata     name, namespace, uid, resourceVersion, generation, creationTimestamp,
//	             deletionTimestamp, ownerReferences, finalizers
//	spec         nodeName, resourceClaims, schedulingGroup, volumes that may be attached
//	status       phase, reason, observedGeneration, conditions Ready and DisruptionTarget,
//	             resourceClaimStatuses; the states of containers while the Pod is being deleted
//
// Who reads what, in Kubernetes 1.37.1, below pkg/controller unless the path says otherwise:
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
// Volumes of the kinds emptyDir, configMap, secret, downwardAPI, projected, hostPath, gitRepo and
// image are left out: no plugin attaches them, and no claim stands behind them.
//
// # What a slim copy of a Node has
//
//	metadata     as of a Pod, and labels: daemon/daemon_controller.go:740, nodeaffinity;
//	             k8s.io/endpointslice/utils.go:63 (the zone), topologycache/topologycache.go:216
//	spec         taints: daemon/daemon_controller.go:742, tainteviction/taint_eviction.go:426
//	status       the condition Ready and allocatable: k8s.io/endpointslice/topologycache:
//	             utils.go:255, topologycache.go:225
//
// Those are daemonset, endpointslice and taint-eviction. None of them writes a Node. The images on a
// Node, its annotations and its other conditions are left out.
//
// # Guarantees
//
//   - A slim copy is a new object; the one that it is made of stays as it is. Both may share what
//     neither changes.
//   - A slim copy of a slim copy is equal to it.
//   - A test goes through the source of the controllers that are given slim copies (catalogue: Slim),
//     and fails where they read a field that these lack, or pass a Node to what may send it. Another
//     one runs those of Pods on whole Pods and on slim copies through the same history, and compares
//     what they write.
//   - [Client] lets a controller update the status of a Pod by a slim copy and loses nothing of it.
//
// # Non-guarantees
//
//   - Logs at high levels show slim copies.
//   - A patch of podgc, which upstream computes from the cached status, names the conditions of the
//     slim copy where it says in which order conditions go. What comes of it is the same.
package slim

package catalogue

import "k8s.io/kubernetes/cmd/kube-controller-manager/names"

// Picture is the state that a controller keeps in memory about the cluster and decides by, apart
// from listers and queue keys. A source is a name and its place in upstream.
type Picture struct {
	// Keeps says what the state is, and who fills it.
	Keeps string
	// Waits says what Run waits for before it decides anything by the state.
	Waits string
	// Missing says what a decision costs if something is still missing, and why nothing is, here
	// and in stock.
	Missing string
}

// pictures has the picture of each controller that keeps one.
func pictures() map[string]Picture {
	return map[string]Picture{
		names.GarbageCollectorController: {
			Keeps: "The owners and dependents of every object in uidToNode " +
				"(garbagecollector/graph_builder.go:112). One worker fills it from graphChanges " +
				"(garbagecollector/graph_builder.go:109), a queue that the monitors' handlers " +
				"fill.",
			Waits: "At most 30 s for the monitors' caches, IsSynced " +
				"(garbagecollector/garbagecollector.go:162), and not for the queue.",
			Missing: "An owner whose dependents are still in the queue is let go as if it had none, " +
				"removeFinalizer (garbagecollector/garbagecollector.go:769), and they are " +
				"collected though they were to be orphaned. With stock the queue is short by " +
				"then, because lists take their time; with warm caches it is full. So a monitor " +
				"counts as synced only once the graph has what its handlers were told, and " +
				"owners that are let go come last (package owners).",
		},
		names.TaintEvictionController: {
			Keeps: "The taints of each Node in taintedNodes (tainteviction/taint_eviction.go:98) " +
				"and when each Pod is due in taintEvictionQueue " +
				"(tainteviction/taint_eviction.go:95). Workers fill both from the queues of " +
				"Nodes and of Pods.",
			Waits: "The two caches, podListerSynced (tainteviction/taint_eviction.go:301), and no " +
				"queue.",
			Missing: "Nothing is evicted for what is missing: a Pod whose Node has not had its turn " +
				"is passed over, and looked up when it has, getPodsAssignedToNode " +
				"(tainteviction/taint_eviction.go:566). The same in stock.",
		},
		names.DeviceTaintEvictionController: {
			Keeps: "Claims in allocatedClaims (devicetainteviction/device_taint_eviction.go:134), " +
				"slices in pools (devicetainteviction/device_taint_eviction.go:137), rules in " +
				"evictingRules (devicetainteviction/device_taint_eviction.go:140) and the Pods " +
				"that are due in deletePodAt " +
				"(devicetainteviction/device_taint_eviction.go:127). Handlers fill them under " +
				"one lock. Run adds these handlers, after the informers have started.",
			Waits: "Each of its handlers to have returned from what there is, haveSynced " +
				"(devicetainteviction/device_taint_eviction.go:1025).",
			Missing: "Nothing is missing when the first Pod is evicted, neither here nor in stock.",
		},
		names.TTLController: {
			Keeps: "The number of Nodes in nodeCount (ttl/ttl_controller.go:71). Its handlers " +
				"count.",
			Waits: "The cache of Nodes, hasSynced (ttl/ttl_controller.go:138).",
			Missing: "Nodes get the annotation of a smaller cluster, and the right one with their " +
				"next update: two writes a Node. With stock the handlers may lag behind the " +
				"cache. Here an informer has synced only once they have returned.",
		},
		names.NodeIpamController: {
			Keeps: "The CIDRs in use in cidrSets (nodeipam/ipam/range_allocator.go:84): from " +
				"listNodes (nodeipam/ipam/cidr_allocator.go:99) while it is built, then from " +
				"the queue of Nodes. The handler itself frees what a deleted Node had, " +
				"ReleaseCIDR (nodeipam/ipam/range_allocator.go:162).",
			Waits: "The cache of Nodes, nodesSynced (nodeipam/ipam/range_allocator.go:190), and no " +
				"queue.",
			Missing: "A CIDR is given twice. Nobody else gives any out from the claim on, and the " +
				"list is made after it (BuildAfterClaim), so none is missing. The deletion of a " +
				"Node that the list did not have any more frees a CIDR that may have been given " +
				"again; the Node that got it takes it back with its own event, occupyCIDRs " +
				"(nodeipam/ipam/range_allocator.go:322). The same in stock.",
		},
		names.NodeLifecycleController: {
			Keeps: "The Nodes it knows in knownNodeSet " +
				"(nodelifecycle/node_lifecycle_controller.go:239), when each was last heard of " +
				"in nodeHealthMap (nodelifecycle/node_lifecycle_controller.go:241), and " +
				"zoneStates (nodelifecycle/node_lifecycle_controller.go:250). Its own round " +
				"fills them from the listers, not its handlers.",
			Waits: "The four caches, leaseInformerSynced " +
				"(nodelifecycle/node_lifecycle_controller.go:470).",
			Missing: "Nothing is missing: each round takes all Nodes from the cache, nodeLister " +
				"(nodelifecycle/node_lifecycle_controller.go:686). The same in stock.",
		},
		names.PersistentVolumeAttachDetachController: {
			Keeps: "The Pods on each Node with their volumes in desiredStateOfWorld " +
				"(volume/attachdetach/attach_detach_controller.go:295), and what is attached in " +
				"actualStateOfWorld (volume/attachdetach/attach_detach_controller.go:303). " +
				"Handlers fill them, and Run once more from the listers, " +
				"populateDesiredStateOfWorld " +
				"(volume/attachdetach/attach_detach_controller.go:362).",
			Waits: "The seven caches, podsSynced " +
				"(volume/attachdetach/attach_detach_controller.go:352), and that second " +
				"filling.",
			Missing: "A volume that a Pod uses is detached. What the caches hold is not missing, " +
				"whatever the handlers have been told; a cache of the past would do it, and " +
				"does not sync (package informer). In stock the caches have just been listed.",
		},
		names.PersistentVolumeBinderController: {
			Keeps: "Copies of all volumes in volumes " +
				"(volume/persistentvolume/pv_controller_base.go:82) and of all claims in claims " +
				"(volume/persistentvolume/pv_controller_base.go:83). Run fills them from the " +
				"listers, initializeCaches (volume/persistentvolume/pv_controller_base.go:342), " +
				"later the queues do.",
			Waits: "The five caches, volumeListerSynced " +
				"(volume/persistentvolume/pv_controller_base.go:338), and that filling.",
			Missing: "The volume of a missing claim would be reclaimed. What the caches hold is not " +
				"missing, and before it releases a volume it asks the API server, kubeClient " +
				"(volume/persistentvolume/pv_controller.go:624). The same in stock.",
		},
		names.SELinuxWarningController: {
			Keeps: "The volumes and labels of all Pods in labelCache " +
				"(volume/selinuxwarning/selinux_warning_controller.go:83), which its workers " +
				"fill from the queue of Pods.",
			Waits: "The four caches, podsSynced " +
				"(volume/selinuxwarning/selinux_warning_controller.go:374), and no queue.",
			Missing: "A conflict is told, to both of its Pods, when the second one has its turn: " +
				"conflicts (volume/selinuxwarning/cache/volumecache.go:155). Until then the " +
				"events and the metric lack it. The same in stock.",
		},
		names.HorizontalPodAutoscalerController: {
			Keeps: "The selector of each autoscaler in selectorTracker " +
				"(podautoscaler/horizontal.go:131): one that selects nothing from the handler, " +
				"PutIfAbsent (podautoscaler/horizontal.go:299), the real one from its first " +
				"sync, PutIfPresent (podautoscaler/horizontal.go:452).",
			Waits: "The two caches, hpaListerSynced (podautoscaler/horizontal.go:237), and no " +
				"queue.",
			Missing: "Two autoscalers of one Pod both refuse to act, but only once both have been " +
				"synced. The first one may scale once at each start. The same in stock, which " +
				"starts more rarely.",
		},
		names.EndpointSliceController: {
			Keeps: "The CPUs of each zone in topologyCache " +
				"(endpointslice/endpointslice_controller.go:176). One worker sums them up from " +
				"the lister of Nodes, checkNodeTopologyDistribution " +
				"(endpointslice/endpointslice_controller.go:345), when its queue tells it to.",
			Waits: "The four caches, nodesSynced (endpointslice/endpointslice_controller.go:291). " +
				"The workers of Services begin together with that one and do not wait for it.",
			Missing: "Services with service.kubernetes.io/topology-mode: Auto that are synced before " +
				"it has summed up lose their hints until something about them changes, " +
				"cpuRatiosByZone (k8s.io/endpointslice/topologycache/topologycache.go:289). " +
				"That takes milliseconds. The same in stock, which starts more rarely.",
		},
		names.ResourceClaimController: {
			Keeps: "The Pods and PodGroups that it has seen deleted in deletedObjects " +
				"(resourceclaim/controller.go:156), from its handlers, and the claims that it " +
				"has made in claimCache (resourceclaim/controller.go:116) until the cache has " +
				"them.",
			Waits: "The caches, podSynced (resourceclaim/controller.go:828).",
			Missing: "Nothing is decided by what is missing: it asks for a consumer that it does not " +
				"find, kubeClient (resourceclaim/controller.go:1521). The same in stock.",
		},
		names.ResourceQuotaController: {
			Keeps: "Which extended resource each DeviceClass stands for in deviceClassMapping " +
				"(../quota/v1/evaluator/core/resource_claims.go:67), filled by the handler of " +
				"DeviceClasses, AddEventHandler (../quota/v1/evaluator/core/registry.go:70).",
			Waits: "The caches of quotas and of what it counts, informerSyncedFuncs " +
				"(resourcequota/resource_quota_controller.go:313), and not for DeviceClasses.",
			Missing: "The first sync of a quota for such a resource may leave out the claims of its " +
				"class, MatchingResources " +
				"(../quota/v1/evaluator/core/resource_claims.go:111), until the next one, " +
				"--resource-quota-sync-period later at most. The same in stock, which starts " +
				"more rarely.",
		},
	}
}

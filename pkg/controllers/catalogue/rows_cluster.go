package catalogue

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/bootstrap"

	"github.com/flotilla-kube/flotilla/pkg/controllers/slim"
)

func clusterRows() []Row {
	var rows []Row
	for group, members := range map[string][]Row{
		GroupNodes:        nodes(),
		GroupVolumes:      volumes(),
		GroupGarbage:      garbage(),
		GroupCertificates: certificates(),
		GroupPolicy:       policy(),
	} {
		for _, row := range members {
			row.Scope, row.Group = ScopeCluster, group
			rows = append(rows, row)
		}
	}
	return rows
}

// slimPods is for controllers that read no more of Pods than slim copies have.
func slimPods() []schema.GroupVersionResource { return []schema.GroupVersionResource{slim.Pods} }

func nodes() []Row {
	return []Row{{
		Name: names.NodeLifecycleController,
		Why: "Reads all Nodes and their Leases and the Pods on a Node, whatever their namespace; writes Nodes and the Pods' status. " +
			"The rate of tainting depends on the share of unhealthy Nodes in a zone.",
		Clients:        []Client{client("node-controller")},
		Slim:           slimPods(),
		UpdatesSlim:    true,
		RestartHazards: "Gauges per zone are set and never deleted: they stay in the process after the group has left it (nodelifecycle/metrics.go:38).",
		Forgets: "Since when a Node is silent: a successor waits the monitor grace period again. Which Nodes it knows: to a successor each is new, " +
			"and it takes the NoExecute taints off every new one (node_lifecycle_controller.go, markNodeAsReachable). A Node that is unreachable gets " +
			"its taint back, and the tolerationSeconds of its Pods begin again.",
	}, {
		Name:            names.NodeIpamController,
		Why:             "Reads all Nodes; gives each a pod CIDR that no other has, from a map that it keeps in memory.",
		Clients:         []Client{client("node-controller")},
		BuildAfterClaim: true,
		BuildHazards: "Lists all Nodes live, for up to ten minutes, and fills its map of CIDRs from them (nodeipam/ipam/cidr_allocator.go:99). " +
			"What another holder gave out after that is learned from the queue, which may come after a new Node's turn: a CIDR given twice. " +
			"Fails on a Node whose CIDR does not fit.",
		RestartHazards: "The gauges of CIDR use stay in the process after the group has left it (nodeipam/ipam/cidrset/metrics.go:48).",
	}, {
		Name:    names.TTLController,
		Why:     "Counts all Nodes and writes to each how long its kubelet may cache secrets; the count sets the value.",
		Clients: []Client{client("ttl-controller")},
	}, {
		Name: names.PodGarbageCollectorController,
		Why: "Reads all Pods and Nodes; marks and deletes Pods of Nodes that are gone, and the oldest of the terminated ones beyond a number. " +
			"That number is one for the whole cluster: an instance that sees part of the Pods cannot tell how many there are, or which are the oldest.",
		Clients:      []Client{client("pod-garbage-collector")},
		Slim:         slimPods(),
		EarlierScope: ScopeNamespaced,
		Forgets:      "Since when a Node is missing: a successor waits its 40 s of quarantine again.",
	}, {
		Name: names.DeviceTaintEvictionController,
		Why: "Reads all ResourceSlices, DeviceTaintRules, ResourceClaims and Pods; evicts Pods and writes to each rule how many Pods of how many namespaces wait. " +
			"In this group because it watches all Pods.",
		Clients: []Client{client(names.DeviceTaintEvictionController)},
		Slim:    slimPods(),
		workers: func(c *Config) *int32 { return &c.DeviceTaintEvictionController.ConcurrentSyncs },
		RestartHazards: "With the gate DRAWorkloadResourceClaims, Run adds an index to the pod informer; on one that an earlier instance ran on, " +
			"it fails, logs and evicts nothing until it is stopped (devicetainteviction/device_taint_eviction.go:1047).",
		Forgets: "How many Pods a rule has evicted, which its status tells.",
	}, {
		Name: names.ResourcePoolStatusRequestController,
		Why: "Reads one ResourcePoolStatusRequest, all ResourceSlices, and all ResourceClaims to count the devices in use; writes the request. " +
			"In this group because it shares slices and claims with device-taint-eviction.",
		Clients: []Client{client("resourcepoolstatusrequest-controller")},
	}, {
		Name: names.StorageVersionGarbageCollectorController,
		Why: "Reads the Leases of API servers in kube-system and all StorageVersions; deletes or updates StorageVersions of servers that are gone. " +
			"In this group because its informer is that of all Leases, the Nodes' included.",
		Clients: []Client{client("storage-version-garbage-collector")},
	}}
}

func volumes() []Row {
	return []Row{{
		Name: names.PersistentVolumeBinderController,
		Why: "Reads all volumes and claims and binds them to each other; reclaims the volume of a claim that it cannot see. " +
			"Never to be cut by namespace.",
		Clients:     []Client{client("persistent-volume-binder")},
		ActsOutside: "Makes and removes directories of its own machine below /tmp for volumes of type hostPath (pkg/volume/hostpath/host_path.go:291 and 351).",
		Slim:        slimPods(),
		RestartHazards: "The metrics of volumes and claims are collected from the first instance's own stores, which stay in memory; the caches that it read are emptied once it has ended " +
			"(volume/persistentvolume/metrics/metrics.go:68). Goroutines that recycle or delete a volume are not waited for by Run (pv_controller.go:1888).",
	}, {
		Name: names.PersistentVolumeAttachDetachController,
		Why: "Reads all Pods, Nodes, claims, volumes and VolumeAttachments; detaches a volume from a Node when no Pod that it sees uses it there. " +
			"Writes VolumeAttachments and Nodes.",
		Clients:      []Client{client("attachdetach-controller")},
		ActsOutside:  runsFlexVolumes,
		Slim:         slimPods(),
		BuildHazards: watchesFlexVolumes,
		RestartHazards: "The metrics of volumes are collected from the caches of the first instance in the process, which are emptied with their last user; " +
			"what it wanted to have attached stays in memory, with the Pods " +
			"(volume/attachdetach/metrics/metrics.go:80). Goroutines that attach or detach are not waited for by Run and write without its context " +
			"(pkg/volume/csi/csi_attacher.go:118 and 442).",
		Forgets: "Since when a detach is asked for: the six minutes before it is forced begin again.",
	}, {
		Name:    names.PersistentVolumeProtectionController,
		Why:     "Reads one PersistentVolume, which is cluster-scoped, and writes its finalizer.",
		Clients: []Client{client("pv-protection-controller")},
	}, {
		Name: names.VolumeAttributesClassProtectionController,
		Why: "Reads one VolumeAttributesClass and all volumes and claims that name it; removes its finalizer when it sees none. " +
			"An instance that sees part of the claims would let go of a class in use.",
		Clients: []Client{client("volumeattributesclass-protection-controller")},
		RestartHazards: "Adds an index to the informer of volumes. Where the process keeps that informer, a second instance fails to build with an indexer conflict " +
			"(volume/vacprotection/vac_protection_controller.go:128).",
	}, {
		Name: names.SELinuxWarningController,
		Why: "Reads all Pods with their claims and volumes and compares those that use the same volume, of whatever namespace; " +
			"writes events and a metric only. It reads the containers of Pods: with it, the group has Pods whole.",
		Clients:      []Client{client(names.SELinuxWarningController)},
		BuildHazards: watchesFlexVolumes,
		RestartHazards: "The metric of conflicts is collected from the cache of the first instance in the process: it shows those for ever and none of a later instance " +
			"(volume/selinuxwarning/metrics.go:38).",
	}}
}

func garbage() []Row {
	return []Row{{
		Name: names.GarbageCollectorController,
		Why: "Reads the metadata of every object; deletes those whose owners are gone and releases owners whose dependents are gone. " +
			"Owners may be cluster-scoped and have dependents in every namespace. " +
			"In the default plan it is in parts: each range has what concerns owners in its namespaces, this group what concerns cluster-scoped ones.",
		// From the config upstream builds a metadata client.
		Clients: []Client{client("generic-garbage-collector"), discovery("generic-garbage-collector"), config("generic-garbage-collector", 2, 1)},
		workers: func(c *Config) *int32 { return &c.GarbageCollectorController.ConcurrentGCSyncs },
		Needs:   []Need{NeedGraphBuilder},
		BuildHazards: "None, but neither does it ask for its informers: Run does, after a discovery, and waits 30 s for them " +
			"(garbagecollector/garbagecollector.go:158). Warming up means to create them before.",
		Forgets: "The whole graph.",
	}, {
		Name: names.StorageVersionMigratorController,
		Why: "Reads one StorageVersionMigration and every object of its resource; writes each object once, the migration, and the status of its CustomResourceDefinition. " +
			"In this group because it reads the objects from the garbage collector's monitors, if that is there whole, and otherwise by itself.",
		// From the config upstream builds four clients: CRDs, dynamic, discovery, metadata.
		Clients: []Client{config(names.StorageVersionMigratorController, 20, 100), client(names.StorageVersionMigratorController)},
		Needs:   []Need{NeedGraphBuilder},
	}}
}

func certificates() []Row {
	return []Row{{
		Name:         names.CertificateSigningRequestSigningController,
		Why:          "Reads one CertificateSigningRequest, which is cluster-scoped, and writes its certificate.",
		Clients:      []Client{client("certificate-controller")},
		BuildHazards: "Reads the signing keys from their files.",
	}, {
		Name:    names.CertificateSigningRequestApprovingController,
		Why:     "Reads one CertificateSigningRequest, which is cluster-scoped, and writes its approval; asks the server whether the requester may.",
		Clients: []Client{client("certificate-controller")},
	}, {
		Name:    names.CertificateSigningRequestCleanerController,
		Why:     "Reads CertificateSigningRequests, which are cluster-scoped, and deletes the old ones.",
		Clients: []Client{client("certificate-controller")},
		Forgets: "When it last ran: every instance sweeps at its start.",
	}, {
		Name: names.KubeAPIServerClusterTrustBundlePublisherController,
		Why:  "Reads the ClusterTrustBundles of one signer, which are cluster-scoped; writes one and deletes the others.",
		Clients: []Client{
			ca("root-ca-cert-publisher"),
			client("kube-apiserver-serving-clustertrustbundle-publisher"),
		},
		BuildHazards: "Asks the server whether it knows ClusterTrustBundles. Brings an informer of its own, outside of the factory, which Run starts " +
			"(certificates/clustertrustbundlepublisher/publisher.go:347).",
	}}
}

func policy() []Row {
	return []Row{{
		Name:    names.ClusterRoleAggregationController,
		Why:     "Reads all ClusterRoles and writes the rules of those that aggregate others.",
		Clients: []Client{client("clusterrole-aggregation-controller")},
	}, {
		Name:    names.ValidatingAdmissionPolicyStatusController,
		Why:     "Reads one ValidatingAdmissionPolicy, which is cluster-scoped, and the server's schemas; writes the policy's status.",
		Clients: []Client{discovery(names.ValidatingAdmissionPolicyStatusController), client(names.ValidatingAdmissionPolicyStatusController)},
		workers: func(c *Config) *int32 { return &c.ValidatingAdmissionPolicyStatusController.ConcurrentPolicySyncs },
	}, {
		Name:    names.ServiceCIDRController,
		Why:     "Reads one ServiceCIDR, those that overlap it, and all IPAddresses, all cluster-scoped; writes its finalizer and status.",
		Clients: []Client{client("service-cidrs-controller")},
	}, {
		Name: names.BootstrapSignerController,
		Why: "Reads the bootstrap token Secrets of kube-system and signs the ConfigMap cluster-info of kube-public with them. " +
			"The two namespaces are in different ranges, and a signer that sees no tokens removes all signatures. It reads no other namespace.",
		Clients: []Client{client("bootstrap-signer")},
		FieldSelectors: []FieldSelector{
			bootstrapTokens(bootstrap.DefaultSignerOptions().TokenSecretNamespace,
				"Its handler lets through no others, and it lists that namespace for that type (bootstrap/bootstrapsigner.go:139 and 288)."),
			clusterInfo("Its handler lets through no other, and it asks for no other (bootstrap/bootstrapsigner.go:120). " +
				"It updates its copy of the cached one, which is whole."),
		},
	}}
}

const runsFlexVolumes = "Runs the programs in --flex-volume-plugin-dir that attach and detach (pkg/volume/flexvolume/driver-call.go:125)."

const watchesFlexVolumes = "Creates --flex-volume-plugin-dir where it is missing, and watches it with a goroutine that ends with the context given to the constructor " +
	"(pkg/volume/flexvolume/probe.go:60)."

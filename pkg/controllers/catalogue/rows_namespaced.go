package catalogue

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/bootstrap"

	"github.com/flotilla-kube/flotilla/pkg/controllers/slim"
)

// namespacedRows are in the order of upstream's registration, grouped by subject.
func namespacedRows() []Row {
	rows := workloads()
	rows = append(rows, services()...)
	rows = append(rows, namespaces()...)
	rows = append(rows, pods()...)
	rows = append(rows, claims()...)
	for i := range rows {
		rows[i].Scope = ScopeNamespaced
	}
	return rows
}

// slimNodes is for controllers that read no more of Nodes than slim copies have.
func slimNodes() []schema.GroupVersionResource { return []schema.GroupVersionResource{slim.Nodes} }

func workloads() []Row {
	return []Row{{
		Name:    names.DeploymentController,
		Why:     "Reads one Deployment and the ReplicaSets and Pods of its namespace; writes the Deployment and its ReplicaSets there.",
		Clients: []Client{client("deployment-controller")},
		workers: func(c *Config) *int32 { return &c.DeploymentController.ConcurrentDeploymentSyncs },
		// It writes status at the end of a sync, and waits for nothing before the next one
		// (deployment/sync.go:488).
		AwaitUpdates: true,
	}, {
		Name: names.ReplicaSetController,
		Why: "Reads one ReplicaSet and the Pods and sibling ReplicaSets of its namespace; creates, adopts and deletes Pods there. " +
			"The index by owner UID crosses no namespace, because owners are of the same one.",
		Clients: []Client{client("replicaset-controller")},
		workers: func(c *Config) *int32 { return &c.ReplicaSetController.ConcurrentRSSyncs },
		RestartHazards: "Each instance registers the metrics again, which is an error in its log unless the registry lets the same metric pass " +
			"(replicaset/replica_set.go:158).",
	}, {
		Name:    names.ReplicationControllerController,
		Why:     "The ReplicaSet loop on ReplicationControllers: reads one and the Pods of its namespace, writes Pods there.",
		Clients: []Client{client("replication-controller")},
		workers: func(c *Config) *int32 { return &c.ReplicationController.ConcurrentRCSyncs },
	}, {
		Name:    names.StatefulSetController,
		Why:     "Reads one StatefulSet and the Pods, claims and ControllerRevisions of its namespace; writes those.",
		Clients: []Client{client("statefulset-controller")},
		workers: func(c *Config) *int32 { return &c.StatefulSetController.ConcurrentStatefulSetSyncs },
		RestartHazards: "Gauges per StatefulSet are never deleted: those of a shard that left stay in the process " +
			"(statefulset/stateful_set_control.go:859 and 958).",
	}, {
		Name: names.DaemonSetController,
		Why: "Reads one DaemonSet, the Pods and ControllerRevisions of its namespace, and all Nodes; writes Pods and ControllerRevisions there. " +
			"A Node's change looks at the Pods on it only to find DaemonSets to queue, so the filtered view loses nothing.",
		Clients: []Client{client("daemon-set-controller")},
		Slim:    slimNodes(),
		workers: func(c *Config) *int32 { return &c.DaemonSetController.ConcurrentDaemonSetSyncs },
		Forgets: "The back-off of failed daemon pods.",
	}, {
		Name:    names.JobController,
		Why:     "Reads one Job and the Pods of its namespace, with gates also its Workloads and PodGroups; writes those.",
		Clients: []Client{client("job-controller")},
		workers: func(c *Config) *int32 { return &c.JobController.ConcurrentJobSyncs },
		Forgets: "The back-off of failed pods: it begins again with the next one, at 10 s.",
	}, {
		Name:    names.CronJobController,
		Why:     "Reads one CronJob and the Jobs of its namespace; creates and deletes Jobs there, under names that the schedule fixes.",
		Clients: []Client{client("cronjob-controller")},
		workers: func(c *Config) *int32 { return &c.CronJobController.ConcurrentCronJobSyncs },
	}, {
		Name:         names.TTLAfterFinishedController,
		Why:          "Reads one Job, asks the server for it again, and deletes it by UID.",
		Clients:      []Client{client("ttl-after-finished-controller")},
		workers:      func(c *Config) *int32 { return &c.TTLAfterFinishedController.ConcurrentTTLSyncs },
		BuildHazards: startsRecorder,
	}, {
		Name: names.HorizontalPodAutoscalerController,
		Why: "Reads one HorizontalPodAutoscaler and the Pods of its namespace, and live the scale of its target and its metrics, all of that namespace; " +
			"writes the scale and the autoscaler's status. Two autoscalers of one Pod are looked for within the namespace.",
		// From the config upstream builds a scale client and three metrics clients. An autoscaler of
		// CPU or memory uses the first for each period, and that of resource metrics.
		Clients: []Client{
			{Name: "horizontal-pod-autoscaler", Via: ViaConfig, QPS: 1, Burst: 1, Busy: 2}, client("horizontal-pod-autoscaler"),
		},
		workers:      func(c *Config) *int32 { return &c.HPAController.ConcurrentHorizontalPodAutoscalerSyncs },
		BuildHazards: startsRecorder,
		RestartHazards: "The gauge of autoscalers counts up for each one seen and is not counted down when an instance stops; " +
			"the gauges per autoscaler are never deleted (podautoscaler/monitor/monitor.go:70 and 80).",
		Forgets: "Past recommendations and scale events. The first sync takes the present replicas as a recommendation, " +
			"so a scale-down waits the full stabilization window again.",
	}, {
		Name: names.DisruptionController,
		Why: "Reads one PodDisruptionBudget, the Pods and workloads of its namespace, and live the scale of other owners there; " +
			"writes the budget's status and the status of those Pods.",
		Clients: []Client{client("disruption-controller"), config("disruption-controller", 1, 1)},
		workers: func(c *Config) *int32 { return &c.DisruptionController.ConcurrentDisruptionSyncs },
	}}
}

func services() []Row {
	return []Row{{
		Name: names.EndpointsController,
		Why: "Reads one Service and the Pods of its namespace; writes the Endpoints of the same name. " +
			"At the start it queues all Endpoints it sees, to delete those without a Service of the same namespace and name.",
		Clients: []Client{client("endpoint-controller")},
		workers: func(c *Config) *int32 { return &c.EndpointController.ConcurrentEndpointSyncs },
	}, {
		Name: names.EndpointSliceController,
		Why: "Reads one Service, the Pods and EndpointSlices of its namespace, and all Nodes; writes EndpointSlices there. " +
			"Topology hints come from the Nodes and this Service's endpoints alone.",
		Clients: []Client{client("endpointslice-controller")},
		Slim:    slimNodes(),
		workers: func(c *Config) *int32 { return &c.EndpointSliceController.ConcurrentServiceEndpointSyncs },
		RestartHazards: "Each instance sets the gauges of slices and endpoints to its own totals: they show the shard that wrote last " +
			"(k8s.io/endpointslice/metrics/cache.go, updateMetrics).",
	}, {
		Name:    names.EndpointSliceMirroringController,
		Why:     "Reads one Endpoints object, its Service and the EndpointSlices of its namespace; writes EndpointSlices there.",
		Clients: []Client{client("endpointslicemirroring-controller")},
		workers: func(c *Config) *int32 {
			return &c.EndpointSliceMirroringController.MirroringConcurrentServiceEndpointSyncs
		},
		RestartHazards: "Each instance sets the gauges of slices and endpoints to its own totals: they show the shard that wrote last " +
			"(endpointslicemirroring/metrics/cache.go:149).",
	}}
}

func namespaces() []Row {
	return []Row{{
		Name: names.NamespaceController,
		Why: "Reads one Namespace, then live everything in it; deletes the contents and finalizes the Namespace. " +
			"A Namespace's name hashes like its contents, so both are in the same range.",
		// From the config upstream builds a client set and a metadata client.
		Clients: []Client{config("namespace-controller", 20, 100)},
		workers: func(c *Config) *int32 { return &c.NamespaceController.ConcurrentNamespaceSyncs },
		Needs:   []Need{NeedNamespaceFilter},
		BuildHazards: "Asks the server for its resources, and ends the process (klog.FlushAndExit) when the answer is empty " +
			"(namespace/deletion/namespaced_resources_deleter.go:167).",
	}, {
		Name: names.ResourceQuotaController,
		Why: "Reads one ResourceQuota and counts what its namespace holds, over every namespaced kind; writes the quota's status. " +
			"Counts never cross a namespace.",
		Clients: []Client{client("resourcequota-controller"), discovery("resourcequota-controller")},
		workers: func(c *Config) *int32 { return &c.ResourceQuotaController.ConcurrentResourceQuotaSyncs },
		Needs:   []Need{NeedOneCache},
		// The controller measures these by content (quota/v1/evaluator/core) and filters by it
		// (quota/v1/install/update_filter.go); it counts the rest.
		TypedKinds: []schema.GroupResource{
			{Resource: "pods"}, {Resource: "services"}, {Resource: "persistentvolumeclaims"}, {Group: "resource.k8s.io", Resource: "resourceclaims"},
		},
		BuildHazards: "Asks the server for its resources and fails when there is no answer (resourcequota/resource_quota_controller.go:173).",
	}, {
		Name:    names.ServiceAccountController,
		Why:     "Reads one Namespace and the ServiceAccount default in it; creates it when it is missing.",
		Clients: []Client{client("service-account-controller")},
		Needs:   []Need{NeedNamespaceFilter},
	}, {
		Name: names.ServiceAccountTokenController,
		Why: "Reads one token Secret and its ServiceAccount, of the same namespace, and asks the server before it decides that the account is gone; " +
			"writes that Secret and the account's list of secrets.",
		Clients: []Client{ca("tokens-controller"), client("tokens-controller")},
		workers: func(c *Config) *int32 { return &c.SAController.ConcurrentSATokenSyncs },
		Needs:   []Need{NeedRootClient},
		FieldSelectors: []FieldSelector{accountTokens("Its handler lets through no other type, and it lists those that are tokens of one account " +
			"(serviceaccount/tokens_controller.go:115 and 589). It writes a copy that it has asked the server for.")},
		BuildHazards: "Reads the private key and the root CA from their files.",
	}, {
		Name: names.LegacyServiceAccountTokenCleanerController,
		Why: "Reads token Secrets with the ServiceAccount and the Pods of the Secret's namespace; labels and deletes the Secrets. " +
			"The date since when use is tracked comes live from a ConfigMap in kube-system, which it does not write.",
		Clients:        []Client{client("legacy-service-account-token-cleaner")},
		FieldSelectors: []FieldSelector{accountTokens("It passes over all other types (serviceaccount/legacy_serviceaccount_token_cleaner.go:139). It patches by name and deletes by version.")},
		Forgets:        "When it last ran: every instance sweeps at its start, then once a day.",
	}, {
		Name:    names.RootCACertificatePublisherController,
		Why:     "Reads one Namespace and the ConfigMap kube-root-ca.crt in it; writes that ConfigMap.",
		Clients: []Client{ca("root-ca-cert-publisher"), client("root-ca-cert-publisher")},
		Needs:   []Need{NeedNamespaceFilter},
		FieldSelectors: []FieldSelector{rootCAs("It is told of no other name, and asks for no other (certificates/rootcacertpublisher/publisher.go:134, 146 and 196). " +
			"It updates its copy of the cached one, which is whole.")},
		BuildHazards: "Reads the root CA from its file.",
	}, {
		Name:    names.TokenCleanerController,
		Why:     "Reads one bootstrap token Secret and deletes it by UID once it has expired. All are in kube-system: it idles in every other range.",
		Clients: []Client{client("token-cleaner")},
		FieldSelectors: []FieldSelector{bootstrapTokens(bootstrap.DefaultTokenCleanerOptions().TokenSecretNamespace,
			"Its handler lets through no others, and it asks for none but those it was told of (bootstrap/tokencleaner.go:95 and 191). It deletes by UID.")},
	}, {
		Name:         names.PodCertificateRequestCleanerController,
		Why:          "Reads PodCertificateRequests one by one and deletes the old ones by UID. It looks at nothing else.",
		Clients:      []Client{client("podcertificaterequestcleaner")},
		BuildHazards: "Calls ClientOrDie, which ends the process with upstream's builders when there is no client (cmd/kube-controller-manager/app/certificates.go:245).",
		Forgets:      "When it last ran: every instance sweeps at its start, then every five minutes.",
	}}
}

func pods() []Row {
	return []Row{{
		Name: names.TaintEvictionController,
		Why: "Reads all Nodes and one Pod; marks and deletes that Pod. A Node's change looks up the Pods on it in its own cache, " +
			"and each of them is judged alone, so each range evicts its own.",
		Clients: []Client{client("node-controller")},
		Slim:    slimNodes(),
		Needs:   []Need{NeedPodNodeNameIndex},
		Forgets: "When a Pod's tolerationSeconds began: they begin again with every instance.",
	}, {
		Name: names.PodGroupProtectionController,
		Why:  "Reads one PodGroup and the Pods of its namespace that name it; removes the PodGroup's finalizer when there are none.",
		Clients: []Client{
			client("podgroup-protection-controller"),
		},
	}, {
		Name: names.ResourceClaimController,
		Why: "Reads one Pod, PodGroup or ResourceClaim and the claims and templates of its namespace, and asks the server before it takes a consumer for gone; " +
			"writes claims and Pod status there. Consumers of a claim are of its namespace.",
		Clients: []Client{client("resource-claim-controller")},
		workers: func(c *Config) *int32 { return &c.ResourceClaimController.ConcurrentSyncs },
		RestartHazards: "The metric of claims is collected from the lister of the first instance in the process, whose cache is empty once it has ended " +
			"(resourceclaim/metrics/metrics.go:62).",
	}}
}

func claims() []Row {
	return []Row{{
		Name:         names.EphemeralVolumeController,
		Why:          "Reads one Pod and the claims of its namespace; creates the claims of its ephemeral volumes.",
		Clients:      []Client{client("ephemeral-volume-controller")},
		workers:      func(c *Config) *int32 { return &c.EphemeralVolumeController.ConcurrentEphemeralVolumeSyncs },
		BuildHazards: startsRecorder,
	}, {
		Name: names.PersistentVolumeClaimProtectionController,
		Why: "Reads one claim and the Pods of its namespace, from the cache and then live, before it removes the finalizer; " +
			"writes that claim.",
		Clients: []Client{client("pvc-protection-controller")},
	}, {
		Name: names.PersistentVolumeExpanderController,
		Why: "Reads one claim, and live the volume bound to it, after checking the volume's claim reference by UID; " +
			"writes that claim and, for plugins that expand in the control plane, that volume. A volume belongs to one claim, so to one range.",
		Clients:      []Client{client("expand-controller")},
		BuildHazards: startsRecorder,
	}}
}

const startsRecorder = "Starts the goroutines that record events. They end with the context given to the constructor, not with Run."

package catalogue

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Deciding returns the controllers that decide over objects of a resource, sorted: those that write
// or delete them, and those whose reconciles are about them. It leaves out the namespace
// controller's deletion of everything in a namespace that is being deleted. Every object has the
// garbage collector, under the plan's name for the part that collects such objects.
func Deciding(resource schema.GroupResource, namespaced bool, plan shard.Plan) []string {
	deciding := []string{names.GarbageCollectorController}
	if !namespaced && inGroup(plan, ClusterCollector) {
		deciding = []string{ClusterCollector}
	}
	for controller, resources := range objects {
		if slices.Contains(resources, resource) {
			deciding = append(deciding, controller)
		}
	}
	slices.Sort(deciding)
	return deciding
}

func inGroup(plan shard.Plan, controller string) bool {
	for _, s := range plan.Shards() {
		if slices.Contains(s.Controllers, controller) {
			return true
		}
	}
	return false
}

func resource(group string) func(...string) []schema.GroupResource {
	return func(resources ...string) (all []schema.GroupResource) {
		for _, name := range resources {
			all = append(all, schema.GroupResource{Group: group, Resource: name})
		}
		return all
	}
}

var (
	inCore         = resource("")
	inAdmission    = resource("admissionregistration.k8s.io")
	inApps         = resource("apps")
	inAutoscaling  = resource("autoscaling")
	inBatch        = resource("batch")
	inCertificates = resource("certificates.k8s.io")
	inDiscovery    = resource("discovery.k8s.io")
	inMigration    = resource("storagemigration.k8s.io")
	inNetworking   = resource("networking.k8s.io")
	inPolicy       = resource("policy")
	inRBAC         = resource("rbac.authorization.k8s.io")
	inDevices      = resource("resource.k8s.io")
	inScheduling   = resource("scheduling.k8s.io")
	inServers      = resource("internal.apiserver.k8s.io")
	inStorage      = resource("storage.k8s.io")
)

// objects has the resources whose objects each controller decides over, without the garbage
// collector.
var objects = map[string][]schema.GroupResource{
	names.BootstrapSignerController:                          inCore("configmaps", "secrets"),
	names.CertificateSigningRequestApprovingController:       inCertificates("certificatesigningrequests"),
	names.CertificateSigningRequestCleanerController:         inCertificates("certificatesigningrequests"),
	names.CertificateSigningRequestSigningController:         inCertificates("certificatesigningrequests"),
	names.ClusterRoleAggregationController:                   inRBAC("clusterroles"),
	names.CronJobController:                                  inBatch("cronjobs", "jobs"),
	names.DaemonSetController:                                slices.Concat(inApps("daemonsets", "controllerrevisions"), inCore("pods")),
	names.DeploymentController:                               inApps("deployments", "replicasets"),
	names.DeviceTaintEvictionController:                      slices.Concat(inDevices("devicetaintrules"), inCore("pods")),
	names.DisruptionController:                               slices.Concat(inPolicy("poddisruptionbudgets"), inCore("pods")),
	names.EndpointsController:                                inCore("services", "endpoints"),
	names.EndpointSliceController:                            slices.Concat(inCore("services"), inDiscovery("endpointslices")),
	names.EndpointSliceMirroringController:                   slices.Concat(inCore("endpoints"), inDiscovery("endpointslices")),
	names.EphemeralVolumeController:                          inCore("pods", "persistentvolumeclaims"),
	names.HorizontalPodAutoscalerController:                  inAutoscaling("horizontalpodautoscalers"),
	names.JobController:                                      slices.Concat(inBatch("jobs"), inCore("pods")),
	names.KubeAPIServerClusterTrustBundlePublisherController: inCertificates("clustertrustbundles"),
	names.LegacyServiceAccountTokenCleanerController:         inCore("secrets"),
	names.NamespaceController:                                inCore("namespaces"),
	names.NodeIpamController:                                 inCore("nodes"),
	names.NodeLifecycleController:                            inCore("nodes", "pods"),
	names.PersistentVolumeAttachDetachController:             slices.Concat(inStorage("volumeattachments"), inCore("nodes", "pods")),
	names.PersistentVolumeBinderController:                   inCore("persistentvolumes", "persistentvolumeclaims"),
	names.PersistentVolumeExpanderController:                 inCore("persistentvolumes", "persistentvolumeclaims"),
	names.PersistentVolumeProtectionController:               inCore("persistentvolumes"),
	names.PersistentVolumeClaimProtectionController:          inCore("persistentvolumeclaims"),
	names.PodGarbageCollectorController:                      inCore("pods"),
	names.PodCertificateRequestCleanerController:             inCertificates("podcertificaterequests"),
	names.PodGroupProtectionController:                       inScheduling("podgroups"),
	names.ReplicaSetController:                               slices.Concat(inApps("replicasets"), inCore("pods")),
	names.ReplicationControllerController:                    inCore("replicationcontrollers", "pods"),
	names.ResourceClaimController:                            slices.Concat(inDevices("resourceclaims"), inCore("pods")),
	names.ResourcePoolStatusRequestController:                inDevices("resourcepoolstatusrequests"),
	names.ResourceQuotaController:                            inCore("resourcequotas"),
	names.RootCACertificatePublisherController:               inCore("configmaps"),
	names.SELinuxWarningController:                           inCore("pods"),
	names.ServiceCIDRController:                              inNetworking("servicecidrs"),
	names.ServiceAccountController:                           inCore("serviceaccounts"),
	names.ServiceAccountTokenController:                      inCore("serviceaccounts", "secrets"),
	names.StatefulSetController:                              slices.Concat(inApps("statefulsets", "controllerrevisions"), inCore("pods", "persistentvolumeclaims")),
	names.StorageVersionMigratorController:                   inMigration("storageversionmigrations"),
	names.StorageVersionGarbageCollectorController:           inServers("storageversions"),
	names.TaintEvictionController:                            inCore("pods"),
	names.TokenCleanerController:                             inCore("secrets"),
	names.TTLAfterFinishedController:                         inBatch("jobs"),
	names.TTLController:                                      inCore("nodes"),
	names.ValidatingAdmissionPolicyStatusController:          inAdmission("validatingadmissionpolicies"),
	names.VolumeAttributesClassProtectionController:          inStorage("volumeattributesclasses"),
}

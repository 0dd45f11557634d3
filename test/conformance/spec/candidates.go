package spec

import (
	"regexp"
	"slices"
	"strings"
)

// source is a part of upstream's test/e2e whose specs are candidates.
type source struct {
	file string // A file, or a folder with a slash at its end.
	only string // An expression; empty for all specs of the file.
	why  string
}

// sources lists the specs that involve a controller of the controller manager or the API machinery
// below it.
var sources = []source{
	{file: "apps/", why: "the workload controllers: Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, CronJob, disruption, TTL after finished"},
	{file: "apimachinery/", why: "garbage collector, ResourceQuota, namespaces, and the API machinery that all controllers stand on"},
	{file: "auth/", why: "service accounts and their tokens, certificate requests, the root CA's ConfigMap"},
	{file: "network/endpoints.go", why: "Endpoints"},
	{file: "network/endpointslice.go", why: "EndpointSlices"},
	{file: "network/endpointslicemirroring.go", why: "EndpointSlices of Endpoints without a selector"},
	{file: "network/ingressclass.go", why: "the API of network classes; no controller"},
	{file: "network/service_cidrs.go", why: "ServiceCIDRs and addresses, whose finalizer a controller keeps"},
	{file: "network/service.go", only: `lifecycle|collection of services|find a service|NodePort (out|collisions)|SCTP`,
		why: "Services as objects and their endpoints; what sends traffic is left out"},
	{file: "node/taints.go", why: "eviction from tainted nodes"},
	{file: "node/node_lifecycle.go", why: "nodes as objects"},
	{file: "scheduling/preemption.go", why: "preempted pods and the controllers that replace them"},
	{file: "scheduling/limit_range.go", why: "defaults of pods"},
	{file: "storage/pv_protection.go", why: "protection of volumes in use"},
	{file: "storage/pvc_protection.go", why: "protection of claims in use"},
	{file: "storage/persistent_volumes.go", why: "the binder: phases of volumes and claims"},
	{file: "storage/csi_inline.go", why: "CSI objects"},
	{file: "storage/csi_node.go", why: "CSI objects"},
	{file: "storage/csistoragecapacity.go", why: "CSI objects"},
	{file: "storage/storageclass.go", why: "storage classes"},
	{file: "storage/volume_attachment.go", why: "attachments as objects"},
	{file: "storage/volumeattributesclass.go", why: "classes of volume attributes, whose finalizer a controller keeps"},
	{file: "dra/", why: "claims for devices, by a driver that is all control plane"},
	{file: "kubectl/apply.go", why: "kubectl on objects that controllers look after"},
	{file: "kubectl/rollout.go", why: "kubectl on objects that controllers look after"},
	{file: "kubectl/kubectl.go", only: `create quota|Kubectl (taint|replace|patch|describe|label)`,
		why: "kubectl on objects that controllers look after"},
}

// leftOut is an expression for specs that are not tried although their file is a source, and the
// reason they cannot pass.
type leftOut struct {
	text string
	file string // If set, the expression applies to this file only.
	why  string
}

var left = []leftOut{
	{text: `\[Feature:`, why: "an optional feature, a cloud or hardware that is not here; but see features"},
	{text: `\[Alpha\]`, why: "an API or feature that is off by default"},
	{text: `\[Disruptive\]`, why: "it restarts machines or the control plane by ssh"},
	{text: `\[Provider:`, why: "it is for a cloud"},
	{text: `\[Flaky\]`, why: "upstream itself does not rely on it"},
	{text: `\[NodeConformance\]`, why: "it is about a kubelet"},
	{text: `CockroachDB|with PVCs|private image|ImagePullBackOff|private registry`, why: "it needs real containers or images"},
	{file: "apimachinery/webhook.go", text: `.`, why: "its webhook is a server in a pod"},
	{file: "apimachinery/crd_conversion_webhook.go", text: `.`, why: "its webhook is a server in a pod"},
	{file: "apimachinery/aggregator.go", text: `.`, why: "its API server is a pod"},
	{file: "auth/projected_clustertrustbundle.go", text: `mount|volumes|starting`, why: "it reads what a kubelet has mounted"},
	{file: "auth/projected_podcertificate.go", text: `.`, why: "it reads what a kubelet has mounted"},
	{file: "auth/service_accounts.go", text: `mount|OIDC|InClusterConfig|ownership`, why: "it reads what a kubelet has mounted"},
	{file: "auth/node_authn.go", text: `.`, why: "it asks a kubelet"},
	{file: "auth/per_node_update.go", text: `.`, why: "it runs commands in a pod"},
	{file: "storage/persistent_volumes.go", text: `NFS`, why: "its server is a container"},
	{file: "storage/persistent_volumes.go", text: `Default StorageClass`, why: "it needs a provisioner"},
	{file: "apimachinery/openapiv3.go", text: `Aggregated`, why: "its API server is a pod"},
	{file: "apimachinery/chunking.go", text: `compacted away`, why: "it waits ten minutes for etcd; no controller has a part in it"},
	{file: "apps/job.go", text: `succeeded(Indexes|Count) rule|backoffLimit|maxFailedIndexes|exit code|despite some failing|FailIndex|failure-count|DisruptionTarget|only after they have failed`,
		why: "containers of its pods must fail, or some end and others not"},
	{file: "apps/cronjob.go", text: `delete failed finished`, why: "containers of its pods must fail"},
	{file: "apps/disruption.go", text: `unready pods|evict ready pods`, why: "a probe must fail"},
	{file: "apps/deployment.go", text: `proportional scaling`, why: "pods of an image that is not there must not run"},
	{file: "apps/statefulset.go", text: `unhealthy|rolling updates and roll backs|partiton1|evicted statefulset|basic identity|predecessor fails|matching orphans`,
		why: "it breaks and repairs containers by commands in them, or needs a kubelet that rejects a pod"},
	{text: `should serve a basic image`, why: "it asks containers for what they serve"},
	{file: "network/endpointslice.go", text: `specified in multiple`, why: "it sends traffic"},
	{file: "network/endpointslicemirroring.go", text: `multiple subsets`, why: "it sends traffic"},
	{file: "network/service_cidrs.go", text: `serve on different`, why: "it sends traffic"},
}

// features matches marks that are ignored: features that upstream calls optional but every cluster
// has, and evictions that upstream calls disruptive but that restart nothing.
var features = regexp.MustCompile(`\[Feature:(PodPriority|ComprehensiveNamespaceDraining|NodeAuthorizer)\]|NoExecuteTaintManager .*\[Disruptive\]`)

// Candidates returns the texts of the specs that are worth trying on a control plane without
// kubelets and containers. A run with the stock controller manager decides which of them pass.
func Candidates(all []Listed) []string {
	var texts []string
	for _, s := range all {
		if candidate(s) {
			texts = append(texts, s.Text)
		}
	}
	return texts
}

func candidate(s Listed) bool {
	holds := func(c compiled) bool { return c.holds(s) }
	if !slices.ContainsFunc(compiledSources, holds) {
		return false
	}
	unmarked := Listed{File: s.File, Text: features.ReplaceAllString(s.Text, "")}
	return !slices.ContainsFunc(compiledLeft, func(c compiled) bool { return c.holds(unmarked) })
}

type compiled struct {
	file       string
	expression *regexp.Regexp
	why        string
}

var (
	compiledSources = func() (all []compiled) {
		for _, s := range sources {
			all = append(all, compiled{file: s.file, expression: regexp.MustCompile(s.only), why: s.why})
		}
		return all
	}()
	compiledLeft = func() (all []compiled) {
		for _, l := range left {
			all = append(all, compiled{file: l.file, expression: regexp.MustCompile(l.text), why: l.why})
		}
		return all
	}()
)

func (c compiled) holds(s Listed) bool {
	here := c.file == "" || c.file == s.File || strings.HasSuffix(c.file, "/") && strings.HasPrefix(s.File, c.file)
	return here && c.expression.MatchString(s.Text)
}

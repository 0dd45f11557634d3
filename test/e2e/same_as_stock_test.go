package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"errors"
	"flag"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/retry"

	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// settled is how long a state must last to count as final. The stock controller manager's, which is
// the reference, must last longer: a controller that is slow on a busy machine would still change
// it.
const (
	settled      = 3 * time.Second
	settledStock = 10 * time.Second
)

// everywhere are the flags of all compared controller managers: every controller whose objects a
// default API server has.
var everywhere = []string{
	"--controllers=*,bootstrap-signer-controller,token-cleaner-controller,selinux-warning-controller",
	"--allocate-node-cidrs=true",
	"--cluster-cidr=10.244.0.0/16",
}

// quick are Lease timings that keep a test short, because a fleet waits for a lease duration before
// it creates a Lease. They are not minimal: a busy machine may keep a member from renewing for
// seconds, and the member would exit.
var quick = []string{
	"--leader-elect-lease-duration=10s",
	"--leader-elect-renew-deadline=7s",
	"--leader-elect-retry-period=1s",
	"--rebalance-delay=1s",
}

var everySetup = flag.Bool("every-setup", false, "make TestSameAsStock also compare a single member, without election and with one shard")

// TestSameAsStock gives the same input to the stock controller manager and to the fleet, each on
// its own control plane, and requires that all objects of the two clusters end up the same. Each of
// the fleet's writes must come from the holder of its shard.
func TestSameAsStock(t *testing.T) {
	t.Parallel()
	request := certificateRequest(t)
	want := map[string]any{}
	stockFamilies := map[string]bool{}
	for _, setup := range []struct {
		name    string
		members int
		flags   []string
	}{
		{"stock", 0, []string{"--leader-elect=false"}},
		{"alone", 1, []string{"--leader-elect=false"}},
		{"fleet of one", 1, append([]string{"--shards=1"}, quick...)},
		{"fleet of three", 3, quick},
	} {
		t.Run(setup.name, func(t *testing.T) {
			if setup.members == 1 && !*everySetup {
				t.Skip("left out: a fleet of three is enough without -every-setup")
			}
			if setup.members > 0 && len(want) == 0 {
				t.Skip("left out: there is nothing to compare with")
			}
			run := startRun(t, request)
			flags := append(slices.Clone(everywhere), setup.flags...)
			if setup.members == 0 {
				run.managers = append(run.managers, harness.Run(t, run.plane, harness.Spec{Name: harness.Stock, Binary: harness.Stock, Flags: flags}))
			}
			for i := range setup.members {
				run.managers = append(run.managers, harness.Run(t, run.plane, harness.Member(fmt.Sprintf("member-%d", i), flags...)))
			}
			run.work(t)
			if setup.members == 0 {
				want, stockFamilies = run.final(t, nil), run.families(t)
				t.Logf("%d objects, %d metric families", len(want), len(stockFamilies))
				return
			}
			run.final(t, want)
			run.requireFamilies(t, stockFamilies, setup.members > 1)
			if setup.name == "alone" {
				return // without election there are no Leases to judge by
			}
			if o := judgeUndisturbed(t, run.plane).Objects; min(o.Creates, o.Deletes, o.ReplicaSets, o.Jobs, o.EndpointSlices) == 0 {
				t.Errorf("objects judged: %+v; want created and deleted pods, ReplicaSets, Jobs and EndpointSlices among them", o)
			}
		})
	}
}

// run is one control plane with its controller managers, through the whole input.
type run struct {
	plane    *controlplane.ControlPlane
	cluster  *cluster
	client   kubernetes.Interface
	request  []byte
	managers []*harness.Manager
	began    time.Time
}

func startRun(t *testing.T, request []byte) *run {
	plane := harness.StartPlane(t, controlplane.Options{Nodes: 3, Scheduler: true, AuditObjects: true})
	r := &run{plane: plane, cluster: newCluster(t, plane), client: harness.Client(t, plane), request: request}
	r.cluster.create(t, "base.yaml")
	// As on a node whose kubelet leaves attaching to the controller manager.
	r.cluster.patch(t, "nodes", "node-000", `{"metadata":{"annotations":{"volumes.kubernetes.io/controller-managed-attach-detach":"true"}}}`)
	// Otherwise the scheduler would decide which pods are evicted there later.
	r.taint(t, "node-002", corev1.Taint{Key: "example.com/reserved", Effect: corev1.TaintEffectNoSchedule})
	r.began = time.Now()
	return r
}

// work creates the workload, waits until it runs, makes changes, and waits until they have been
// carried out.
func (r *run) work(t *testing.T) {
	t.Helper()
	r.reached(t, "quota counted", counted)
	r.cluster.create(t, "workload.yaml")
	r.createCertificateRequests(t)
	r.reached(t, "workload runs", running)
	r.change(t)
	r.reached(t, "changes made", changed)
}

func (r *run) reached(t *testing.T, what string, expectations []expectation) {
	t.Helper()
	harness.Eventually(t, harness.Patience, what, r.cluster.meets(t, expectations))
	t.Logf("%s after %.1f s", what, time.Since(r.began).Seconds())
}

// counted is what the quota controller writes to the quotas before there is anything to count.
// Nothing may be created earlier.
var counted = []expectation{
	{"resourcequotas", "policy/quota", "{.status.used.services}", "0"},
	{"resourcequotas", "policy/besteffort", "{.status.used.pods}", "0"},
	{"serviceaccounts", "web/default", "{.metadata.name}", "default"},
}

var running = []expectation{
	{"deployments", "web/web", "{.status.availableReplicas}", "4"},
	{"deployments", "web/recreated", "{.status.availableReplicas}", "2"},
	{"endpoints", "web/web", "{.subsets[0].ports[0].port}", "8080"},
	{"poddisruptionbudgets", "web/web", "{.status.disruptionsAllowed}", "2"},
	{"horizontalpodautoscalers", "web/recreated", `{.status.conditions[?(@.type=="ScalingActive")].status}`, "False"},
	{"jobs", "batch/three", "{.status.succeeded}", "3"},
	{"jobs", "batch/indexed", "{.status.completedIndexes}", "0,1"},
	{"jobs", "batch/running", "{.status.ready}", "1"},
	{"jobs", "batch/by-hand", "{.status.succeeded}", "1"},
	{"jobs", "batch/short-lived", "", gone},
	{"statefulsets", "data/db", "{.status.readyReplicas}", "3"},
	{"persistentvolumeclaims", "data/kept", "{.status.phase}", "Bound"},
	{"persistentvolumeclaims", "data/released", "{.status.phase}", "Bound"},
	{"persistentvolumeclaims", "data/scratch-scratch", "{.status.phase}", "Bound"},
	{"pods", "data/scratch", "{.status.phase}", "Running"},
	{"pods", "data/attached", "{.status.phase}", "Running"},
	{"pods", "data/wants-device", "{.status.resourceClaimStatuses[0].name}", something},
	{"replicationcontrollers", "policy/old", "{.status.availableReplicas}", "2"},
	{"resourcequotas", "policy/quota", `{.status.used.pods} {.status.used.services} {.status.used.count/deployments\.apps}`, "4 2 1"},
	{"secrets", "policy/robot-token", "{.data.namespace}", "cG9saWN5"},
	{"secrets", "policy/retired-token", "{.data.namespace}", "cG9saWN5"},
	{"daemonsets", "orders/agent", "{.status.numberReady}", "3"},
	{"deployments", "orders/pinned", "{.status.availableReplicas}", "2"},
	{"deployments", "gone/stuff", "{.status.availableReplicas}", "2"},
	{"certificatesigningrequests", "kubelet", `{.status.conditions[0].type}`, "Approved"},
	{"clusterroles", "all-widgets", "{.rules[*].verbs}", `["get","list"] ["update"]`},
	{"validatingadmissionpolicies", "typed", "{.status.observedGeneration}", "1"},
	{"servicecidrs", "more", `{.status.conditions[?(@.type=="Ready")].status}`, "True"},
	{"volumeattributesclasses", "fast", "{.metadata.finalizers}", `["kubernetes.io/vac-protection"]`},
	{"secrets", "kube-system/bootstrap-token-fedcba", "", gone},
	{"nodes", "node-002", "{.spec.podCIDR}", something},
	{"nodes", "node-002", "{.metadata.annotations.node\\.alpha\\.kubernetes\\.io/ttl}", "0"},
}

// change makes changes that controllers act on again.
func (r *run) change(t *testing.T) {
	t.Helper()
	c := r.cluster
	c.patch(t, "deployments", "web/web", `{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`)
	c.patch(t, "deployments", "web/recreated", `{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`)
	c.patch(t, "statefulsets", "data/db", `{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`)
	c.patch(t, "daemonsets", "orders/agent", `{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`)
	c.patch(t, "replicationcontrollers", "policy/old", `{"spec":{"replicas":1}}`)
	// Long enough ago that the first of January has passed since.
	long := time.Now().AddDate(-1, 0, -1).UTC().Format(time.RFC3339)
	c.patch(t, "cronjobs", "batch/due", fmt.Sprintf(`{"status":{"lastScheduleTime":%q}}`, long), "status")
	c.delete(t, "namespaces", "gone", metav1.DeletePropagationBackground)
	c.delete(t, "configmaps", "orders/background", metav1.DeletePropagationBackground)
	c.delete(t, "configmaps", "orders/foreground", metav1.DeletePropagationForeground)
	c.delete(t, "configmaps", "orders/orphaning", metav1.DeletePropagationOrphan)
	c.delete(t, "clusterroles", "cluster-owner", metav1.DeletePropagationBackground)
	c.delete(t, "persistentvolumeclaims", "data/released", metav1.DeletePropagationBackground)
	c.delete(t, "services", "policy/uncounted", metav1.DeletePropagationBackground)
	c.delete(t, "serviceaccounts", "policy/retired", metav1.DeletePropagationBackground)
	r.taint(t, "node-002", corev1.Taint{Key: "example.com/broken", Effect: corev1.TaintEffectNoExecute})
	r.approve(t, "client")
	r.attach(t)
}

var changed = []expectation{
	{"deployments", "web/web", "{.status.updatedReplicas} {.status.availableReplicas} {.status.replicas}", "4 4 4"},
	{"deployments", "web/recreated", "{.status.updatedReplicas} {.status.availableReplicas} {.status.replicas}", "2 2 2"},
	{"statefulsets", "data/db", "{.status.updatedReplicas} {.status.readyReplicas}", "3 3"},
	{"daemonsets", "orders/agent", "{.status.updatedNumberScheduled} {.status.numberReady}", "3 3"},
	{"replicationcontrollers", "policy/old", "{.status.replicas}", "1"},
	{"cronjobs", "batch/due", "{.status.lastSuccessfulTime}", something},
	{"namespaces", "gone", "", gone},
	{"secrets", "orders/of-background", "", gone},
	{"configmaps", "orders/foreground", "", gone},
	{"widgets", "orders/of-foreground", "", gone},
	{"configmaps", "orders/of-orphaning", "{.metadata.ownerReferences}", ""},
	{"configmaps", "web/of-cluster-owner", "", gone},
	{"configmaps", "data/of-cluster-owner", "", gone},
	{"persistentvolumes", "volume-released", "{.status.phase}", "Released"},
	{"resourcequotas", "policy/quota", "{.status.used.pods} {.status.used.services}", "3 1"},
	{"secrets", "policy/retired-token", "", gone},
	{"deployments", "orders/pinned", "{.status.unavailableReplicas}", "2"},
	{"certificatesigningrequests", "kubelet", "{.status.certificate}", something},
	{"certificatesigningrequests", "client", "{.status.certificate}", something},
	{"nodes", "node-000", "{.status.volumesAttached[0].name}", "kubernetes.io/csi/csi.example.com^volume-attached"},
}

func (r *run) taint(t *testing.T, name string, taint corev1.Taint) {
	t.Helper()
	harness.Eventually(t, harness.Patience, "taint the node", func(ctx context.Context) error {
		node, err := r.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Spec.Taints = append(node.Spec.Taints, taint)
		_, err = r.client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
}

// attach acts as a CSI driver would, so that the volume is attached to its node.
func (r *run) attach(t *testing.T) {
	t.Helper()
	harness.Eventually(t, harness.Patience, "attach the volume", func(ctx context.Context) error {
		list, err := r.client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("%d volume attachments, want 1", len(list.Items))
		}
		list.Items[0].Status.Attached = true
		_, err = r.client.StorageV1().VolumeAttachments().UpdateStatus(ctx, &list.Items[0], metav1.UpdateOptions{})
		return err
	})
}

// certificateRequest is the same for all runs, for comparison.
func certificateRequest(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := cert.MakeCSR(key, &pkix.Name{CommonName: "system:node:node-000", Organization: []string{"system:nodes"}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// createCertificateRequests creates one request as a kubelet does, which is approved because of its
// sender, and one that somebody must approve.
func (r *run) createCertificateRequests(t *testing.T) {
	t.Helper()
	for name, signer := range map[string]string{
		"kubelet": certificatesv1.KubeAPIServerClientKubeletSignerName,
		"client":  certificatesv1.KubeAPIServerClientSignerName,
	} {
		request := &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request:    r.request,
				SignerName: signer,
				Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
			},
		}
		if _, err := r.client.CertificatesV1().CertificateSigningRequests().Create(t.Context(), request, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func (r *run) approve(t *testing.T, name string) {
	t.Helper()
	requests := r.client.CertificatesV1().CertificateSigningRequests()
	// A controller may write it at the same time.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		request, err := requests.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test",
		})
		_, err = requests.UpdateApproval(t.Context(), name, request, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// final waits until the state stops changing, and equals want if there is one, and returns it.
func (r *run) final(t *testing.T, want map[string]any) map[string]any {
	t.Helper()
	var state map[string]any
	since, lasts := time.Now(), settled
	if want == nil {
		lasts = settledStock
	}
	harness.Eventually(t, harness.Patience, "state the same as that of the stock controller manager", func(ctx context.Context) error {
		objects, err := r.cluster.dump(ctx)
		if err != nil {
			return err
		}
		last := state
		state = Normalize(objects)
		if !reflect.DeepEqual(last, state) {
			since = time.Now()
		}
		if want != nil {
			if diff := Difference(want, state); diff != "" {
				return errors.New(diff)
			}
		}
		if time.Since(since) < lasts {
			return errors.New("the state has not settled")
		}
		return nil
	})
	t.Logf("state final after %.1f s", since.Sub(r.began).Seconds())
	return state
}

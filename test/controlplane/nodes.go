package controlplane

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// RunForAnnotation on a pod of a Job says how long the pod runs before it succeeds, as a Go
// duration: "250ms", "1h".
const RunForAnnotation = "flotilla.dev/run-for"

const (
	kwokName = "kwok"
	// kwok writes as this user. It is in system:masters because it stands for every kubelet at
	// once.
	kwokUser = "kwok"

	// kwok manages only nodes with this annotation, and leaves a test's own nodes alone.
	nodeAnnotation = "kwok.x-k8s.io/node"
	nodeKind       = "fake"

	// A node's name has three digits.
	maxNodes = 1000

	// Pods get addresses from this range, which must not overlap the services'.
	podCIDR = "10.128.0.0/12"
	nodeIP  = "192.0.2.2"

	// As a kubelet's: kwok renews it every quarter, and misses two renewals before node-lifecycle
	// reacts.
	nodeLeaseSeconds = 40
)

//go:embed stages.yaml
var stages string

//go:embed stages-job.yaml
var jobStages string

// startNodes starts kwok, creates the nodes and waits until all are Ready.
func (cp *ControlPlane) startNodes(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(cp.admin)
	if err != nil {
		return err
	}
	if cp.opts.From != "" {
		// While another kwok's Leases may be valid, kwok ignores new pods on those nodes, and does
		// not make up for it.
		err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("controlplane: delete the Leases of nodes: %w", err)
		}
	}
	p, err := cp.startKwok()
	if err != nil {
		return err
	}
	began := time.Now()
	for i := range cp.opts.Nodes {
		node := newNode(fmt.Sprintf("node-%03d", i))
		_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if err != nil && !(cp.opts.From != "" && apierrors.IsAlreadyExists(err)) {
			return fmt.Errorf("controlplane: create %s: %w", node.Name, err)
		}
	}
	ready := 0
	allReady := func(ctx context.Context) (bool, error) {
		if p.ended() {
			return false, fmt.Errorf("kwok ended: %v", p.Wait())
		}
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		ready = 0
		for _, node := range nodes.Items {
			if isReady(node.Status.Conditions) {
				ready++
			}
		}
		return ready == cp.opts.Nodes, nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := wait.PollUntilContextCancel(ctx, pollInterval, true, allReady); err != nil {
		return fmt.Errorf("controlplane: %d of %d nodes are Ready: %w\n%s",
			ready, cp.opts.Nodes, err, tail(p.LogPath()))
	}
	cp.logf("nodes: %d ready after %.1f s", ready, time.Since(began).Seconds())
	return nil
}

func (cp *ControlPlane) startKwok() (*Process, error) {
	binary, err := cp.Binary(kwokName)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := cp.Kubeconfig(kwokUser, mastersGroup)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(cp.dir, "kwok.yaml")
	if err := os.WriteFile(config, []byte(cp.opts.stages()), 0o644); err != nil {
		return nil, err
	}
	return cp.StartProcess(kwokName, binary, []string{
		"--kubeconfig=" + kubeconfig,
		"--config=" + config,
		"--manage-nodes-with-annotation-selector=" + nodeAnnotation + "=" + nodeKind,
		"--node-lease-duration-seconds=" + strconv.Itoa(nodeLeaseSeconds),
		"--node-ip=" + nodeIP,
		"--cidr=" + podCIDR,
	})
}

// stages returns kwok's configuration: how it simulates nodes and pods.
func (o Options) stages() string {
	if o.JobDuration < 0 {
		return stages
	}
	return stages + strings.NewReplacer(
		"RUN_FOR_ANNOTATION", RunForAnnotation,
		"SHORTEST_MILLISECONDS", strconv.FormatInt(o.JobDuration.Milliseconds(), 10),
		"LONGEST_MILLISECONDS", strconv.FormatInt(2*o.JobDuration.Milliseconds(), 10),
	).Replace(jobStages)
}

// newNode returns a node with room for any test. kwok adds the conditions.
func newNode(name string) *corev1.Node {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("1000"),
		corev1.ResourceMemory:           resource.MustParse("4Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Ti"),
		corev1.ResourcePods:             resource.MustParse("10000"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{nodeAnnotation: nodeKind},
			Labels: map[string]string{
				corev1.LabelHostname:   name,
				corev1.LabelOSStable:   "linux",
				corev1.LabelArchStable: "amd64",
			},
		},
		Status: corev1.NodeStatus{
			Capacity:    resources,
			Allocatable: resources,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: nodeIP},
				{Type: corev1.NodeHostName, Address: name},
			},
			NodeInfo: corev1.NodeSystemInfo{
				OperatingSystem:         "linux",
				Architecture:            "amd64",
				KubeletVersion:          "simulated",
				ContainerRuntimeVersion: "simulated",
			},
		},
	}
}

func isReady(conditions []corev1.NodeCondition) bool {
	for _, condition := range conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

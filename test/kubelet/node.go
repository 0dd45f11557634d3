package kubelet

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	// A kubelet's Lease lasts 40 s and is renewed every quarter of that.
	leaseSeconds = 40
	heartbeat    = 10 * time.Second

	hostIP = "127.0.0.1"
)

// register creates the Node, with the condition Ready.
func (k *Kubelet) register(ctx context.Context) error {
	labels := map[string]string{
		corev1.LabelHostname: k.opts.Node, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
	}
	maps.Copy(labels, k.opts.Labels)
	resources := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: k.opts.Node, Labels: labels},
		Spec:       corev1.NodeSpec{Taints: k.opts.Taints},
		Status: corev1.NodeStatus{
			Capacity: resources, Allocatable: resources,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: hostIP}, {Type: corev1.NodeHostName, Address: k.opts.Node}},
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
			}},
		},
	}
	if _, err := k.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return err
	}
	return k.renew(ctx)
}

// heartbeat renews the node's Lease until ctx ends.
func (k *Kubelet) heartbeat(ctx context.Context) {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := k.renew(ctx); err != nil && ctx.Err() == nil {
				k.logf("renew the node's Lease: %v", err)
			}
		}
	}
}

func (k *Kubelet) renew(ctx context.Context) error {
	leases := k.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Get(ctx, k.opts.Node, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	spec := coordinationv1.LeaseSpec{
		HolderIdentity: &k.opts.Node, LeaseDurationSeconds: ptr.To[int32](leaseSeconds), RenewTime: ptr.To(metav1.NowMicro()),
	}
	if err != nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: k.opts.Node}, Spec: spec}
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
		return err
	}
	lease.Spec = spec
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

var lastAddress atomic.Uint32

// nextAddress returns a loopback address that no other pod of this process has, and most likely no
// other process either.
func nextAddress() (string, error) {
	const first, last = 2, 254
	pid := os.Getpid()
	n := first + lastAddress.Add(1)%(last-first)
	// 127.0.0.0/16 is left to other programs.
	address := fmt.Sprintf("127.%d.%d.%d", 1+pid>>8%250, pid%256, n)
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return "", fmt.Errorf("kubelet: no address for a pod: %w", err)
	}
	return address, listener.Close()
}

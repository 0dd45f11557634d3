package deploy

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// TestStaticPod runs kubeadm's manifest with another image, on a node whose keys only root may
// read.
func TestStaticPod(t *testing.T) {
	t.Parallel() // The tests wait more than they work.
	// The manifest has a fixed address and port.
	listener, err := net.Listen("tcp", "127.0.0.1:"+securePort)
	if err != nil {
		t.Fatalf("the static pod needs a port that is taken: %v", err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	c := startCluster(t, controlplane.Options{})
	defer c.requireRights(t, "system:kube-controller-manager")
	log := c.startNode(t, "cp-0", c.controlPlaneFiles(t))
	c.kubectl(t, mirror(readFile(t, filepath.Join(root, staticPod)), "cp-0"), "create", "-f", "-")
	eventually(t, "the static pod is ready", func(ctx context.Context) error {
		pod, err := c.client.CoreV1().Pods(system).Get(ctx, stockName, metav1.GetOptions{})
		if err == nil && !isReady(*pod) {
			err = fmt.Errorf("%+v", pod.Status.ContainerStatuses)
		}
		return err
	})
	// Controllers create what pods need, such as this account.
	eventually(t, "its controllers work", func(ctx context.Context) error {
		_, err := c.client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	c.kubectl(t, "", "-n", system, "delete", "pod", stockName, "--timeout="+harness.Patience.String())
	if n := log.requireOrder(t); n != 1 {
		t.Errorf("%d processes have ended, want one", n)
	}
	c.judge(t)
	c.requireNoPanic(t)
}

// controlPlaneFiles returns a folder with the files of a kubeadm node that the controller manager
// reads, in kubeadm's modes.
func (c *cluster) controlPlaneFiles(t *testing.T) string {
	t.Helper()
	host := t.TempDir()
	pki := filepath.Join(c.Dir(), "pki")
	for to, from := range map[string]string{
		"controller-manager.conf": c.managerKubeconfig(t),
		"pki/ca.crt":              filepath.Join(pki, "ca.crt"),
		"pki/ca.key":              filepath.Join(pki, "ca.key"),
		"pki/sa.key":              filepath.Join(pki, "sa.key"),
		"pki/front-proxy-ca.crt":  filepath.Join(pki, "ca.crt"),
	} {
		path := filepath.Join(host, "etc/kubernetes", to)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(readFile(t, from)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return host
}

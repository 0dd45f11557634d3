package main

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/flotilla-kube/flotilla/test/harness"
)

var (
	//go:embed kubeadm.yaml
	kubeadmText   string
	kubeadmConfig = template.Must(template.New("kubeadm").Parse(kubeadmText))
)

const (
	endpoint = balancerIP + ":6443"
	// token lets nodes join. It can be a constant because the network is private to the test.
	token = "f10711.0123456789abcdef"

	// slow is the timeout for steps that take a minute or two on an idle machine.
	slow = 10 * time.Minute
)

// cluster is the cluster that the stages work on.
type cluster struct {
	out *printer
	// place is the working folder, whose name is that of the cluster's cgroups.
	place, bin string
	images     *images
	nodes      []*node
	front      *balancer
	key        string
	config     *rest.Config
	client     kubernetes.Interface
	book       *handbook
	// marks are the sizes of the audit logs when the stage began.
	marks map[string]int64
}

// newCluster makes everything that nodes need, but no node yet.
func newCluster(place string, out *printer) (*cluster, error) {
	bin, err := filepath.Abs("bin")
	if err != nil {
		return nil, err
	}
	book, err := readHandbook(".")
	if err != nil {
		return nil, err
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // It never fails.
	c := &cluster{out: out, place: place, bin: bin, key: hex.EncodeToString(key), book: book}
	// kube-proxy mounts /lib/modules even if it is empty.
	if err := inOrder(
		func() error { return enter() },
		func() error { return os.MkdirAll(filepath.Join(place, "usr/lib/modules"), 0o755) },
		func() error { return os.MkdirAll(filepath.Join(place, "log"), 0o755) },
		func() error { return os.WriteFile(filepath.Join(place, "init.sh"), []byte(initScript), 0o644) },
	); err != nil {
		return nil, err
	}
	if c.front, err = newBalancer(endpoint); err != nil {
		return nil, err
	}
	for i, name := range []string{"cp1", "cp2", "cp3", "w1"} {
		dir := filepath.Join(place, "nodes", name)
		c.nodes = append(c.nodes, &node{
			name: name, ip: fmt.Sprintf("%s%d", subnet, 11+i), controlPlane: strings.HasPrefix(name, "cp"), dir: dir, root: filepath.Join(dir, "root"),
		})
	}
	return c, nil
}

func (c *cluster) close() { c.front.close() }

// central returns the control-plane nodes.
func (c *cluster) central() []*node {
	return slices.DeleteFunc(slices.Clone(c.nodes), func(n *node) bool { return !n.controlPlane })
}

// up makes a cluster of all nodes, run by the stock kube-controller-manager.
func (c *cluster) up(ctx context.Context) error {
	c.out.begin("up")
	first := c.nodes[0]
	err := c.out.step("images", func() (err error) {
		later, err := c.book.image("set-image")
		if err != nil {
			return err
		}
		minor, err := c.book.image("minor")
		if err != nil {
			return err
		}
		c.images, err = makeImages(ctx, filepath.Join(c.place, "images"), c.bin, later, minor)
		return err
	})
	if err != nil {
		return err
	}
	for _, n := range c.nodes {
		if err := c.install(n); err != nil {
			return err
		}
	}
	if err := c.out.step("cp1 boots", func() error { return c.start(ctx, first) }); err != nil {
		return err
	}
	c.front.set(c.servers()...)
	if err := c.out.step("kubeadm init", func() error {
		if err := c.kubeadm(ctx, first, "init --upload-certs"); err != nil {
			return err
		}
		// kubeadm requires a DNS server for an upgrade. Nothing in this test queries one.
		return first.quiet(ctx, "kubectl -n kube-system scale deployment/coredns --replicas=0")
	}); err != nil {
		return err
	}
	if err := inOrder(
		func() error { return c.connect() },
		func() error { return c.out.step("cp1 is Ready", func() error { return c.network(ctx, first) }) },
	); err != nil {
		return err
	}
	for _, n := range c.nodes[1:] {
		err := c.out.step(n.name+" boots and joins", func() error {
			return inOrder(
				func() error { return c.start(ctx, n) },
				func() error { return c.kubeadm(ctx, n, "join") },
				func() error { return c.network(ctx, n) },
			)
		})
		if err != nil {
			return err
		}
		c.front.set(c.servers()...)
	}
	return c.out.step("kube-proxy runs on all nodes", func() error {
		return c.nodes[0].quiet(ctx, "kubectl -n kube-system rollout status daemonset/kube-proxy --timeout=4m")
	})
}

// start boots a node and imports its images. The node runs a kubelet as soon as one is configured.
func (c *cluster) start(ctx context.Context, n *node) error {
	if err := c.boot(ctx, n); err != nil {
		return err
	}
	if err := c.load(ctx, n); err != nil {
		return err
	}
	return n.quiet(ctx, "systemctl start kubelet")
}

// servers returns the addresses of the API servers on running nodes.
func (c *cluster) servers() []string {
	var all []string
	for _, n := range c.central() {
		if n.runs() {
			all = append(all, net.JoinHostPort(n.ip, "6443"))
		}
	}
	return all
}

func (n *node) runs() bool {
	if n.cmd == nil {
		return false
	}
	select {
	case <-n.ended:
		return false
	default:
		return true
	}
}

// kubeadm runs kubeadm's init or join with the node's configuration.
func (c *cluster) kubeadm(ctx context.Context, n *node, command string) error {
	var text bytes.Buffer
	err := kubeadmConfig.Execute(&text, map[string]any{
		"First": n == c.nodes[0], "ControlPlane": n.controlPlane, "Name": n.name, "IP": n.ip, "Token": token, "Key": c.key,
		"Kubernetes": c.images.kubernetes, "Endpoint": endpoint,
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(n.path("root/kubeadm.yaml"), text.Bytes(), 0o600); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, slow)
	defer cancel()
	return c.logged(limited, n, "kubeadm "+command+" --config /root/kubeadm.yaml")
}

// connect makes an administrator's client that goes through the load balancer.
func (c *cluster) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", c.nodes[0].path("etc/kubernetes/admin.conf"))
	if err != nil {
		return err
	}
	config.Host, config.QPS, config.Burst, config.Timeout = "https://"+endpoint, 100, 200, time.Minute
	c.config = config
	c.client, err = kubernetes.NewForConfig(config)
	return err
}

// network gives a node's pods the range that a controller has assigned to it, and gives all nodes
// the routes to it.
func (c *cluster) network(ctx context.Context, n *node) error {
	var cidr string
	if _, err := harness.Await(ctx, harness.Patience, n.name+" has a range for its pods", func(ctx context.Context) error {
		seen, err := c.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if cidr = seen.Spec.PodCIDR; cidr == "" {
			return errors.New("spec.podCIDR is empty")
		}
		return nil
	}); err != nil {
		return err
	}
	var text bytes.Buffer
	if err := networkConfig.Execute(&text, map[string]string{"PodCIDR": cidr}); err != nil {
		return err
	}
	// The runtime must never read a partial file.
	name := n.path("etc/cni/net.d/10-flotilla.conflist")
	if err := inOrder(
		func() error { return os.WriteFile(name+".new", text.Bytes(), 0o644) },
		func() error { return os.Rename(name+".new", name) },
	); err != nil {
		return err
	}
	if err := c.routes(ctx); err != nil {
		return err
	}
	return c.ready(ctx, n)
}

// routes makes each running node route traffic for another node's pods to that node.
func (c *cluster) routes(ctx context.Context) error {
	nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, n := range c.nodes {
		for _, other := range nodes.Items {
			if !n.runs() || other.Name == n.name || other.Spec.PodCIDR == "" {
				continue
			}
			if err := n.quiet(ctx, fmt.Sprintf("ip route replace %s via %s", other.Spec.PodCIDR, c.node(other.Name).ip)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *cluster) node(name string) *node {
	i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.name == name })
	if i < 0 {
		panic("kubeadm: no node is called " + name)
	}
	return c.nodes[i]
}

// ready waits until the kubelet reports the node as ready.
func (c *cluster) ready(ctx context.Context, n *node) error {
	_, err := harness.Await(ctx, slow, n.name+" is Ready", func(ctx context.Context) error {
		seen, err := c.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range seen.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("conditions: %+v", seen.Status.Conditions)
	})
	return err
}

// state prints what a person would look at after a failure.
const state = `kubectl get nodes,pods -A -o wide || :
kubectl -n kube-system get leases || :
flotilla status || :
kubectl get events -A --sort-by=.lastTimestamp || :
kubectl get pods -A -o yaml || :`

func (c *cluster) keepState() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	i := slices.IndexFunc(c.central(), (*node).runs)
	if i < 0 {
		return errors.New("no node of the control plane runs")
	}
	out, err := c.central()[i].output(ctx, state)
	return errors.Join(err, os.WriteFile(filepath.Join(c.place, "log", "state.log"), []byte(out), 0o644))
}

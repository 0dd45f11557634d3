package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/test/harness"
)

//go:embed hosted.sh
var hostedScript string

const (
	hostedNamespace  = "flotilla-hosted"
	hostedPort       = "7443"
	hostedHome       = "/var/lib/hosted" // As in hosted.sh.
	hostedKubeconfig = hostedHome + "/super-admin.conf"
	hostedAuditLog   = "var/log/kubernetes/hosted-audit.log"
	// exampleServer is the address in the page that its reader replaces.
	exampleServer = "https://api.hosted.example.org:6443"
	// takeoverWithin is twice the lease duration, to allow for a busy machine.
	takeoverWithin = 2 * leaseDuration
)

// hosted makes a fleet in the cluster's pods control a second cluster, whose control plane runs on
// the first node. The fleet is installed by Helm, then by kustomize.
func hosted(ctx context.Context, c *cluster) error {
	var guest *cluster
	if err := c.out.step("the hosted control plane", func() (err error) {
		guest, err = c.startHosted(ctx)
		return err
	}); err != nil {
		return err
	}
	return inOrder(
		func() error { return c.followHosted(ctx, "hosted-identity", "hosted-kubeconfig", "hosted-secrets") },
		func() error { return c.myValues(ctx) },
		func() error { return c.hostedRolls(ctx, guest, "hosted-helm", c.images.flotilla) },
		func() error { return guest.worksWithoutNodes(ctx, "by-helm") },
		func() error { return c.losesMember(ctx, guest) },
		func() error { return c.hostedRolls(ctx, guest, "hosted-renew", c.images.flotilla) },
		func() error { return c.hostedRolls(ctx, guest, "hosted-helm-upgrade", c.images.later) },
		func() error { return c.hostedRolls(ctx, guest, "hosted-helm-rollback", c.images.flotilla) },
		func() error { return guest.worksWithoutNodes(ctx, "rolled-back") },
		func() error { return c.followHosted(ctx, "hosted-helm-away") },
		func() error { return c.hostedRolls(ctx, guest, "hosted-apply", c.images.flotilla) },
		func() error { return c.hostedCalms(ctx) },
		func() error { return c.followHosted(ctx, "hosted-check") },
		func() error { return guest.worksWithoutNodes(ctx, "by-kustomize") },
		func() error {
			return c.out.step("the judge", func() error {
				return c.judgeLogs(serversStay, logFrom{name: "hosted", path: c.nodes[0].path(hostedAuditLog)})
			})
		},
		func() error { return c.followHosted(ctx, "hosted-away") },
		func() error { return c.hostedControlPlane(ctx, "stop") },
	)
}

func (c *cluster) hostedControlPlane(ctx context.Context, command string) error {
	n := c.nodes[0]
	if err := os.WriteFile(n.path("opt/node/hosted.sh"), []byte(hostedScript), 0o755); err != nil {
		return err
	}
	return c.logged(ctx, n, fmt.Sprintf("IP=%s PORT=%s VERSION=%s bash /opt/node/hosted.sh %s", n.ip, hostedPort, c.images.kubernetes, command))
}

// startHosted returns the hosted cluster, which has no nodes, when its API server is ready.
func (c *cluster) startHosted(ctx context.Context) (*cluster, error) {
	if err := c.hostedControlPlane(ctx, "start"); err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.nodes[0].path(hostedKubeconfig))
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst, config.Timeout = 100, 200, time.Minute
	guest := &cluster{out: c.out, images: c.images, config: config}
	if guest.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	_, err = harness.Await(ctx, harness.Patience, "the hosted API server is ready", func(ctx context.Context) error {
		if err := guest.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
			return err
		}
		_, err := guest.client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		return err
	})
	return guest, err
}

// followHosted runs blocks with the address, the kubeconfig and the keys of the hosted cluster.
func (c *cluster) followHosted(ctx context.Context, blocks ...string) error {
	for _, block := range blocks {
		script, err := c.book.script(block)
		if err != nil {
			return err
		}
		if block == "hosted-kubeconfig" && !strings.Contains(script, exampleServer) {
			return fmt.Errorf("block %s has no %s", block, exampleServer)
		}
		n := c.nodes[0]
		script = strings.ReplaceAll(script, exampleServer, "https://"+n.ip+":"+hostedPort)
		limited, cancel := context.WithTimeout(ctx, slow)
		err = c.out.step(block, func() error {
			return c.logged(limited, n, "export HOSTED="+hostedKubeconfig+" PKI="+hostedHome+"/pki\n"+script)
		})
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// myValues writes the values file of the page.
func (c *cluster) myValues(ctx context.Context) error {
	const file = "my-values.yaml <<"
	blocks, err := c.book.section(installPage, "helm")
	if err != nil {
		return err
	}
	for _, b := range blocks {
		if script := strings.Join(b.Lines, "\n"); strings.Contains(script, file) {
			return c.logged(ctx, c.nodes[0], script)
		}
	}
	return fmt.Errorf("%s: no block writes %s", installPage, file)
}

// hostedRolls runs a block, then waits until all members have the image, are ready, and hold all
// shards.
func (c *cluster) hostedRolls(ctx context.Context, guest *cluster, block, image string) error {
	if err := c.followHosted(ctx, block); err != nil {
		return err
	}
	members, err := c.membersIn(ctx, hostedNamespace)
	if err != nil {
		return err
	}
	return inOrder(
		func() error { return allOf(members, image) },
		func() error { return guest.holds(ctx, true) },
		func() error { return c.hostedHealthy(ctx) },
	)
}

// hostedHealthy waits until flotilla status finds nothing wrong, except that shards have moved
// often: the test restarts the members again and again.
func (c *cluster) hostedHealthy(ctx context.Context) error {
	const script = `found=$(flotilla status --kubeconfig ` + hostedKubeconfig + `) || {
  test $? -eq 3 && ! echo "$found" | grep -E '^(Error|Warning): ' | grep -qv '^Warning: Flapping: '
} || { echo "$found"; exit 1; }`
	_, err := harness.Await(ctx, harness.Patience, "flotilla status finds nothing wrong in the hosted cluster", func(ctx context.Context) error {
		return c.nodes[0].quiet(ctx, script)
	})
	return err
}

// worksWithoutNodes makes the fleet create a Deployment's pods, which nothing runs, and what every
// namespace gets. Then the fleet deletes all of it.
func (c *cluster) worksWithoutNodes(ctx context.Context, namespace string) error {
	return c.out.step("pods, root certificate and account made, namespace deleted: "+namespace, func() error {
		return inOrder(
			func() error { return c.create(ctx, namespace, 2) },
			func() error { return c.furnished(ctx, namespace, 2) },
			func() error { return c.scale(ctx, namespace, 3) },
			func() error { return c.furnished(ctx, namespace, 3) },
			func() error { return c.remove(ctx, namespace) },
		)
	})
}

// furnished waits until the controllers have created their objects in a namespace.
func (c *cluster) furnished(ctx context.Context, namespace string, replicas int32) error {
	_, err := harness.Await(ctx, harness.Patience, fmt.Sprintf("namespace %s has %d pods and the rest", namespace, replicas), func(ctx context.Context) error {
		if _, err := c.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return err
		}
		root, err := c.client.CoreV1().ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if root.Data["ca.crt"] != string(c.config.CAData) {
			return errors.New("kube-root-ca.crt is another cluster's")
		}
		pods, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		d, err := c.client.AppsV1().Deployments(namespace).Get(ctx, workName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s := d.Status; s.ObservedGeneration != d.Generation || s.Replicas != replicas || len(pods.Items) != int(replicas) {
			return fmt.Errorf("generation %d, observed %d, status has %d pods, the namespace %d", d.Generation, s.ObservedGeneration, s.Replicas, len(pods.Items))
		}
		return nil
	})
	return err
}

// hostedCalms waits until the status has no findings. On a fast machine the fleet has been rolled so
// often since it was installed that its shards count as flapping, and rightly so.
func (c *cluster) hostedCalms(ctx context.Context) error {
	took, err := harness.Await(ctx, slow, "flotilla status has no findings", func(ctx context.Context) error {
		return c.nodes[0].quiet(ctx, "flotilla status --kubeconfig "+hostedKubeconfig)
	})
	if err == nil {
		c.out.took("flotilla status has no findings", took)
	}
	return err
}

// losesMember kills a member's process and deletes its pod without grace. Other members, or the pod
// that replaces it, must hold its shards within takeoverWithin.
func (c *cluster) losesMember(ctx context.Context, guest *cluster) error {
	const member = fleetName + "-0"
	isShard := func(labels map[string]string) bool { return labels[leaseapi.ShardLabel] != "" }
	before, err := guest.leases(ctx, isShard)
	if err != nil {
		return err
	}
	lost := map[string]string{}
	for name, l := range before {
		if l.member == member {
			lost[name] = l.holder
		}
	}
	if len(lost) == 0 {
		return fmt.Errorf("%s holds no shard", member)
	}
	pod, err := c.client.CoreV1().Pods(hostedNamespace).Get(ctx, member, metav1.GetOptions{})
	if err != nil {
		return err
	}
	// The deletion alone would make the kubelet ask the process to end, and it would hand over. The
	// brackets keep the command from finding its own shell among the node's processes.
	if err := inOrder(
		func() error {
			return c.node(pod.Spec.NodeName).quiet(ctx, "pkill -KILL -f '[-]-member-name="+member+"'")
		},
		func() error {
			return c.nodes[0].quiet(ctx, "kubectl -n "+hostedNamespace+" delete pod "+member+" --force --grace-period=0")
		},
	); err != nil {
		return err
	}
	took, err := harness.Await(ctx, takeoverWithin, "the shards of "+member+" are taken", func(ctx context.Context) error {
		now, err := guest.leases(ctx, isShard)
		if err != nil {
			return err
		}
		for name, holder := range lost {
			if l := now[name]; l.holder == "" || l.holder == holder {
				return fmt.Errorf("%s is held by %q", name, l.holder)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.out.took(fmt.Sprintf("%s is killed, its pod deleted: its %d shards are taken", member, len(lost)), took)
	return inOrder(
		func() error {
			return c.nodes[0].quiet(ctx, "kubectl -n "+hostedNamespace+" rollout status statefulset/flotilla --timeout=5m")
		},
		func() error { return c.hostedHealthy(ctx) },
		func() error { return guest.worksWithoutNodes(ctx, "after-the-loss") },
	)
}

// allOf requires that all members have the image and are ready.
func allOf(members []corev1.Pod, image string) error {
	i := slices.IndexFunc(members, func(pod corev1.Pod) bool {
		return pod.Spec.Containers[0].Image != image || !ready(&pod)
	})
	if i < 0 {
		return nil
	}
	pod := members[i]
	return fmt.Errorf("%s has image %s, want %s; ready: %v", pod.Name, pod.Spec.Containers[0].Image, image, ready(&pod))
}

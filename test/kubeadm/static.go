package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	manifestFile = "etc/kubernetes/manifests/kube-controller-manager.yaml"
	// addedFlag is an operator's own change, which kubeadm has to keep.
	addedFlag = "--terminated-pod-gc-threshold=12500"
)

// staticPods moves to static pods of the fleet node by node, through an upgrade by kubeadm, and
// back.
func staticPods(ctx context.Context, c *cluster) error {
	if err := c.mark(); err != nil {
		return err
	}
	const namespace = "on-the-way"
	return inOrder(
		func() error { return c.works(ctx, "before", "stock") },
		func() error { return c.create(ctx, namespace, 1) },
		func() error { return c.settled(ctx, namespace, 1) },
		func() error { return c.toFleet(ctx, namespace) },
		func() error { return c.remove(ctx, namespace) },
		func() error { return c.works(ctx, "by-the-fleet", "the fleet") },
		func() error { return c.upgrade(ctx) },
		func() error { return c.toStock(ctx) },
		func() error { return c.works(ctx, "after", "stock") },
		func() error { return c.out.step("the judge", func() error { return c.judge(serversFail) }) },
		func() error { return c.forget(ctx) },
	)
}

// toFleet replaces the stock manifests. All nodes but the last follow the steps for several nodes,
// and the last one those for a single node. Between two nodes it scales the Deployment.
func (c *cluster) toFleet(ctx context.Context, namespace string) error {
	central := c.central()
	for _, n := range central {
		if err := c.follow(ctx, n, "static-save"); err != nil {
			return err
		}
	}
	last := len(central) - 1
	for i, n := range central {
		err := c.out.step(n.name+" has a member in its place", func() error {
			if i == last {
				return inOrder(
					func() error { return c.follow(ctx, n, "static-one") },
					func() error { return c.holds(ctx, true) },
				)
			}
			if err := c.follow(ctx, n, "static-config"); err != nil {
				return err
			}
			if i == 0 {
				if err := inOrder(
					func() error { return c.addFlag(n) },
					func() error { return c.follow(ctx, n, "static-remember") },
				); err != nil {
					return err
				}
			}
			return inOrder(
				func() error { return c.follow(ctx, n, "static-write") },
				func() error { return c.onlyIntended(ctx, n) },
				func() error { return c.waits(ctx, n) },
			)
		})
		if err != nil {
			return err
		}
		replicas := int32(i + 2)
		if err := inOrder(
			func() error { return c.scale(ctx, namespace, replicas) },
			func() error { return c.settled(ctx, namespace, replicas) },
		); err != nil {
			return err
		}
	}
	return c.out.step("all members are ready", func() error { return c.staticReady(ctx) })
}

// follow runs a block of the handbook in a node.
func (c *cluster) follow(ctx context.Context, n *node, block string) error {
	script, err := c.book.script(block)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, slow)
	defer cancel()
	return c.logged(limited, n, script)
}

// addFlag stands for the editor in which the page's reader adds a flag.
func (c *cluster) addFlag(n *node) error {
	const config, empty = "etc/kubernetes/kubeadm-flotilla.yaml", "controllerManager: {}\n"
	text, err := os.ReadFile(n.path(config))
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), empty) {
		return fmt.Errorf("%s has no %q:\n%s", config, empty, text)
	}
	name, value, _ := strings.Cut(strings.TrimPrefix(addedFlag, "--"), "=")
	added := fmt.Sprintf("controllerManager:\n  extraArgs:\n  - {name: %s, value: %q}\n", name, value)
	return os.WriteFile(n.path(config), []byte(strings.Replace(string(text), empty, added, 1)), 0o600)
}

var (
	changed  = regexp.MustCompile(`(?m)^[<>] +(.*)$`)
	intended = regexp.MustCompile(`^(image: \S+|- ` + addedFlag + `|readinessProbe:|failureThreshold: 3|httpGet:|host: 127\.0\.0\.1|path: /readyz|port: probe-port|scheme: HTTPS|periodSeconds: 2|timeoutSeconds: 15)$`)
)

// onlyIntended requires that the manifest differs from the stock one only as the page says.
func (c *cluster) onlyIntended(ctx context.Context, n *node) error {
	script, err := c.book.script("static-diff")
	if err != nil {
		return err
	}
	out, err := n.output(ctx, script+" || test $? -eq 1")
	if err != nil {
		return err
	}
	lines := changed.FindAllStringSubmatch(out, -1)
	wrong := slices.DeleteFunc(slices.Clone(lines), func(line []string) bool { return intended.MatchString(line[1]) })
	if len(lines) < 3 || len(wrong) > 0 {
		return fmt.Errorf("%s: the manifest differs from the stock one in:\n%s", n.name, out)
	}
	return nil
}

// waits requires that the member on a node runs but is not ready, because it waits for the leader
// lock. Or the fleet holds the lock already, because it was quicker than the next stock replica
// when the stock leader left.
func (c *cluster) waits(ctx context.Context, n *node) error {
	_, err := harness.Await(ctx, harness.Patience, "the member on "+n.name+" waits for the leader lock", func(ctx context.Context) error {
		pod, err := c.staticPod(ctx, n, true)
		if err != nil {
			return err
		}
		holder, err := c.leaderLock(ctx)
		if err != nil || holder == leaderLockHolder {
			return err
		}
		if ready(pod) {
			return fmt.Errorf("%w: it is ready while %s leads", harness.ErrGiveUp, holder)
		}
		script, err := c.book.script("static-check")
		if err != nil {
			return err
		}
		out, err := n.output(ctx, script)
		if err != nil || !strings.Contains(out, "[-]fleet failed") {
			return fmt.Errorf("its readyz says: %w\n%s", err, out)
		}
		return nil
	})
	return err
}

// staticPod returns the controller manager's pod on a node. It fails unless the container runs and
// is the fleet's if fleet is set, or stock otherwise.
func (c *cluster) staticPod(ctx context.Context, n *node, fleet bool) (*corev1.Pod, error) {
	pod, err := c.client.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, harness.Stock+"-"+n.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	container := pod.Spec.Containers[0]
	if got := container.Image == c.images.flotilla; got != fleet {
		return nil, fmt.Errorf("%s: the pod's image is %s", n.name, container.Image)
	}
	if s := pod.Status.ContainerStatuses; len(s) == 0 || s[0].State.Running == nil || s[0].Image != container.Image {
		return nil, fmt.Errorf("%s: the container does not run: %+v", n.name, s)
	}
	return pod, nil
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// staticReady waits until the member on each node is ready, and asks each one with the page's
// command. It also requires that the operator's command finds nothing wrong.
func (c *cluster) staticReady(ctx context.Context) error {
	script, err := c.book.script("static-check")
	if err != nil {
		return err
	}
	for _, n := range c.central() {
		_, err := harness.Await(ctx, harness.Patience, "the member on "+n.name+" is ready", func(ctx context.Context) error {
			pod, err := c.staticPod(ctx, n, true)
			if err != nil {
				return err
			}
			if !ready(pod) {
				return errors.New("its pod is not ready")
			}
			out, err := n.output(ctx, script)
			if err != nil || !strings.Contains(out, "readyz check passed") {
				return fmt.Errorf("its readyz says: %w\n%s", err, out)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return c.healthy(ctx)
}

// healthy waits until flotilla status finds nothing worse than a warning, such as that shards have
// moved often.
func (c *cluster) healthy(ctx context.Context) error {
	_, err := harness.Await(ctx, harness.Patience, "flotilla status finds nothing wrong", func(ctx context.Context) error {
		return c.nodes[0].quiet(ctx, "flotilla status || test $? -eq 3")
	})
	return err
}

// upgrade runs kubeadm upgrade on each node, which rewrites the manifests.
func (c *cluster) upgrade(ctx context.Context) error {
	return inOrder(
		func() error { return c.upgradeNodes(ctx, "static-upgrade", c.keptFlags) },
		func() error { return c.staticReady(ctx) },
		func() error { return c.works(ctx, "upgraded", "the fleet") },
	)
}

// upgradeNodes runs the block kind-first on the first control-plane node and kind-others on the
// others, and checks each node after that.
func (c *cluster) upgradeNodes(ctx context.Context, kind string, check func(*node) error) error {
	block := kind + "-first"
	for _, n := range c.central() {
		err := c.out.step(block+" on "+n.name, func() error {
			return inOrder(
				func() error { return c.upgradeNode(ctx, n, block) },
				func() error { return check(n) },
			)
		})
		if err != nil {
			return err
		}
		block = kind + "-others"
	}
	return nil
}

// unanswered is what kubeadm says when an API server has not answered a request in time.
var unanswered = regexp.MustCompile(`"https://[^"]+": (context deadline exceeded|.*Client\.Timeout exceeded)`)

// upgradeNode runs a block with kubeadm upgrade, and again, as the handbook says, if an API server
// did not answer kubeadm in time: a minute after kubeadm has restarted a node's etcd, the node's API
// server may still wait for it.
func (c *cluster) upgradeNode(ctx context.Context, n *node, block string) error {
	err := c.follow(ctx, n, block)
	if err == nil || !unanswered.MatchString(err.Error()) {
		return err
	}
	c.out.printf("%s on %s, again after: %v", block, n.name, err)
	return c.follow(ctx, n, block)
}

// keptFlags requires that the manifest is still the fleet's, with all its flags.
func (c *cluster) keptFlags(n *node) error {
	text, err := os.ReadFile(n.path(manifestFile))
	if err != nil {
		return err
	}
	for _, want := range []string{"image: " + c.images.flotilla, "path: /readyz", addedFlag, "--allocate-node-cidrs=true", "--cluster-cidr=10.244.0.0/16", "--service-cluster-ip-range=10.96.0.0/12"} {
		if !strings.Contains(string(text), want) {
			return fmt.Errorf("%s: the manifest has no %q:\n%s", n.name, want, text)
		}
	}
	info, err := os.Stat(n.path(manifestFile))
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		return fmt.Errorf("%s: the manifest has mode %o, want 600", n.name, mode)
	}
	return nil
}

// toStock puts the saved manifests back.
func (c *cluster) toStock(ctx context.Context) error {
	for i, n := range c.central() {
		err := c.out.step(n.name+" has the stock one again", func() error {
			if err := c.follow(ctx, n, "static-back"); err != nil {
				return err
			}
			if i == len(c.central())-1 {
				return c.holds(ctx, false)
			}
			_, err := harness.Await(ctx, harness.Patience, "stock runs on "+n.name, func(ctx context.Context) error {
				_, err := c.staticPod(ctx, n, false)
				return err
			})
			if err != nil {
				return err
			}
			return c.holds(ctx, true)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// forget deletes the Leases of a fleet that is gone.
func (c *cluster) forget(ctx context.Context) error {
	return c.nodes[0].quiet(ctx, "kubectl -n kube-system delete lease -l flotilla.dev/fleet="+fleetName)
}

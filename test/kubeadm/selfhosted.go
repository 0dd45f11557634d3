package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/test/docs/markdown"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	overlay = "deploy/overlays/self-hosted"
	// myFleet is the reader's own kustomization, which the page applies in place of the overlay.
	myFleet       = "my-fleet"
	memberLabel   = "app.kubernetes.io/name=" + fleetName
	leaseDuration = 15 * time.Second
)

// selfHosted installs the StatefulSet, changes its image, loses a node, and goes back to stock.
func selfHosted(ctx context.Context, c *cluster) error {
	if err := c.mark(); err != nil {
		return err
	}
	for _, block := range []string{"flags", "my-fleet"} {
		if err := c.follow(ctx, c.nodes[0], block); err != nil {
			return err
		}
	}
	return inOrder(
		func() error { return c.section(ctx, installPage, "self-hosted") },
		func() error { return c.works(ctx, "self-hosted", "the fleet") },
		func() error { return c.underLoad(ctx) },
		func() error { return c.upgradeBeside(ctx) },
		// The fleet is not stopped first: stopFleet is for the stage helm.
		func() error { return c.section(ctx, migrationPage, "the-way-back", stopFleet) },
		func() error { return c.holds(ctx, false) },
		func() error { return c.works(ctx, "back", "stock") },
		func() error { return c.out.step("the judge", func() error { return c.judge(serversFail) }) },
		func() error { return c.section(ctx, installPage, "take-it-away") },
	)
}

// section runs the blocks of a section in their order, each as a step, except those that without
// names.
func (c *cluster) section(ctx context.Context, path, section string, without ...string) error {
	blocks, err := c.book.section(path, section)
	if err != nil {
		return err
	}
	for _, b := range blocks {
		if slices.Contains(without, b.Kubeadm()) {
			continue
		}
		if err := c.out.step(b.At()+" "+firstLine(b.Lines[0]), func() error { return c.block(ctx, b) }); err != nil {
			return err
		}
	}
	return nil
}

// block runs a block where the page says: on every control-plane node, or where kubectl is.
func (c *cluster) block(ctx context.Context, b markdown.Block) error {
	switch b.Kubeadm() {
	case "stop-stock":
		return c.stopStock(ctx)
	case "start-stock":
		return c.startStock(ctx)
	case "keys-check":
		return c.keysFit(ctx, strings.Join(b.Lines, "\n"))
	}
	script := strings.ReplaceAll(strings.Join(b.Lines, "\n"), overlay, myFleet)
	return c.logged(ctx, c.nodes[0], script)
}

// keysFit checks the output that the page's reader is to check.
func (c *cluster) keysFit(ctx context.Context, script string) error {
	out, err := c.nodes[0].output(ctx, script)
	if err != nil {
		return err
	}
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 3 || lines[0] != lines[1] || lines[2] != "the same" {
		return fmt.Errorf("the keys do not belong together:\n%s", out)
	}
	return nil
}

// stopStock waits until the members are as old as a lease duration, as the page requires. Then it
// removes the stock controller manager from all nodes, beginning with the leader's.
func (c *cluster) stopStock(ctx context.Context) error {
	_, err := harness.Await(ctx, harness.Patience, "the members have been there for a lease duration", func(ctx context.Context) error {
		leases, err := c.leases(ctx, func(labels map[string]string) bool { return labels[leaseapi.ShardLabel] == "" })
		if err != nil {
			return err
		}
		for name, l := range leases {
			if since := time.Since(l.acquired); since < leaseDuration {
				return fmt.Errorf("%s is %v old", name, since)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	holder, err := c.leaderLock(ctx)
	if err != nil {
		return err
	}
	nodes := c.central()
	slices.SortStableFunc(nodes, func(a, b *node) int {
		leads := func(n *node) int {
			if strings.HasPrefix(holder, n.name+"_") {
				return 0
			}
			return 1
		}
		return leads(a) - leads(b)
	})
	for _, n := range nodes {
		if err := c.follow(ctx, n, "stop-stock"); err != nil {
			return err
		}
	}
	return nil
}

// startStock puts the stock controller manager back on all nodes, where it waits for the leader
// lock.
func (c *cluster) startStock(ctx context.Context) error {
	for _, n := range c.central() {
		if err := c.follow(ctx, n, "start-stock"); err != nil {
			return err
		}
		_, err := harness.Await(ctx, harness.Patience, "stock runs on "+n.name, func(ctx context.Context) error {
			_, err := c.staticPod(ctx, n, false)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// upgradeBeside runs kubeadm upgrade on each node while the fleet leads. kubeadm requires a stock
// controller manager there, which waits for the leader lock.
func (c *cluster) upgradeBeside(ctx context.Context) error {
	if err := c.startStock(ctx); err != nil {
		return err
	}
	return inOrder(
		func() error {
			return c.upgradeNodes(ctx, "beside-upgrade", func(*node) error {
				return inOrder(
					func() error { return c.holds(ctx, true) },
					func() error { return c.healthy(ctx) },
				)
			})
		},
		func() error { return c.stopStock(ctx) },
		func() error { return c.holds(ctx, true) },
		func() error { return c.works(ctx, "upgraded-beside", "the fleet") },
	)
}

// lease is what a Lease of the fleet says: its holder, the member that the holder is an incarnation
// of, and when it was acquired.
type lease struct {
	holder, member string
	acquired       time.Time
}

// leases returns the fleet's Leases with labels that want accepts.
func (c *cluster) leases(ctx context.Context, want func(labels map[string]string) bool) (map[string]lease, error) {
	list, err := c.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: leaseapi.FleetLabel + "=" + fleetName})
	if err != nil {
		return nil, err
	}
	found := map[string]lease{}
	for _, l := range list.Items {
		if want(l.Labels) {
			holder := ptr.Deref(l.Spec.HolderIdentity, "")
			found[l.Name] = lease{holder: holder, member: leaserecord.MemberOf(holder), acquired: ptr.Deref(l.Spec.AcquireTime, metav1.MicroTime{}).Time}
		}
	}
	if len(found) == 0 {
		return nil, errors.New("the fleet has no such Lease")
	}
	return found, nil
}

// underLoad changes the image, restarts the members, and cuts a node's power, all under load.
func (c *cluster) underLoad(ctx context.Context) error {
	l, err := c.startLoad(ctx)
	if err != nil {
		return err
	}
	defer l.cancel()
	return inOrder(
		func() error { return c.rolls(ctx, "set-image", c.images.later) },
		func() error { return c.rolls(ctx, "undo", c.images.flotilla) },
		func() error { return c.rolls(ctx, "minor", c.images.minor) },
		func() error { return c.rolls(ctx, "minor-undo", c.images.flotilla) },
		func() error { return c.triesMinor(ctx) },
		func() error {
			return c.out.step("rollout restart", func() error {
				return inOrder(
					func() error {
						return c.nodes[0].quiet(ctx, "kubectl -n kube-system rollout restart statefulset/flotilla")
					},
					func() error { return c.rolled(ctx, c.images.flotilla) },
				)
			})
		},
		func() error { return c.losesPower(ctx, c.node("cp3")) },
		func() error { return c.out.step("everything settles", func() error { return l.stop(ctx) }) },
	)
}

// rolls runs a block that changes the StatefulSet, and waits for all of its pods.
func (c *cluster) rolls(ctx context.Context, block, image string) error {
	return c.out.step(block+", and the members roll", func() error {
		return inOrder(
			func() error { return c.follow(ctx, c.nodes[0], block) },
			func() error { return c.rolled(ctx, image) },
		)
	})
}

// rolled waits until all members have the image and are ready, and flotilla status finds nothing
// wrong.
func (c *cluster) rolled(ctx context.Context, image string) error {
	if err := c.nodes[0].quiet(ctx, "kubectl -n kube-system rollout status statefulset/flotilla --timeout=8m"); err != nil {
		return err
	}
	members, err := c.members(ctx)
	if err != nil {
		return err
	}
	if err := allOf(members, image); err != nil {
		return err
	}
	return c.healthy(ctx)
}

func (c *cluster) members(ctx context.Context) ([]corev1.Pod, error) {
	return c.membersIn(ctx, metav1.NamespaceSystem)
}

func (c *cluster) membersIn(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	pods, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: memberLabel})
	if err != nil {
		return nil, err
	}
	const want = 3
	if len(pods.Items) != want {
		return nil, fmt.Errorf("there are %d members, want %d", len(pods.Items), want)
	}
	return pods.Items, nil
}

// losesPower cuts the power of a node with a member on it. Others take over the shards, the
// Deployment's pods are replaced, and after the out-of-service taint the member is. Then the node
// boots again.
func (c *cluster) losesPower(ctx context.Context, n *node) error {
	members, err := c.members(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(members, func(pod corev1.Pod) bool { return pod.Spec.NodeName == n.name })
	if i < 0 {
		return fmt.Errorf("no member is on %s", n.name)
	}
	member := members[i].Name
	if err := n.powerOff(); err != nil {
		return err
	}
	began := time.Now()
	c.front.set(c.servers()...)
	if err := c.movesFrom(ctx, member); err != nil {
		return err
	}
	c.out.took(n.name+" loses its power: others have the shards of "+member, time.Since(began))
	if err := c.podsLeave(ctx, n); err != nil {
		return err
	}
	c.out.took("since then: the pods of a Deployment are replaced", time.Since(began))
	const outOfService = "node.kubernetes.io/out-of-service"
	if err := c.nodes[0].quiet(ctx, "kubectl taint node "+n.name+" "+outOfService+"=nodeshutdown:NoExecute"); err != nil {
		return err
	}
	err = c.out.step("tainted out-of-service: "+member+" is replaced", func() error {
		_, err := harness.Await(ctx, slow, member+" runs elsewhere", func(ctx context.Context) error {
			members, err := c.members(ctx)
			if err != nil {
				return err
			}
			for _, pod := range members {
				if pod.Spec.NodeName == n.name || !ready(&pod) {
					return fmt.Errorf("%s is on %q, ready: %v", pod.Name, pod.Spec.NodeName, ready(&pod))
				}
			}
			return nil
		})
		return err
	})
	if err != nil {
		return err
	}
	return c.out.step(n.name+" boots again", func() error {
		if err := inOrder(
			func() error { return c.boot(ctx, n) },
			func() error { return n.quiet(ctx, "systemctl start kubelet") },
		); err != nil {
			return err
		}
		c.front.set(c.servers()...)
		return inOrder(
			func() error { return c.nodes[0].quiet(ctx, "kubectl taint node "+n.name+" "+outOfService+"-") },
			func() error { return c.routes(ctx) },
			func() error { return c.returned(ctx, n) },
		)
	})
}

// movesFrom waits until other members hold all shards.
func (c *cluster) movesFrom(ctx context.Context, member string) error {
	_, err := harness.Await(ctx, harness.Patience, "others have the shards of "+member, func(ctx context.Context) error {
		leases, err := c.leases(ctx, func(labels map[string]string) bool { return labels[leaseapi.ShardLabel] != "" })
		if err != nil {
			return err
		}
		for name, l := range leases {
			if l.member == member || l.member == "" {
				return fmt.Errorf("%s is held by %q", name, l.member)
			}
		}
		return nil
	})
	return err
}

// podsLeave waits until the Deployment that was spread over all nodes has all of its pods on other
// nodes.
func (c *cluster) podsLeave(ctx context.Context, n *node) error {
	_, err := harness.Await(ctx, harness.Patience, "the pods on "+n.name+" are replaced", func(ctx context.Context) error {
		pods, err := c.client.CoreV1().Pods(spread).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		elsewhere := 0
		for _, pod := range pods.Items {
			if pod.Spec.NodeName != n.name && pod.DeletionTimestamp == nil && ready(&pod) {
				elsewhere++
			}
		}
		if elsewhere < spreadReplicas {
			return fmt.Errorf("%d of %d pods run elsewhere", elsewhere, spreadReplicas)
		}
		return nil
	})
	return err
}

// returned waits until the node, its control-plane pods and the fleet are as before.
func (c *cluster) returned(ctx context.Context, n *node) error {
	if err := c.ready(ctx, n); err != nil {
		return err
	}
	_, err := harness.Await(ctx, slow, "the control plane on "+n.name+" is ready", func(ctx context.Context) error {
		for _, name := range []string{"etcd", "kube-apiserver", "kube-scheduler"} {
			pod, err := c.client.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, name+"-"+n.name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !ready(pod) {
				return fmt.Errorf("%s is not ready", pod.Name)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.healthy(ctx)
}

package deploy

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	fleetAccount = "system:serviceaccount:kube-system:flotilla"
	berlin       = "Europe/Berlin"
)

// TestSelfHosted follows a newcomer's steps, with the commands of deploy/README.md.
func TestSelfHosted(t *testing.T) {
	t.Parallel() // The tests wait more than they work.
	c := startCluster(t, controlplane.Options{Nodes: 2, Scheduler: true})
	// Run this after a failure too: a refused request may explain it.
	defer c.requireRights(t, fleetAccount)
	var nodes []*nodeLog
	for _, name := range []string{"cp-0", "cp-1", "cp-2"} {
		nodes = append(nodes, c.startNode(t, name, ""))
	}
	c.kubectl(t, "", "label", "namespace", system, enforce+"=restricted")
	stock := c.startStock(t)
	c.kubectl(t, "", c.readme(t, "kubectl -n kube-system create secret generic flotilla-pki")...)
	c.kubectl(t, "", "apply", "-k", selfHosted)
	eventually(t, "three members wait for the leader lock", c.waitForLeaderLock(3))

	c.end(t, stock)
	eventually(t, "the fleet runs", c.ready(3))
	c.requireLeaderLock(t)
	c.work(t, 2)
	c.createCronJob(t)

	c.kubectl(t, "", "-n", system, "rollout", "restart", "statefulset/flotilla")
	c.kubectl(t, "", "-n", system, "rollout", "status", "statefulset/flotilla", "--timeout="+harness.Patience.String())
	c.work(t, 3)
	for _, n := range []int{4, 3} {
		c.kubectl(t, "", "-n", system, "scale", "statefulset/flotilla", fmt.Sprintf("--replicas=%d", n))
		eventually(t, fmt.Sprintf("%d members run", n), c.ready(n))
	}
	c.work(t, 2)
	t.Run("who is answered", func(t *testing.T) { c.requireAnswers(t, c.address(t)) })
	eventually(t, "a CronJob of another time zone has run, without zones in the image", c.cronJobRan)

	c.fromNothing(t)
	c.work(t, 1)
	ended := 0
	for _, node := range nodes {
		ended += node.requireOrder(t)
	}
	if ended < 7 { // Three in the rollout, the fourth, and three that were scaled away.
		t.Errorf("only %d processes have ended", ended)
	}
	if o := c.judge(t).Objects; min(o.Creates, o.ReplicaSets, o.Jobs) == 0 {
		t.Errorf("judged of objects: %+v; want pods, ReplicaSets and Jobs that were created among them", o)
	}
	c.requireNoPanic(t)
}

// fromNothing scales the fleet to zero, and brings it back with a member that is started by hand.
func (c *cluster) fromNothing(t *testing.T) {
	t.Helper()
	c.kubectl(t, "", "-n", system, "scale", "statefulset/flotilla", "--replicas=0")
	eventually(t, "the last member has deleted itself", c.pods(0))
	c.kubectl(t, "", "-n", system, "scale", "statefulset/flotilla", "--replicas=2")
	byHand := c.start(t, fleetName, "by-hand", c.readme(t, "flotilla --kubeconfig="))
	eventually(t, "two members run, brought back by one that was run by hand", c.ready(2))
	c.end(t, byHand)
}

// readme returns the arguments of the only command in deploy/README.md that begins with begin, with
// this cluster's files.
func (c *cluster) readme(t *testing.T, begin string) []string {
	t.Helper()
	var found []string
	for line := range strings.Lines(readFile(t, filepath.Join(root, "deploy/README.md"))) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, begin) {
			found = append(found, line)
		}
	}
	if len(found) != 1 {
		t.Fatalf("deploy/README.md has %d lines that begin with %q, want one: %q", len(found), begin, found)
	}
	line := strings.NewReplacer(
		"/etc/kubernetes/pki/", filepath.Join(c.Dir(), "pki")+"/",
		"/etc/kubernetes/controller-manager.conf", c.managerKubeconfig(t),
		"--secure-port=10357", fmt.Sprintf("--secure-port=%d", freePort(t)),
		"'", "",
	).Replace(found[0])
	return strings.Fields(line)[1:]
}

func (c *cluster) managerKubeconfig(t *testing.T) string {
	t.Helper()
	path, err := c.Kubeconfig("system:kube-controller-manager")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func freePort(t *testing.T) int {
	t.Helper()
	port, err := controlplane.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// startStock starts the stock controller manager, and waits until it leads.
func (c *cluster) startStock(t *testing.T) *controlplane.Process {
	t.Helper()
	stock, err := harness.Start(c.ControlPlane, harness.Spec{Name: stockName, Binary: stockName})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stock controller manager leads", func(ctx context.Context) error {
		_, err := c.client.CoordinationV1().Leases(system).Get(ctx, stockName, metav1.GetOptions{})
		return err
	})
	return stock.Process
}

func (c *cluster) start(t *testing.T, binary, name string, args []string) *controlplane.Process {
	t.Helper()
	path, err := c.Binary(binary)
	if err != nil {
		t.Fatal(err)
	}
	process, err := c.StartProcess(name, path, args)
	if err != nil {
		t.Fatal(err)
	}
	return process
}

// end ends a process as a kubelet does. The stock controller manager then exits with status 1.
func (c *cluster) end(t *testing.T, p *controlplane.Process) {
	t.Helper()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, p.Name()+" has ended", func(context.Context) error {
		select {
		case <-p.Done():
			return nil
		default:
			return errors.New("it still runs")
		}
	})
}

func (c *cluster) members(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=flotilla"})
	if err != nil {
		return nil, err
	}
	return pods.Items, nil
}

// pods returns a condition: there are n pods, and each meets all of want.
func (c *cluster) pods(n int, want ...func(context.Context, corev1.Pod) error) func(context.Context) error {
	return func(ctx context.Context) error {
		pods, err := c.members(ctx)
		if err != nil {
			return err
		}
		if len(pods) != n {
			return fmt.Errorf("%d pods, want %d", len(pods), n)
		}
		for _, pod := range pods {
			for _, is := range want {
				if err := is(ctx, pod); err != nil {
					return fmt.Errorf("%s: %w", pod.Name, err)
				}
			}
		}
		return nil
	}
}

func (c *cluster) ready(n int) func(context.Context) error {
	return c.pods(n, func(_ context.Context, pod corev1.Pod) error {
		for _, s := range pod.Status.ContainerStatuses {
			if s.RestartCount > 0 {
				return fmt.Errorf("%w: restarted %d times: %+v", harness.ErrGiveUp, s.RestartCount, s.LastTerminationState.Terminated)
			}
		}
		if !isReady(pod) {
			return fmt.Errorf("not ready: %+v", pod.Status.ContainerStatuses)
		}
		return nil
	})
}

func isReady(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// waitForLeaderLock is a condition: the members are alive but not ready, and say why.
func (c *cluster) waitForLeaderLock(n int) func(context.Context) error {
	return c.pods(n, func(ctx context.Context, pod corev1.Pod) error {
		if s := pod.Status.ContainerStatuses; len(s) != 1 || !ptr.Deref(s[0].Started, false) {
			return fmt.Errorf("has not started: %+v", s)
		}
		if isReady(pod) {
			return errors.New("is ready")
		}
		admin, err := c.administrator()
		if err != nil {
			return err
		}
		status, body, err := get(ctx, admin, pod.Status.PodIP, "/readyz/fleet")
		if err == nil && !strings.Contains(body, "the leader lock, Lease kube-controller-manager, is held by") {
			err = fmt.Errorf("/readyz/fleet: %d %s", status, body)
		}
		return err
	})
}

func (c *cluster) requireLeaderLock(t *testing.T) {
	t.Helper()
	lease, err := c.client.CoordinationV1().Leases(system).Get(t.Context(), stockName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != leaseapi.LeaderLockIdentity(fleetName) {
		t.Errorf("the leader lock is held by %q", holder)
	}
}

// address returns the address of some member's secure port.
func (c *cluster) address(t *testing.T) string {
	t.Helper()
	pods, err := c.members(t.Context())
	if err != nil || len(pods) == 0 {
		t.Fatalf("%d members: %v", len(pods), err)
	}
	return pods[0].Status.PodIP
}

// judge checks all writes against the Leases.
func (c *cluster) judge(t *testing.T) audit.Report {
	t.Helper()
	plan, err := catalogue.DefaultPlan(16)
	if err != nil {
		t.Fatal(err)
	}
	return harness.Judge(t, c.ControlPlane, audit.Options{Fleet: fleetName, Plan: &plan, Controllers: catalogue.Identities()})
}

// requireNoPanic looks for panics in the members' logs.
func (c *cluster) requireNoPanic(t *testing.T) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(c.Dir(), "pod-*.log"))
	if err != nil || len(logs) == 0 {
		t.Errorf("%d logs of pods: %v", len(logs), err)
	}
	for _, name := range logs {
		if err := harness.Panicked(name); err != nil {
			t.Error(err)
		}
	}
}

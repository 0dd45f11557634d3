package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	startLimit  = 5 * time.Minute
	settleLimit = 3 * time.Minute
	// settledReplicas is the number of pods of each Deployment at the end.
	settledReplicas = 2
	// calmTime is the pause between two faults, for comparison.
	calmTime = 3 * time.Second
	// stallNoted is the shortest stall of the machine that is reported.
	stallNoted = 500 * time.Millisecond
)

// chaos is one run.
type chaos struct {
	*environment
	dir        string
	canaries   *canaries
	tamperings []tampering
	outcomes   []outcome
	loadBegan  time.Time
	// calmSince is when the last fault was over.
	calmSince time.Time
}

// newChaos returns a run that has not started anything.
func newChaos(opts options, dir string) (*chaos, error) {
	plan, err := catalogue.DefaultPlan(opts.shards)
	if err != nil {
		return nil, err
	}
	env := &environment{
		opts: opts, out: newPrinter(os.Stdout), random: newRandom(opts.seed, faultChance), plan: plan,
		http: newHTTPClient(), leaders: map[string]*manager{}, retired: map[string]bool{},
	}
	env.namespaces, env.homes = spreadNamespaces(plan)
	env.first = plan
	leases := shardLeases(plan)
	if opts.target == stockTarget {
		leases = map[string]shard.ID{stockName: {}}
	}
	env.journal = newJournal(leases, opts.leaderLock())
	return &chaos{environment: env, dir: dir}, nil
}

// Run starts everything, runs the faults, and returns an error if any check failed. All that it
// started has ended when it returns.
func (c *chaos) Run(ctx context.Context) (err error) {
	if err := c.startControlPlane(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.cp.Stop()) }()

	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	group.Go(func() { _ = harness.Follow(background, c.cp.AuditLog(), c.journal.add) })
	group.Go(func() { c.stall.Run(background) })
	c.add = func(m *manager) {
		group.Go(func() { m.proxy.Run(background) })
		group.Go(func() { m.Run(background) })
	}
	defer c.killAll()

	if err := c.startManagers(ctx); err != nil {
		return err
	}
	work, stopWork := context.WithCancel(ctx)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer stopWork()
	if err := c.prepare(ctx); err != nil {
		return err
	}
	c.loadBegan = time.Now()
	workers.Go(func() { c.load.Run(work) })
	workers.Go(func() { c.canaries.Run(work) })
	faultErr := c.faults(ctx)
	loadEnded := time.Now()
	stopWork()
	workers.Wait()
	if ctx.Err() != nil {
		c.report(loadEnded)
		return errInterrupted
	}
	return errors.Join(faultErr, c.finish(ctx, loadEnded))
}

var errInterrupted = errors.New("interrupted")

func (c *chaos) startControlPlane(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	var err error
	c.cp, err = controlplane.Start(limited, controlplane.Options{
		BinDir: c.opts.binDir, Dir: filepath.Join(c.dir, "controlplane"), ShardedListAndWatch: c.opts.shard,
		AuditObjects: true, AuditArrivals: true, Scheduler: true, Nodes: c.opts.nodes, Log: c.out,
	})
	if err != nil {
		return err
	}
	if err := c.connect(); err != nil {
		return errors.Join(err, c.cp.Stop())
	}
	return nil
}

func (c *chaos) connect() error {
	config := c.cp.AdminConfig()
	config.UserAgent = "chaos"
	var err error
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	c.config = managerConfig{cp: c.cp, opts: c.opts, dir: c.dir}
	c.load = &load{client: c.client, namespaces: c.namespaces, rate: c.opts.load, random: newRandom(c.opts.seed, loadChance)}
	c.canaries = &canaries{client: c.client, namespaces: c.namespaces}
	return nil
}

func (c *chaos) startManagers(ctx context.Context) error {
	began := time.Now()
	for _, name := range c.opts.members() {
		m, err := c.join(name, name)
		if err != nil {
			return err
		}
		if err := m.up(); err != nil {
			return err
		}
	}
	_, err := c.await(ctx, startLimit, "the fleet has started", func(ctx context.Context) error {
		return errors.Join(c.held(began), c.leaderLockHeld(began), c.spreadOut(), c.ready(ctx))
	})
	c.out.printf("%d replicas hold everything after %.1f s", c.opts.replicas, time.Since(began).Seconds())
	return err
}

func (c *chaos) prepare(ctx context.Context) error {
	for _, name := range c.namespaces {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := c.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	_, err := c.await(ctx, settleLimit, "service accounts", func(ctx context.Context) error {
		for _, name := range c.namespaces {
			if _, err := c.client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return errors.Join(c.canaries.prepare(ctx), c.load.prepare(ctx))
}

// finish waits until everything has settled, stops the replicas cleanly, and judges.
func (c *chaos) finish(ctx context.Context, loadEnded time.Time) error {
	c.report(loadEnded)
	errs := []error{c.rateError(loadEnded), c.handoffs(), c.settle(ctx), c.leaveAll(ctx)}
	if c.opts.target == fleetTarget {
		lines, err := judge(c.cp.AuditLog(), filepath.Join(c.dir, "audit-whole.log"), c.first, c.opts.leaderLock() != "", allClean(c.opts.faults), c.tamperings)
		for _, line := range lines {
			c.out.printf("audit: %s", line)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c *chaos) rateError(loadEnded time.Time) error {
	if _, median := c.journal.rate(c.loadBegan, loadEnded); median < c.opts.least {
		return fmt.Errorf("the load made %d writes in the median second, want at least %d: raise -load", median, c.opts.least)
	}
	return nil
}

// settle scales all Deployments to the same size and waits for them.
func (c *chaos) settle(ctx context.Context) error {
	for _, namespace := range c.namespaces {
		if err := c.load.scale(ctx, namespace, settledReplicas); err != nil {
			return err
		}
	}
	took, err := c.await(ctx, settleLimit, "everything has settled", func(ctx context.Context) error {
		return c.load.settled(ctx, settledReplicas)
	})
	c.out.printf("settled after %.1f s: %d pods in each of %d Deployments, no Job left", took.Seconds(), settledReplicas, len(c.namespaces))
	return err
}

// leaveAll stops all replicas together, as when a fleet is scaled to zero.
func (c *chaos) leaveAll(ctx context.Context) error {
	managers := c.all()
	errs := make([]error, len(managers))
	var group sync.WaitGroup
	began := time.Now()
	for i, m := range managers {
		group.Go(func() { errs[i] = m.leave(ctx) })
	}
	group.Wait()
	c.out.printf("all replicas ended in %.1f s", time.Since(began).Seconds())
	if c.opts.target == stockTarget {
		return errors.Join(errs...) // it does not release its Lease
	}
	leases := c.leases()
	if leaderLock := c.opts.leaderLock(); leaderLock != "" {
		leases = append(leases, leaderLock)
	}
	return errors.Join(append(errs, leaseHolders(ctx, c.client.CoordinationV1().Leases(metav1.NamespaceSystem), leases))...)
}

// killAll kills what is left after a failed run.
func (c *chaos) killAll() {
	for _, m := range c.all() {
		_ = m.kill()
	}
}

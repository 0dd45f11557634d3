package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// allButCron is all work that does not wait for the end of the minute.
var allButCron = []string{
	accountsWork, deploymentsWork, storesWork, agentsWork, jobsWork, endpointsWork, budgetsWork, quotasWork,
}

// steps returns the steps in order. What they leave running ends with ctx.
func (d *demo) steps(ctx context.Context) []step {
	members := strings.Join(d.opts.members(), ", ")
	leaver := d.leaver()
	return []step{{
		title:  fmt.Sprintf("Start etcd, kube-apiserver, kube-scheduler and %d simulated nodes", d.opts.nodes),
		expect: "all nodes are Ready", limit: 5 * time.Minute,
		run: func(limit context.Context) (string, error) { return d.startControlPlane(ctx, limit) },
	}, {
		title:  "Start " + members,
		expect: "each shard is held by the replica that the ring wants", limit: 3 * time.Minute, moves: true,
		run: func(limit context.Context) (string, error) { return d.startReplicas(ctx, limit) },
	}, {
		title:  fmt.Sprintf("Create %d namespaces", len(namespaces)),
		expect: "each has its service account and its root CA", limit: 3 * time.Minute, run: d.createNamespaces,
	}, {
		title:  "Create Deployments, StatefulSets, DaemonSets, Jobs, CronJobs, Services, PodDisruptionBudgets",
		expect: "all pods are available, all Jobs complete, all status is right; CronJobs may take their time",
		limit:  6 * time.Minute, run: d.createWork,
	}, {
		title:  "Change the pods of every other Deployment",
		expect: "rolling updates bring all pods to the new version", limit: 4 * time.Minute, run: d.roll,
	}, {
		title:  fmt.Sprintf("Kill %s, and scale all Deployments from %d to %d", d.victim, fewReplicas, manyReplicas),
		expect: "the others take over all its shards; where they were before, work goes on", limit: 3 * time.Minute, moves: true, run: d.kill,
	}, {
		title:  fmt.Sprintf("Look at the %d namespaces that %s had", len(d.moved), d.victim),
		expect: "their Deployments are scaled as well", limit: 3 * time.Minute, run: d.awaitMoved,
	}, {
		title:  fmt.Sprintf("Start %s again", d.victim),
		expect: "it gets its shards back", limit: 3 * time.Minute, moves: true, run: d.comeBack,
	}, {
		title:  fmt.Sprintf("Scale all Deployments back to %d, and delete namespace %s", fewReplicas, leaver),
		expect: "the namespace is gone with all that was in it, all other status is right", limit: 4 * time.Minute,
		run: func(ctx context.Context) (string, error) { return d.scaleBack(ctx, leaver) },
	}, {
		title:  "Wait for the CronJobs, which run every minute",
		expect: "each has run", limit: 4 * time.Minute, run: d.awaitCron,
	}, {
		title:  "Read the audit log",
		expect: "every write was made by the holder of its shard", limit: 3 * time.Minute,
		run: func(context.Context) (string, error) { return d.prove() },
	}}
}

func (d *demo) startControlPlane(ctx, limit context.Context) (string, error) {
	var err error
	d.cp, err = controlplane.Start(limit, controlplane.Options{
		Dir:                 filepath.Join(d.dir, "controlplane"),
		ShardedListAndWatch: d.opts.shardedListWatch,
		AuditObjects:        true,
		Scheduler:           true,
		Nodes:               d.opts.nodes,
		Log:                 d.screen,
	})
	if err != nil {
		return "", err
	}
	if d.client, err = kubernetes.NewForConfig(d.cp.AdminConfig()); err != nil {
		return "", err
	}
	if d.observer, err = newObserver(ctx, d.client); err != nil {
		return "", err
	}
	d.replicas = newReplicas(d.cp, d.opts, func(err error) { d.die(err) })
	return fmt.Sprintf("kubernetes at %s", d.cp.AdminConfig().Host), nil
}

func (d *demo) startReplicas(ctx, limit context.Context) (string, error) {
	d.screen.printf("        Leases last %v, are renewed every %v and given up after %v without; the defaults are longer.",
		timing.LeaseDuration, timing.RetryPeriod, timing.RenewDeadline)
	d.screen.printf("        A Lease that does not exist is made after its duration, so all shards are unowned for a little over %v.",
		timing.LeaseDuration)
	for _, name := range d.opts.members() {
		if err := d.replicas.start(name); err != nil {
			return "", err
		}
	}
	d.drawing.Go(func() { d.draw(ctx) })
	if err := d.observer.await(limit, d.settled(d.owned)); err != nil {
		return "", err
	}
	return d.counts(), nil
}

func (d *demo) createNamespaces(ctx context.Context) (string, error) {
	for _, t := range d.wanted(nil) {
		if err := t.createNamespace(ctx, d.client); err != nil {
			return "", err
		}
	}
	if err := d.awaitWork(ctx, nil, accountsWork); err != nil {
		return "", err
	}
	byMember := map[string]int{}
	for member, in := range byOwner(d.plan, d.owned, namespaces) {
		byMember[member] = len(in)
	}
	return "namespaces by replica: " + joinCounts(byMember), nil
}

func (d *demo) createWork(ctx context.Context) (string, error) {
	for _, t := range d.wanted(nil) {
		if err := t.createWork(ctx, d.client); err != nil {
			return "", err
		}
	}
	if err := d.awaitWork(ctx, nil, allButCron...); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d pods", len(d.observer.view().pods)), nil
}

func (d *demo) roll(ctx context.Context) (string, error) {
	rolled := 0
	err := d.change(ctx, func(t *tenant) {
		if t.rolled() {
			t.version = "2"
			rolled++
		}
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d of %d Deployments", rolled, len(namespaces)), d.awaitWork(ctx, nil, deploymentsWork, endpointsWork)
}

func (d *demo) kill(ctx context.Context) (string, error) {
	fleet := d.observer.view().fleet()
	had := 0
	for _, holder := range fleet.Holders() {
		if holder == d.victim {
			had++
		}
	}
	began := time.Now()
	d.killed = loss{incarnation: fleet.Lease(leaserecord.MemberLease(fleetName, d.victim)).Holder, at: began}
	if err := d.replicas.kill(d.victim); err != nil {
		return "", err
	}
	if err := d.change(ctx, func(t *tenant) { t.replicas = manyReplicas }); err != nil {
		return "", err
	}
	first := &milestone{condition: func(v view) error { return d.stillHeld(v, had-1) }}
	last := &milestone{condition: func(v view) error { return d.stillHeld(v, 0) }}
	settled := &milestone{condition: d.settled(d.left)}
	elsewhere := &milestone{condition: func(v view) error {
		return doneWith(progress(d.wanted(without(namespaces, d.moved...)), v), deploymentsWork)
	}}
	if err := d.observer.awaitAll(ctx, began, first, last, settled, elsewhere); err != nil {
		return "", err
	}
	d.screen.printf("        its %d shards had new holders after %.2f to %.2f s, and were where the ring wants them after %.2f s",
		had, first.after.Seconds(), last.after.Seconds(), settled.after.Seconds())
	return fmt.Sprintf("in the other %d namespaces all Deployments were scaled after %.1f s",
		len(namespaces)-len(d.moved), elsewhere.after.Seconds()), nil
}

// stillHeld returns nil if at most n shards are held by the victim or by nobody.
func (d *demo) stillHeld(v view, n int) error {
	left := 0
	holders := v.fleet().Holders()
	for _, s := range d.plan.Shards() {
		if member := holders[s.ID]; member == d.victim || member == "" {
			left++
		}
	}
	if left > n {
		return fmt.Errorf("%d shards without a live holder", left)
	}
	return nil
}

func (d *demo) awaitMoved(ctx context.Context) (string, error) {
	err := d.awaitWork(ctx, d.moved, deploymentsWork, endpointsWork)
	return fmt.Sprintf("all were scaled %.1f s after the kill", time.Since(d.killed.at).Seconds()), err
}

func (d *demo) comeBack(ctx context.Context) (string, error) {
	d.screen.printf("        The Lease of the one before it must run out first, %v; then it waits %v before anything moves.",
		timing.LeaseDuration, rebalanceDelay)
	if err := d.replicas.start(d.victim); err != nil {
		return "", err
	}
	if err := d.observer.await(ctx, d.settled(d.owned)); err != nil {
		return "", err
	}
	return d.counts(), nil
}

func (d *demo) scaleBack(ctx context.Context, leaver string) (string, error) {
	if err := d.change(ctx, func(t *tenant) { t.replicas = fewReplicas }); err != nil {
		return "", err
	}
	// The audit log must show that the returned replica serves this namespace too, while there is
	// work.
	if err := d.awaitWork(ctx, []string{leaver}, deploymentsWork); err != nil {
		return "", err
	}
	if err := d.client.CoreV1().Namespaces().Delete(ctx, leaver, metav1.DeleteOptions{}); err != nil {
		return "", err
	}
	d.mu.Lock()
	d.tenants = tenantsIn(d.tenants, without(namespaces, leaver))
	d.mu.Unlock()
	began := time.Now()
	gone := &milestone{condition: func(v view) error {
		if _, ok := find(v.namespaces, "", leaver); ok {
			return errors.New("namespace " + leaver + " is there")
		}
		return nil
	}}
	done := &milestone{condition: func(v view) error { return doneWith(progress(d.wanted(nil), v), allButCron...) }}
	if err := d.observer.awaitAll(ctx, began, gone, done); err != nil {
		return "", err
	}
	return fmt.Sprintf("scaled after %.1f s, namespace gone after %.1f s", done.after.Seconds(), gone.after.Seconds()), nil
}

func (d *demo) awaitCron(ctx context.Context) (string, error) {
	err := d.awaitWork(ctx, nil, cronWork)
	return progressOf(cronWork, progress(d.wanted(nil), d.observer.view())), err
}

func (d *demo) prove() (string, error) {
	lines, err := prove(d.cp.AuditLog(), d.plan, d.moved, d.killed)
	for _, line := range lines {
		d.screen.printf("        %s", line)
	}
	return "no violation", err
}

// awaitWork waits until the work of these kinds is done, in these namespaces or all.
func (d *demo) awaitWork(ctx context.Context, in []string, kinds ...string) error {
	return d.observer.await(ctx, func(v view) error { return doneWith(progress(d.wanted(in), v), kinds...) })
}

// change changes the wanted state of all Deployments, and writes it to the API server.
func (d *demo) change(ctx context.Context, change func(*tenant)) error {
	d.mu.Lock()
	for i := range d.tenants {
		change(&d.tenants[i])
	}
	d.mu.Unlock()
	for _, t := range d.wanted(nil) {
		if err := t.apply(ctx, d.client); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) counts() string {
	return counts(d.plan, d.observer.view().fleet().Holders())
}

// settled is the condition that all shards are held as wanted.
func (d *demo) settled(want map[shard.ID]string) func(view) error {
	return func(v view) error { return heldBy(d.plan, v.fleet().Holders(), want) }
}

// leaver is the namespace to delete: the last one of the victim's.
func (d *demo) leaver() string {
	return d.moved[len(d.moved)-1]
}

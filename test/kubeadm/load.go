package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	// Each of loadNamespaces namespaces has a Deployment of up to loadReplicas pods.
	loadNamespaces, loadReplicas = 4, 3
	// spread is the namespace of a Deployment with pods on all nodes.
	spread, spreadReplicas = "spread", 8

	// Long, because kubelets and containers of four nodes share the machine.
	loadInterval, churnInterval = 2 * time.Second, 5 * time.Second
)

// load changes the cluster all the time: it scales Deployments, and creates and deletes namespaces.
type load struct {
	c      *cluster
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu           sync.Mutex
	made, failed int
	last         error
}

func loadNamespace(i int) string { return fmt.Sprintf("load-%d", i) }

// startLoad returns when all pods of its Deployments run.
func (c *cluster) startLoad(ctx context.Context) (*load, error) {
	for i := range loadNamespaces {
		if err := c.create(ctx, loadNamespace(i), 1); err != nil {
			return nil, err
		}
	}
	if err := inOrder(
		func() error { return c.create(ctx, spread, spreadReplicas) },
		func() error { return c.settled(ctx, spread, spreadReplicas) },
	); err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(ctx)
	l := &load{c: c, cancel: cancel}
	l.ended.Go(func() { l.scale(running) })
	l.ended.Go(func() { l.churn(running) })
	return l, nil
}

// every calls change with 0, 1, 2 and so on after each interval, and counts the results, until ctx
// ends.
func (l *load) every(ctx context.Context, interval time.Duration, change func(i int) error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			l.note(ctx, change(i))
		}
	}
}

// scale changes the size of one Deployment after another.
func (l *load) scale(ctx context.Context) {
	l.every(ctx, loadInterval, func(i int) error {
		return l.c.scale(ctx, loadNamespace(i%loadNamespaces), int32(1+rand.IntN(loadReplicas)))
	})
}

// churn creates one namespace after another with a Deployment, and deletes each as soon as its pods
// run.
func (l *load) churn(ctx context.Context) {
	l.every(ctx, churnInterval, func(i int) error {
		namespace := fmt.Sprintf("churn-%d", i)
		return inOrder(
			func() error { return l.c.create(ctx, namespace, 1) },
			func() error { return l.c.settled(ctx, namespace, 1) },
			func() error { return l.c.remove(ctx, namespace) },
		)
	})
}

// note counts a change, unless it failed because the load ended.
func (l *load) note(ctx context.Context, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case err != nil:
		l.failed, l.last = l.failed+1, err
	default:
		l.made++
	}
}

// stop ends the load, and requires that the Deployments reach what they were last asked for.
func (l *load) stop(ctx context.Context) error {
	l.cancel()
	l.ended.Wait()
	l.c.out.printf("load: %d changes, %d failed (the last by: %v)", l.made, l.failed, l.last)
	if l.made == 0 {
		return errors.New("the load has changed nothing")
	}
	for i := range loadNamespaces {
		if err := inOrder(
			func() error { return l.c.scale(ctx, loadNamespace(i), 2) },
			func() error { return l.c.settled(ctx, loadNamespace(i), 2) },
		); err != nil {
			return err
		}
	}
	if err := l.c.settled(ctx, spread, spreadReplicas); err != nil {
		return err
	}
	return l.c.nodes[0].quiet(ctx, "kubectl get namespaces -o name | grep -E '/(load|churn)-|/"+spread+"$' | xargs kubectl delete --timeout="+harness.Patience.String())
}

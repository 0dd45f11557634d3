package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// canaryNamespaces are the namespaces of the canary in docs/upgrade.md.
var canaryNamespaces = []string{"team-a", "team-b"}

// triesMinor runs the next minor version on two namespaces, as in docs/upgrade.md. It aborts one
// canary, promotes another, and then goes back.
func (c *cluster) triesMinor(ctx context.Context) error {
	for _, namespace := range canaryNamespaces {
		if err := c.create(ctx, namespace, 1); err != nil {
			return err
		}
	}
	abort := func() error {
		return inOrder(
			func() error { return c.follow(ctx, c.nodes[0], "canary-abort") },
			func() error { return c.rolled(ctx, c.images.flotilla) },
			func() error { return c.unpartitioned(ctx) },
		)
	}
	promote := func() error {
		return inOrder(
			func() error { return c.follow(ctx, c.nodes[0], "canary-promote") },
			func() error { return c.rolled(ctx, c.images.minor) },
			func() error { return c.unpartitioned(ctx) },
		)
	}
	return inOrder(
		func() error { return c.canary(ctx, 2) },
		func() error { return c.out.step("canary-abort", abort) },
		func() error { return c.canary(ctx, 3) },
		func() error { return c.out.step("canary-promote, and the members roll", promote) },
		func() error { return c.rolls(ctx, "minor-undo", c.images.flotilla) },
		func() error {
			for _, namespace := range canaryNamespaces {
				if err := c.remove(ctx, namespace); err != nil {
					return err
				}
			}
			return nil
		},
	)
}

// canary begins a canary, replaces one member, and scales the Deployments so that the member has
// work.
func (c *cluster) canary(ctx context.Context, replicas int32) error {
	return c.out.step("canary-start and canary-one", func() error {
		if err := inOrder(
			func() error { return c.follow(ctx, c.nodes[0], "canary-start") },
			func() error { return c.follow(ctx, c.nodes[0], "canary-one") },
			func() error { return c.keptApart(ctx) },
		); err != nil {
			return err
		}
		for _, namespace := range canaryNamespaces {
			if err := inOrder(
				func() error { return c.scale(ctx, namespace, replicas) },
				func() error { return c.settled(ctx, namespace, replicas) },
			); err != nil {
				return err
			}
		}
		return c.keptApart(ctx)
	})
}

// keptApart waits until the one member of the next version holds one shard per canary namespace. It
// also requires that the operator's command lists these namespaces as the canary's, and no others.
func (c *cluster) keptApart(ctx context.Context) error {
	script, err := c.book.script("canary-status")
	if err != nil {
		return err
	}
	members, err := c.members(ctx)
	if err != nil {
		return err
	}
	var ofMinor []corev1.Pod
	for _, pod := range members {
		if pod.Spec.Containers[0].Image == c.images.minor {
			ofMinor = append(ofMinor, pod)
		}
	}
	if len(ofMinor) != 1 {
		return fmt.Errorf("%d members are of %s, want 1", len(ofMinor), c.images.minor)
	}
	_, err = harness.Await(ctx, harness.Patience, "the canary's namespaces are with "+ofMinor[0].Name, func(ctx context.Context) error {
		out, err := c.nodes[0].output(ctx, script)
		if err != nil {
			return err
		}
		if want := fmt.Sprintf("%d of %d shards of it with 1 member of that version", len(canaryNamespaces), len(canaryNamespaces)); !strings.Contains(out, want) {
			return fmt.Errorf("the output does not contain %q:\n%s", want, out)
		}
		leases, err := c.leases(ctx, func(labels map[string]string) bool { return labels[leaseapi.ShardLabel] != "" })
		if err != nil {
			return err
		}
		held := 0
		for _, l := range leases {
			if l.member == ofMinor[0].Name {
				held++
			}
		}
		if held != len(canaryNamespaces) {
			return fmt.Errorf("%s holds %d shards, want %d", ofMinor[0].Name, held, len(canaryNamespaces))
		}
		return nil
	})
	return err
}

// unpartitioned requires that the next change of the image will reach all members.
func (c *cluster) unpartitioned(ctx context.Context) error {
	out, err := c.nodes[0].output(ctx, "kubectl -n kube-system get statefulset/flotilla -o jsonpath='{.spec.updateStrategy.rollingUpdate.partition}'")
	if err == nil && out != "" && out != "0" {
		err = errors.New("the StatefulSet still has the partition " + out)
	}
	return err
}

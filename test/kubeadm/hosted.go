package main

import (
	"context"
	"strings"
)

const hostedNamespace = "flotilla-hosted"

// hosted installs a fleet in mode hosted by Helm. The cluster is its own management cluster: the members have no right in it but
// by the kubeconfig that they are given.
func hosted(ctx context.Context, c *cluster) error {
	first := c.nodes[0]
	if err := inOrder(
		func() error { return c.mark() },
		func() error { return c.keepValues(ctx) },
	); err != nil {
		return err
	}
	for _, block := range []string{"hosted-identity", "hosted-kubeconfig", "hosted-secrets", "helm-hosted"} {
		err := c.out.step(block, func() error {
			script, err := c.book.script(block)
			if err != nil {
				return err
			}
			// Where the members of this cluster reach the API servers.
			return c.logged(ctx, first, strings.ReplaceAll(script, "https://api.hosted.example.org:6443", "https://"+endpoint))
		})
		if err != nil {
			return err
		}
	}
	return inOrder(
		func() error {
			return first.quiet(ctx, "kubectl -n kube-system wait --for=create lease/flotilla-plan --timeout=3m")
		},
		func() error {
			return c.out.step("stock stops, the hosted members are ready", func() error {
				return inOrder(
					func() error { return c.stopStock(ctx) },
					func() error {
						return first.quiet(ctx, "kubectl -n "+hostedNamespace+" rollout status statefulset/flotilla --timeout=8m")
					},
				)
			})
		},
		func() error { return c.follow(ctx, first, "hosted-check") },
		func() error { return c.healthy(ctx) },
		func() error { return c.works(ctx, "by-the-hosted", "the hosted fleet") },
		func() error {
			return c.out.step("stock starts, and flotilla stop", func() error {
				return inOrder(
					func() error { return c.startStock(ctx) },
					func() error { return c.follow(ctx, first, "stop") },
					func() error { return c.holds(ctx, false) },
				)
			})
		},
		func() error { return c.works(ctx, "after-hosted", "stock") },
		func() error { return c.out.step("the judge", func() error { return c.judge(ctx) }) },
		func() error {
			return first.quiet(ctx, "helm uninstall flotilla --namespace "+hostedNamespace+" --wait")
		},
		func() error { return c.forget(ctx) },
	)
}

// keepValues writes the values of the cluster's flags, which the page has in the block of the self-hosted installation.
func (c *cluster) keepValues(ctx context.Context) error {
	return c.nodes[0].quiet(ctx, `printf '%s\n' 'flags:' '  allocate-node-cidrs: true' '  cluster-cidr: 10.244.0.0/16' '  service-cluster-ip-range: 10.96.0.0/12' > my-values.yaml`)
}

package main

import (
	"context"
	"strings"

	"github.com/flotilla-kube/flotilla/test/harness"
)

// chart installs the fleet by Helm, upgrades it and rolls it back, and goes back to stock.
func chart(ctx context.Context, c *cluster) error {
	if err := c.mark(); err != nil {
		return err
	}
	blocks, err := c.book.section(installPage, "helm")
	if err != nil {
		return err
	}
	for _, b := range blocks {
		if strings.HasPrefix(b.Kubeadm(), "hosted-") {
			continue // The stage hosted runs it.
		}
		if strings.Contains(strings.Join(b.Lines, "\n"), "helm uninstall") {
			if err := c.beforeUninstall(ctx); err != nil {
				return err
			}
		}
		err := c.out.step(b.At()+" "+firstLine(b.Lines[0]), func() error { return c.block(ctx, b) })
		if err != nil {
			return err
		}
		switch {
		case strings.Contains(strings.Join(b.Lines, "\n"), "helm install"):
			err = c.afterInstall(ctx)
		case b.Kubeadm() == "helm-upgrade":
			err = c.rolled(ctx, c.images.later)
		case b.Kubeadm() == "helm-rollback":
			err = c.rolled(ctx, c.images.flotilla)
		}
		if err != nil {
			return err
		}
	}
	return c.forget(ctx)
}

// beforeUninstall makes stock lead again, as the page requires.
func (c *cluster) beforeUninstall(ctx context.Context) error {
	return inOrder(
		func() error { return c.section(ctx, migrationPage, "the-way-back") },
		func() error { return c.holds(ctx, false) },
		func() error { return c.works(ctx, "after-helm", "stock") },
		func() error { return c.out.step("the judge", func() error { return c.judge(serversStay) }) },
	)
}

// afterInstall runs what the page has after helm install: steps 3 to 5 of a self-hosted fleet, from
// the second command on.
func (c *cluster) afterInstall(ctx context.Context) error {
	return inOrder(
		func() error {
			return c.nodes[0].quiet(ctx, "kubectl -n kube-system wait --for=create lease/flotilla-plan --timeout=3m")
		},
		func() error { return c.stopStock(ctx) },
		func() error { return c.clearLeaderLock(ctx) },
		func() error { return c.rolled(ctx, c.images.flotilla) },
		func() error { return c.works(ctx, "by-helm", "the fleet") },
	)
}

// clearLeaderLock frees the Lease of the last stock leader when no stock process is left. That is
// quicker than waiting for it to expire.
func (c *cluster) clearLeaderLock(ctx context.Context) error {
	return c.out.step("clear-leader-lock", func() error {
		for _, n := range c.central() {
			_, err := harness.Await(ctx, harness.Patience, "stock has ended on "+n.name, func(ctx context.Context) error {
				return n.quiet(ctx, "test -z \"$(pgrep -x kube-controller || :)\"") // The kernel keeps 15 characters of a name.
			})
			if err != nil {
				return err
			}
		}
		switch holder, err := c.leaderLock(ctx); {
		case err != nil:
			return err
		case holder == leaderLockHolder:
			c.out.printf("the Lease had expired before stock had ended on all nodes: clear-leader-lock was not run")
			return nil
		}
		return inOrder(
			func() error { return c.follow(ctx, c.nodes[0], "clear-leader-lock") },
			func() error { return c.holds(ctx, true) },
		)
	})
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// shadow runs shadows beside the stock controller manager as docs/shadow.md describes: by
// kustomize, by Helm, and as a process on a node.
func shadow(ctx context.Context, c *cluster) error {
	if err := c.mark(); err != nil {
		return err
	}
	follow := func(block string) func() error {
		return func() error {
			return c.out.step(block, func() error { return c.follow(ctx, c.nodes[0], block) })
		}
	}
	return inOrder(
		follow("shadow-apply"),
		func() error { return c.reports(ctx) },
		func() error { return c.works(ctx, "beside-a-shadow", "stock") },
		follow("shadow-delete"),
		follow("shadow-helm"),
		func() error { return c.reports(ctx) },
		follow("shadow-helm-away"),
		func() error { return c.shadowProcess(ctx) },
		func() error { return c.out.step("the audit logs", func() error { return c.shadowsWroteNothing(ctx) }) },
		// deploy/rbac would stay for members to come. The next stages install it themselves.
		func() error { return c.nodes[0].quiet(ctx, "kubectl delete -k deploy/rbac") },
	)
}

// reports waits until the shadow's pod has logged a report of full caches and no missing right.
func (c *cluster) reports(ctx context.Context) error {
	script, err := c.book.script("shadow-logs")
	if err != nil {
		return err
	}
	const follows = " -f "
	if !strings.Contains(script, follows) {
		return fmt.Errorf("block shadow-logs does not follow the log: %q", script)
	}
	script = strings.Replace(script, follows, " ", 1)
	return c.out.step("shadow-logs: the report", func() error {
		_, err := harness.Await(ctx, slow, "the shadow reports", func(ctx context.Context) error {
			out, err := c.nodes[0].output(ctx, script)
			if err != nil {
				return err
			}
			return reportHolds(out)
		})
		return err
	})
}

// reportHolds requires that a shadow's log has a report of full caches, and that no right is
// missing.
func reportHolds(log string) error {
	_, report, found := strings.Cut(log, "SHADOW of member 1/3 of fleet "+fleetName)
	switch {
	case !found:
		return errors.New("there is no report yet")
	case !strings.Contains(report, "Caches:      full after "):
		return fmt.Errorf("the caches are not full:\n%s", report)
	case !strings.Contains(report, "Rights:      0 missing, ") || strings.Contains(report, "Rights:      0 missing, 0 granted"):
		return fmt.Errorf("%w: rights are missing, or were not asked for:\n%s", harness.ErrGiveUp, report)
	case strings.Contains(report, "BUG"):
		return fmt.Errorf("%w:\n%s", harness.ErrGiveUp, report)
	}
	return nil
}

// shadowProcess runs a shadow on a node with the page's command. When its caches are full it is
// told to end, and reports.
func (c *cluster) shadowProcess(ctx context.Context) error {
	script, err := c.book.script("shadow-process")
	if err != nil {
		return err
	}
	const until = `
pid=$!
trap 'kill $pid' EXIT
timeout 180 bash -c 'until curl -fks -o /dev/null https://127.0.0.1:10357/readyz; do sleep 1; done'
trap - EXIT
kill $pid
wait $pid
cat /tmp/shadow.log`
	return c.out.step("shadow-process, and its report", func() error {
		out, err := c.nodes[0].output(ctx, "(exec "+script+") >/tmp/shadow.log 2>&1 &"+until)
		if err != nil {
			return err
		}
		return reportHolds(out)
	})
}

// shadowsWroteNothing checks this stage's audit logs and the API server. Apart from reads, shadows
// may only ask for their rights. They have no Leases.
func (c *cluster) shadowsWroteNothing(ctx context.Context) error {
	asked := 0
	for _, n := range c.central() {
		text, _, err := logSince(n.path(auditLog), c.marks[n.name])
		if err != nil {
			return err
		}
		err = harness.Events(bytes.NewReader(text), func(e *harness.Event) error {
			switch {
			case e.Process() != fleetName || !e.Mutating():
			case e.ObjectRef != nil && (e.ObjectRef.APIGroup == "authorization.k8s.io" || e.ObjectRef.APIGroup == "authentication.k8s.io"):
				asked++
			default:
				return fmt.Errorf("a shadow has sent %s", e)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if asked == 0 {
		return errors.New("the shadows have not asked for a single right, so the logs are not theirs")
	}
	leases, err := c.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: leaseapi.FleetLabel})
	if err != nil {
		return err
	}
	if len(leases.Items) > 0 {
		return fmt.Errorf("there are %d Leases of a fleet", len(leases.Items))
	}
	c.out.printf("%d questions of the shadows about rights, and no other write", asked)
	return nil
}

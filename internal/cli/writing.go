package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

func addWrite(command *cobra.Command, dryRun *bool, wait *time.Duration) {
	command.Flags().BoolVar(dryRun, "dry-run", false, "Check and show everything, and write nothing.")
	addWait(command, wait)
}

func addWait(command *cobra.Command, wait *time.Duration) {
	fs := command.Flags()
	fs.DurationVar(wait, "wait", 0, "Wait until every shard of the new plan runs, and none of an older generation is held: --wait for 2 minutes at most, --wait=DURATION for as long.")
	fs.Lookup("wait").NoOptDefVal = defaultWait.String()
}

func checkWait(cmd *cobra.Command, wait time.Duration, dryRun bool) error {
	switch changed := cmd.Flags().Changed("wait"); {
	case changed && (wait <= 0 || wait > maxWait):
		return fmt.Errorf("--wait=%v: must be over 0s, up to %v", wait, maxWait)
	case changed && dryRun:
		return errors.New("--wait: must not be given with --dry-run, which changes nothing to wait for")
	default:
		return nil
	}
}

// finish prints what has been written, and waits for it if asked to.
func finish(cmd *cobra.Command, conn *connection, e Edit, dryRun bool, wait time.Duration) error {
	out, plan := cmd.OutOrStdout(), e.Next
	switch {
	case e.Same():
		plan = e.From // an earlier command may not have waited to the end
	case dryRun:
		fmt.Fprintf(out, "Dry run: plan generation %d was not written\n", plan.Generation)
	default:
		fmt.Fprintf(out, "Plan generation %d is written\n", plan.Generation)
	}
	if wait == 0 {
		return nil
	}
	began := conn.clock.Now()
	err := conn.wait(cmd.Context(), inForce(plan), wait, func(text string) { fmt.Fprintf(cmd.ErrOrStderr(), "Waiting: %s\n", text) })
	if err == nil {
		fmt.Fprintf(out, "Every shard of it runs, and none of an older generation is held, after %v\n", conn.clock.Since(began).Round(100*time.Millisecond))
	}
	return err
}

// rebalance computes what the planner would do and writes it.
func (c *connection) rebalance(ctx context.Context, config Config, dryRun bool) (Rebalancing, error) {
	var out Rebalancing
	err := c.writeIf(ctx, func(r *status.Reading) (shard.Plan, bool, error) {
		var err error
		out, err = Rebalance(r, config.Limits, config.Check)
		return out.Edit.Next, !dryRun && !out.Edit.Same(), err
	})
	return out, err
}

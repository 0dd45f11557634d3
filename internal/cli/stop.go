package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

func (c Config) stopCommand() *cobra.Command {
	var dryRun bool
	var by string
	var wait time.Duration
	command, target := c.newCommand("stop", "Put the whole fleet on standby, so that a stock kube-controller-manager leads",
		`Stops the fleet: every member releases its shards and runs nothing, the last one releases
the leader lock, and all stay as standbys until 'flotilla start', also when they are restarted.
A stock kube-controller-manager that waits for the leader lock then leads.

Nothing but Leases is needed for it: it works while the fleet's own pods cannot be scaled
or replaced. Where no stock kube-controller-manager waits, nobody runs the controllers.`,
		cobra.NoArgs, nil)
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkStopWait(cmd, wait, dryRun); err != nil {
			return err
		}
		stop := leaseapi.Stop{Since: c.Clock.Now(), By: cmp.Or(by, whoami())}
		if _, err := leaseapi.ParseStop(stop.Annotation()); err != nil {
			return fmt.Errorf("--by: %w", err)
		}
		conn, err := c.open(*target)
		if err != nil {
			return err
		}
		var before *status.StopView
		if err := target.within(cmd.Context(), func(ctx context.Context) error {
			before, err = conn.stop(ctx, stop, dryRun)
			return err
		}); err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		switch {
		case before != nil && before.Fault == "":
			fmt.Fprintf(out, "The fleet is stopped already%s\n", stopText(before))
		case dryRun:
			fmt.Fprintln(out, "Dry run: the fleet would be stopped")
		default:
			fmt.Fprintf(out, "The fleet is to stop,%s\n", stop)
		}
		if dryRun {
			return nil
		}
		return conn.see(cmd, stopped(wait), wait)
	}
	fs := command.Flags()
	fs.BoolVar(&dryRun, "dry-run", false, "Check everything, and write nothing.")
	fs.StringVar(&by, "by", "", "Who stops it, for those who find it stopped. Default: the name of the user here, and of this machine.")
	addStopWait(command, &wait, "Wait until no member runs anything and the leader lock is released: 0 for not at all, --wait=DURATION for as long. The fleet is stopped even if the wait times out.")
	return command
}

func (c Config) startCommand() *cobra.Command {
	var dryRun bool
	var wait time.Duration
	command, target := c.newCommand("start", "Start a stopped fleet again",
		`Takes back what 'flotilla stop' has asked for. The members take the leader lock when it is free:
a stock kube-controller-manager that holds it has to be stopped first, or while this waits.`,
		cobra.NoArgs, nil)
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkStopWait(cmd, wait, dryRun); err != nil {
			return err
		}
		conn, err := c.open(*target)
		if err != nil {
			return err
		}
		changed := false
		if err := target.within(cmd.Context(), func(ctx context.Context) error {
			changed, err = conn.start(ctx, dryRun)
			return err
		}); err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		switch {
		case !changed:
			fmt.Fprintln(out, "The fleet is not stopped")
			if !cmd.Flags().Changed("wait") {
				return nil
			}
			return conn.see(cmd, started(), wait) // an earlier command may not have waited to the end
		case dryRun:
			fmt.Fprintln(out, "Dry run: the fleet would be started")
			return nil
		}
		fmt.Fprintln(out, "The fleet is to start")
		return conn.see(cmd, started(), wait)
	}
	command.Flags().BoolVar(&dryRun, "dry-run", false, "Check everything, and write nothing.")
	addStopWait(command, &wait, "Wait until every shard runs: 0 for not at all, --wait=DURATION for as long. The fleet is started even if the wait times out.")
	return command
}

func addStopWait(command *cobra.Command, wait *time.Duration, usage string) {
	fs := command.Flags()
	fs.DurationVar(wait, "wait", defaultWait, usage)
	fs.Lookup("wait").NoOptDefVal = defaultWait.String()
}

func checkStopWait(cmd *cobra.Command, wait time.Duration, dryRun bool) error {
	switch {
	case wait < 0 || wait > maxWait:
		return fmt.Errorf("--wait=%v: must be from 0s to %v", wait, maxWait)
	case dryRun && cmd.Flags().Changed("wait"):
		return errors.New("--wait: must not be given with --dry-run, which changes nothing to wait for")
	default:
		return nil
	}
}

// whoami names the user and the machine that the command runs on, as far as they are known.
func whoami() string {
	name := "unknown"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil && host != "" {
		name += "@" + host
	}
	return name
}

func stopText(v *status.StopView) string {
	stop := leaseapi.Stop{By: status.Plain(v.By)}
	if v.Since != nil {
		stop.Since = *v.Since
	}
	return stop.String()
}

// stop writes the stop on the plan's Lease, unless there is one that can be read. It returns the
// earlier one.
func (c *connection) stop(ctx context.Context, stop leaseapi.Stop, dryRun bool) (before *status.StopView, err error) {
	err = c.annotate(ctx, leaseapi.PlanLease(c.target.Fleet), leaseapi.StopAnnotation, stop.Annotation(), func(r *status.Reading) (bool, error) {
		if r.PlanLease == nil {
			return false, r.Problem()
		}
		before = r.Stop()
		return !dryRun && (before == nil || before.Fault != ""), nil
	})
	return before, err
}

// start removes the stop, whatever it says.
func (c *connection) start(ctx context.Context, dryRun bool) (changed bool, err error) {
	err = c.annotate(ctx, leaseapi.PlanLease(c.target.Fleet), leaseapi.StopAnnotation, "", func(r *status.Reading) (bool, error) {
		if r.PlanLease == nil {
			return false, r.Problem()
		}
		changed = r.Stop() != nil
		return changed && !dryRun, nil
	})
	return changed, err
}

// see waits, if asked to, and then prints the state.
func (c *connection) see(cmd *cobra.Command, w waiting, within time.Duration) error {
	if within == 0 {
		return nil
	}
	began := c.clock.Now()
	var last *status.Reading
	missing := w.missing
	w.missing = func(r *status.Reading) error {
		last = r
		return missing(r)
	}
	if err := c.wait(cmd.Context(), w, within, func(text string) { fmt.Fprintf(cmd.ErrOrStderr(), "Waiting: %s\n", text) }); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s after %v; %s\n", w.done, c.clock.Since(began).Round(100*time.Millisecond), last.Leaders())
	return nil
}

// lastLook is how long before the end of a wait the fleet counts as stopped even if nobody has
// taken the leader lock: a read may take some of it.
const lastLook = 3 * time.Second

// stopped waits until nothing of the fleet runs and its leader locks are released, and then a
// little for a stock controller manager to take them, which looks at them every two seconds.
func stopped(within time.Duration) waiting {
	var began, free time.Time
	return waiting{
		what: "the fleet to stop; the stop stays in force",
		done: "No member runs anything",
		missing: func(r *status.Reading) error {
			v := r.Stop()
			if v == nil {
				return fmt.Errorf("%w for the fleet to stop: somebody has started it", errNever)
			}
			if began.IsZero() {
				began = r.Now
			}
			if err := v.Unfinished(r); err != nil {
				return err
			}
			lease := r.FreeLeaderLock()
			if free.IsZero() {
				free = r.Now
			}
			if lease == "" || r.Now.Sub(free) >= status.StandsAfter || r.Now.Sub(began)+lastLook >= within {
				return nil
			}
			return fmt.Errorf("nobody has taken the leader lock, Lease %s, yet", status.Plain(lease))
		},
	}
}

// started waits until every shard runs.
func started() waiting {
	return waiting{
		what: "the fleet to start; the start stays in force",
		done: "Every shard runs",
		missing: func(r *status.Reading) error {
			if r.Stop() != nil {
				return fmt.Errorf("%w for the fleet to start: somebody has stopped it", errNever)
			}
			err := pending(r, r.Plan)
			if l := r.WaitsFor(); l != nil && err != nil {
				return fmt.Errorf("the leader lock, Lease %s, is held by %s, which has to be stopped", l.Lease, status.Plain(l.Holder))
			}
			return err
		},
	}
}

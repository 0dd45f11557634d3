package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Commands returns the commands, to be added to the build's root command.
func Commands(config Config) []*cobra.Command {
	config = config.complete()
	plan := &cobra.Command{
		Use:   "plan",
		Short: "Show the plan of a running fleet, change it, or simulate it",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	plan.AddCommand(config.showCommand(), config.diffCommand(), config.applyCommand(), config.editCommand(), config.isolateCommand(), config.unisolateCommand(),
		config.pinCommand(), config.unpinCommand(), config.rebalanceCommand(), config.simulateCommand())
	return []*cobra.Command{config.statusCommand(), config.eventsCommand(), config.drainCommand(), config.undrainCommand(), config.stopCommand(), config.startCommand(), config.canaryCommand(), plan, config.topCommand(), config.dashboardCommand(), config.explainCommand(), config.auditCommand()}
}

// newCommand returns a command that is run with a connection, within the time that its flags give
// it. run may be nil if the caller sets RunE.
func (c Config) newCommand(use, short, long string, args cobra.PositionalArgs, run func(context.Context, *cobra.Command, *connection, []string) error) (*cobra.Command, *Target) {
	target := &Target{}
	command := &cobra.Command{
		Use: use, Short: short, Long: long, Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			connection, err := c.open(*target)
			if err != nil {
				return err
			}
			return target.within(cmd.Context(), func(ctx context.Context) error { return run(ctx, cmd, connection, args) })
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	target.addFlags(command)
	return command, target
}

func (c Config) showCommand() *cobra.Command {
	var output form
	command, _ := c.newCommand("show", "Show the plan in force, and who runs each shard",
		`Shows the plan in force: its rings and shards, whom it wants for each (OWNER, by pin
or home; else the consistent hashing decides), who holds it now, since when, and in
which term.

A shard is running when its holder says so, and starting until then; waiting while a
shard of an older plan generation still runs some of it, and also unprepared until its
holder has filled its caches; older when only such a shard runs it; locked-out when
nobody holds it because another holds the fleet's leader lock; and unowned when nobody
holds it.

'-o document' prints the plan alone, to be edited and applied.`,
		cobra.NoArgs, func(ctx context.Context, cmd *cobra.Command, conn *connection, _ []string) error {
			if err := output.validate(); err != nil {
				return err
			}
			r, err := conn.read(ctx)
			if err != nil {
				return err
			}
			if output.value == formDocument {
				if r.Fault != nil {
					return r.Problem()
				}
				document, err := r.Plan.Document()
				if err == nil {
					_, err = fmt.Fprint(cmd.OutOrStdout(), document)
				}
				return err
			}
			if output.value == formName {
				err = printNames(cmd.OutOrStdout(), shardNames(r.Plan))
			} else {
				err = print(cmd.OutOrStdout(), output.value, status.Of(r), linked(tablePlan(output.value == formWide)))
			}
			if err != nil || r.Fault == nil {
				return err
			}
			return r.Problem()
		})
	output.addListFlag(command, formDocument)
	return command
}

func shardNames(plan shard.Plan) []string {
	var names []string
	for _, s := range plan.Shards() {
		names = append(names, s.ID.String())
	}
	return names
}

func (c Config) diffCommand() *cobra.Command {
	var file string
	var output form
	command, _ := c.newCommand("diff -f FILE", "Show what an edited plan would change",
		"Shows what an edited plan would change, by the same checks as 'flotilla plan apply'.",
		cobra.NoArgs, func(ctx context.Context, cmd *cobra.Command, conn *connection, _ []string) error {
			if err := output.validate(); err != nil {
				return err
			}
			edited, err := readDocument("--filename", file, cmd.InOrStdin())
			if err != nil {
				return err
			}
			e, err := conn.apply(ctx, edited, c.Check, true)
			if err != nil {
				return err
			}
			return print(cmd.OutOrStdout(), output.value, viewEdit(e), tableEdit)
		})
	addFile(command, &file)
	output.addFlag(command)
	return command
}

func (c Config) applyCommand() *cobra.Command {
	var file string
	var dryRun bool
	var wait time.Duration
	command, _ := c.newCommand("apply -f FILE", "Make an edited plan the next generation",
		`Makes an edited plan the next generation. Take it from 'flotilla plan show -o document',
and leave its generation as it is: if the plan has been changed since, it is refused.

To split a shard, replace its line by two whose ranges meet; to merge neighbours, replace
theirs by one. New shards may be left without a name. To keep a shard on one member, give
it "pin". To give a namespace a shard of its own, add it to the ring's "isolate". Shards
that stay as they are go on running where they are; new ones start, prepared, the moment
that their predecessors have stopped.`,
		cobra.NoArgs, func(ctx context.Context, cmd *cobra.Command, conn *connection, _ []string) error {
			if err := checkWait(cmd, wait, dryRun); err != nil {
				return err
			}
			edited, err := readDocument("--filename", file, cmd.InOrStdin())
			if err != nil {
				return err
			}
			e, err := conn.apply(ctx, edited, c.Check, dryRun)
			if err != nil {
				return err
			}
			tableEdit(cmd.OutOrStdout(), viewEdit(e))
			return finish(cmd, conn, e, dryRun, wait)
		})
	addFile(command, &file)
	addWrite(command, &dryRun, &wait)
	return command
}

func (c Config) rebalanceCommand() *cobra.Command {
	var dryRun bool
	var wait time.Duration
	command, _ := c.newCommand("rebalance", "Balance the load of the members now",
		`Does what the fleet's planner does by itself once every --replan-interval: moves, splits
and merges ranges so that the objects of the namespaces lie evenly on the members. Each
time it goes a part of the way; repeat it until nothing is worth doing.`,
		cobra.NoArgs, func(ctx context.Context, cmd *cobra.Command, conn *connection, _ []string) error {
			if err := checkWait(cmd, wait, dryRun); err != nil {
				return err
			}
			out, err := conn.rebalance(ctx, c, dryRun)
			if err != nil {
				return err
			}
			tableRebalancing(cmd.OutOrStdout(), out.Rings)
			printWarnings(cmd.OutOrStdout(), out.Edit.Warnings)
			return finish(cmd, conn, out.Edit, dryRun, wait)
		})
	addWrite(command, &dryRun, &wait)
	return command
}

func (c Config) simulateCommand() *cobra.Command {
	var members int
	var output form
	command, _ := c.newCommand("simulate --members N", "Show what would move with another number of members",
		`Shows what the planner would do, step by step until nothing is worth doing, with N
members: the first ones of those that there are, and then further ones named as a
StatefulSet would name them. Nothing is written.`,
		cobra.NoArgs, func(ctx context.Context, cmd *cobra.Command, conn *connection, _ []string) error {
			if members < 1 || members > maxMembers {
				return fmt.Errorf("--members %d: must be from 1 to %d", members, maxMembers)
			}
			if err := output.validate(); err != nil {
				return err
			}
			r, err := conn.read(ctx)
			if err != nil {
				return err
			}
			s, err := Simulate(r, members, c.Limits)
			if err != nil {
				return err
			}
			return print(cmd.OutOrStdout(), output.value, s, tableSimulation)
		})
	command.Flags().IntVar(&members, "members", 0, fmt.Sprintf("How many members, 1 to %d.", maxMembers))
	output.addFlag(command)
	return command
}

func (c Config) explainCommand() *cobra.Command {
	var output form
	var controller, namespace string // of the object
	command, target := c.newCommand("explain NAMESPACE | TYPE/NAME | --controller NAME", "Show who looks after a namespace or an object, or runs a controller",
		`Shows for each namespaced ring the shard that a namespace lies in, who holds it since
when, and whom the plan wants.

Of an object, such as deployment/web or node/worker-1, it shows the same of its namespace,
and the groups that decide over objects of its type. TYPE is whatever kubectl takes. The
API server is asked which types it serves, and not for the object: neither that nor the
namespace need exist.

Of a controller it shows the ring or group that has it, who runs which part of it, and
which members are of a version that lacks it. It may be named without "-controller".`,
		func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("%w, got %q", errNeither, args)
			}
			return nil
		}, nil)
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if err := output.validate(); err != nil {
			return err
		}
		byController := cmd.Flags().Changed("controller")
		if byController != (len(args) == 0) {
			return fmt.Errorf("%w, got %q", errNeither, args)
		}
		object := len(args) == 1 && strings.Contains(args[0], "/")
		var err error
		switch {
		case object:
			if err = checkObject(args[0]); err == nil {
				namespace, err = target.objectNamespace()
			}
		case target.namespace != "":
			err = fmt.Errorf("--namespace %q: must be given only with TYPE/NAME", target.namespace)
		case len(args) == 1:
			err = oneNamespace(cmd, args)
		}
		if err != nil {
			return err
		}
		conn, err := c.open(*target)
		if err != nil {
			return err
		}
		return target.within(cmd.Context(), func(ctx context.Context) error {
			r, err := conn.read(ctx)
			if err != nil {
				return err
			}
			if byController {
				e, err := ExplainController(r, controller)
				if err != nil {
					return err
				}
				return print(cmd.OutOrStdout(), output.value, e, tableController)
			}
			e, err := c.explain(ctx, r, conn, args[0], namespace)
			if err != nil {
				return err
			}
			return print(cmd.OutOrStdout(), output.value, e, tableExplanation)
		})
	}
	command.Flags().StringVar(&controller, "controller", "", "A controller, as 'flotilla controllers' names it.")
	target.ofObjects(command)
	output.addFlag(command)
	return command
}

// explain returns who runs the controllers of a namespace, or of an object if the text is
// TYPE/NAME.
func (c Config) explain(ctx context.Context, r *status.Reading, conn *connection, text, namespace string) (Explanation, error) {
	word, name, object := strings.Cut(text, "/")
	if !object {
		return Explain(r, text)
	}
	if r.Fault != nil {
		return Explanation{}, r.Problem()
	}
	of, err := resourceTypeOf(ctx, conn.client.Discovery(), word)
	if err != nil {
		return Explanation{}, err
	}
	return ExplainObject(r, of, namespace, name, c.Deciding)
}

func oneNamespace(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s takes one NAMESPACE, got %q", cmd.CommandPath(), args)
	}
	if !isLabel(args[0]) {
		return fmt.Errorf("NAMESPACE %q: must be the name of a namespace, %s", args[0], aLabel)
	}
	return nil
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// change writes one change as the next generation of the plan, retrying if others write meanwhile.
// It gives alter a copy.
func (c *connection) change(ctx context.Context, check func(shard.Plan) error, dryRun bool, alter func(*status.Reading, *shard.Plan) error) (Edit, error) {
	var e Edit
	err := c.writeIf(ctx, func(r *status.Reading) (shard.Plan, bool, error) {
		if r.Fault != nil {
			return shard.Plan{}, false, r.Problem()
		}
		edited := r.Plan
		edited.Rings = slices.Clone(r.Plan.Rings)
		for i, ring := range edited.Rings {
			edited.Rings[i].Shards, edited.Rings[i].Isolate = slices.Clone(ring.Shards), slices.Clone(ring.Isolate)
		}
		err := alter(r, &edited)
		if err != nil {
			return shard.Plan{}, false, err
		}
		e, err = Prepare(r, edited, check)
		return e.Next, !dryRun && !e.Same(), err
	})
	return e, err
}

// singleCommand returns a command that makes one change to the plan.
func (c Config) singleCommand(use, short, long string, args cobra.PositionalArgs, alter func(args []string) func(*status.Reading, *shard.Plan) error) *cobra.Command {
	var dryRun bool
	var wait time.Duration
	command, _ := c.newCommand(use, short, long, args, func(ctx context.Context, cmd *cobra.Command, conn *connection, args []string) error {
		if err := checkWait(cmd, wait, dryRun); err != nil {
			return err
		}
		e, err := conn.change(ctx, c.Check, dryRun, alter(args))
		if err != nil {
			return err
		}
		tableEdit(cmd.OutOrStdout(), viewEdit(e))
		return finish(cmd, conn, e, dryRun, wait)
	})
	addWrite(command, &dryRun, &wait)
	return command
}

func (c Config) isolateCommand() *cobra.Command {
	return c.singleCommand("isolate NAMESPACE", "Give a namespace shards of its own",
		`Gives a namespace a shard of its own in each ring of namespaces, by cutting the range that it
lies in. Nothing else moves. The namespace need not exist.`,
		oneNamespace, func(args []string) func(*status.Reading, *shard.Plan) error { return isolate(args[0], true) })
}

func (c Config) unisolateCommand() *cobra.Command {
	return c.singleCommand("unisolate NAMESPACE", "Let a namespace share its shards again",
		`Takes back 'flotilla plan isolate'. The ranges stay as they are, until the planner merges them.`,
		oneNamespace, func(args []string) func(*status.Reading, *shard.Plan) error { return isolate(args[0], false) })
}

// isolate makes each namespaced ring isolate a namespace, or stop isolating it.
func isolate(namespace string, alone bool) func(*status.Reading, *shard.Plan) error {
	return func(_ *status.Reading, plan *shard.Plan) error {
		found := false
		for i, ring := range plan.Rings {
			if ring.Scope != shard.ScopeNamespaced {
				continue
			}
			at, listed := slices.BinarySearch(ring.Isolate, namespace)
			found = found || listed
			switch {
			case alone && !listed:
				plan.Rings[i].Isolate = slices.Insert(ring.Isolate, at, namespace)
			case !alone && listed:
				plan.Rings[i].Isolate = slices.Delete(ring.Isolate, at, at+1)
			}
		}
		if !alone && !found {
			return fmt.Errorf("NAMESPACE %q: no ring isolates it: see 'flotilla plan show'", namespace)
		}
		return nil
	}
}

func (c Config) pinCommand() *cobra.Command {
	return c.singleCommand("pin SHARD MEMBER", "Keep a shard on one member",
		`Keeps a shard, as "namespaces/03" or "cluster/nodes", on one member while that is there. If
the member goes, another one has the shard until it is back.`,
		shardAnd("MEMBER"), func(args []string) func(*status.Reading, *shard.Plan) error { return pin(args[0], args[1]) })
}

func (c Config) unpinCommand() *cobra.Command {
	return c.singleCommand("unpin SHARD", "Let a shard move again",
		`Takes back 'flotilla plan pin'. The shard stays where it is, until the planner moves it.`,
		shardAnd(), func(args []string) func(*status.Reading, *shard.Plan) error { return pin(args[0], "") })
}

// shardAnd requires a shard and the given further arguments.
func shardAnd(more ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if want := append([]string{"SHARD"}, more...); len(args) != len(want) {
			return fmt.Errorf("%s takes %s, got %q", cmd.CommandPath(), strings.Join(want, " and "), args)
		}
		return nil
	}
}

// pin pins a shard to a member, or to none.
func pin(id, member string) func(*status.Reading, *shard.Plan) error {
	return func(r *status.Reading, plan *shard.Plan) error {
		s, err := shardNamed(plan, id)
		if err != nil {
			return err
		}
		if member == "" {
			if s.Pin == "" {
				return fmt.Errorf("SHARD %s: is not pinned", id)
			}
			if s.Namespaced() {
				s.Home = s.Pin
			}
			s.Pin = ""
			return nil
		}
		serve := leaseapi.ServersOf(r.Known, s.Ring)
		if !slices.Contains(serve, member) {
			return fmt.Errorf("MEMBER %q: must be a member that serves ring %s: %s", member, s.Ring, orNobody(serve))
		}
		s.Pin = member
		return nil
	}
}

func orNobody(names []string) string {
	if len(names) == 0 {
		return "there is none"
	}
	return status.Plain(strings.Join(names, ", "))
}

// shardNamed returns the shard of this name in the plan, to be changed. The error names some
// existing ones.
func shardNamed(plan *shard.Plan, id string) (*shard.Shard, error) {
	var there []string
	for i := range plan.Rings {
		for j := range plan.Rings[i].Shards {
			s := &plan.Rings[i].Shards[j]
			if s.ID.String() == id {
				return s, nil
			}
			there = append(there, s.ID.String())
		}
	}
	return nil, fmt.Errorf("SHARD %q: must be one of the plan, RING/NAME: %s", id, some(there))
}

func (c Config) editCommand() *cobra.Command {
	var wait time.Duration
	command, target := c.newCommand("edit", "Edit the plan in force in an editor",
		`Opens the plan in force in the editor of $KUBE_EDITOR or $EDITOR, vi by default, and applies
what is saved, by the same checks as 'flotilla plan apply'. What is refused is kept in a
file, which the error names.`,
		cobra.NoArgs, nil)
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkWait(cmd, wait, false); err != nil {
			return err
		}
		conn, err := c.open(*target)
		if err != nil {
			return err
		}
		var r *status.Reading
		err = target.within(cmd.Context(), func(ctx context.Context) error {
			if r, err = conn.read(ctx); err == nil && r.Fault != nil {
				err = r.Problem()
			}
			return err
		})
		if err != nil {
			return err
		}
		e, err := conn.edit(cmd, r.Plan, c.Check)
		if err != nil {
			return err
		}
		tableEdit(cmd.OutOrStdout(), viewEdit(e))
		return finish(cmd, conn, e, false, wait)
	}
	addWait(command, &wait)
	return command
}

// edit lets the user edit the plan, however long that takes, and applies it.
func (c *connection) edit(cmd *cobra.Command, plan shard.Plan, check func(shard.Plan) error) (Edit, error) {
	document, err := plan.Document()
	if err != nil {
		return Edit{}, err
	}
	dir, err := os.MkdirTemp("", "flotilla-plan-")
	if err != nil {
		return Edit{}, err
	}
	file := filepath.Join(dir, "plan.json")
	err = os.WriteFile(file, []byte(document), 0o600)
	if err == nil {
		err = runEditor(cmd, file)
	}
	if err != nil {
		return Edit{}, errors.Join(err, os.RemoveAll(dir))
	}
	e, err := c.applyFile(cmd, file, check)
	if err != nil {
		return Edit{}, fmt.Errorf("%w\nthe edited plan is kept: flotilla plan apply -f %s", err, file)
	}
	return e, os.RemoveAll(dir)
}

// applyFile applies a document. The time for requests counts from here, not from the start of the
// editor.
func (c *connection) applyFile(cmd *cobra.Command, file string, check func(shard.Plan) error) (Edit, error) {
	plan, err := readDocument("file", file, nil)
	if err != nil {
		return Edit{}, err
	}
	var e Edit
	err = c.target.within(cmd.Context(), func(ctx context.Context) error {
		e, err = c.apply(ctx, plan, check, false)
		return err
	})
	return e, err
}

// runEditor opens a file in the user's editor, which may be given with arguments.
func runEditor(cmd *cobra.Command, file string) error {
	editor := "vi"
	for _, name := range []string{"KUBE_EDITOR", "EDITOR"} {
		if value := os.Getenv(name); value != "" {
			editor = value
			break
		}
	}
	// As kubectl and git do it: the value is a command line.
	command := exec.CommandContext(cmd.Context(), "sh", "-c", editor+` "$1"`, "sh", file)
	command.Stdin, command.Stdout, command.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	if err := command.Run(); err != nil {
		return fmt.Errorf("editor %q, of $KUBE_EDITOR or $EDITOR: %w", editor, err)
	}
	return nil
}

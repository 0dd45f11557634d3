package app

import (
	"fmt"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/flotilla-kube/flotilla/internal/cli"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
)

// newOperatorCommands returns the commands that look at a running fleet and change its plan.
func newOperatorCommands() []*cobra.Command {
	commands := cli.Commands(cli.Config{Check: catalogue.CheckPlan, Identities: catalogue.Identities(), Deciding: catalogue.Deciding})
	for _, command := range commands {
		// Overrides the root's, which sets up a member's logs and feature gates: errors are printed
		// plainly then.
		command.PersistentPreRunE = func(*cobra.Command, []string) error { return nil }
	}
	return commands
}

// further is the part of the help text that lists every command below the root, since upstream's
// usage has only flags.
func further(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("\n\nFurther commands:\n")
	table := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	var list func(*cobra.Command)
	list = func(parent *cobra.Command) {
		for _, c := range parent.Commands() {
			switch {
			case !c.IsAvailableCommand() || c.Name() == "completion":
			case c.HasAvailableSubCommands():
				list(c)
			default:
				fmt.Fprintf(table, "  %s\t%s\n", c.CommandPath(), strings.ToLower(c.Short[:1])+c.Short[1:])
			}
		}
	}
	list(root)
	fmt.Fprintf(table, "  %s completion\tprint a script with which a shell completes all this\n", root.Name())
	_ = table.Flush()
	fmt.Fprintf(&b, `
They read the fleet's Leases with a kubeconfig; see '%[1]s status --help'. Under the name
kubectl-%[1]s, the binary is a plugin of kubectl: kubectl %[1]s status.`, root.Name())
	return b.String()
}

// operatorStatus returns the exit status of the process after a command that has not failed.
func operatorStatus(command *cobra.Command) int { return cli.ExitStatus(command) }

// nameAsCalled makes the command show how it was called if that is as a kubectl plugin: for
// 'kubectl flotilla', kubectl runs kubectl-flotilla.
func nameAsCalled(command *cobra.Command, path string) {
	name := strings.TrimSuffix(filepath.Base(path), ".exe")
	if plugin, is := strings.CutPrefix(name, "kubectl-"); is && plugin == command.Name() {
		if command.Annotations == nil {
			command.Annotations = map[string]string{}
		}
		command.Annotations[cobra.CommandDisplayNameAnnotation] = "kubectl " + plugin
	}
}

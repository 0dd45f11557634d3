package app

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flotilla-kube/flotilla/internal/cli"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
)

// newOperatorCommands returns the commands that look at a running fleet and change its plan.
func newOperatorCommands() []*cobra.Command {
	commands := cli.Commands(cli.Config{Check: catalogue.CheckPlan, Identities: catalogue.Identities(), Deciding: catalogue.Deciding})
	for _, command := range commands {
		// Nearer than that of the root, which sets up a member's logs and feature gates: errors are printed plainly then.
		command.PersistentPreRunE = func(*cobra.Command, []string) error { return nil }
	}
	return commands
}

// operatorStatus returns what the process is to end with after a command that has not failed.
func operatorStatus(command *cobra.Command) int { return cli.ExitStatus(command) }

// nameAsCalled has the command say how it was called where that is as a plugin of kubectl, which runs kubectl-flotilla for
// 'kubectl flotilla'.
func nameAsCalled(command *cobra.Command, path string) {
	name := strings.TrimSuffix(filepath.Base(path), ".exe")
	if plugin, is := strings.CutPrefix(name, "kubectl-"); is && plugin == command.Name() {
		if command.Annotations == nil {
			command.Annotations = map[string]string{}
		}
		command.Annotations[cobra.CommandDisplayNameAnnotation] = "kubectl " + plugin
	}
}

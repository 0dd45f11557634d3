package app

import (
	"github.com/spf13/cobra"

	"github.com/flotilla-kube/flotilla/pkg/cli"
	"github.com/flotilla-kube/flotilla/pkg/controllers"
)

// newOperatorCommands returns the commands that look at a running fleet and change its plan.
func newOperatorCommands() []*cobra.Command {
	commands := cli.Commands(cli.Config{Check: controllers.CheckPlan})
	for _, command := range commands {
		// Nearer than that of the root, which sets up a member's logs and feature gates: errors are printed plainly then.
		command.PersistentPreRunE = func(*cobra.Command, []string) error { return nil }
	}
	return commands
}

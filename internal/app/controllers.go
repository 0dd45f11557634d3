package app

import (
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
)

// newControllersCommand prints the catalogue.
func newControllersCommand() *cobra.Command {
	var why bool
	command := &cobra.Command{
		Use:   "controllers",
		Short: "Print the catalogue: every controller, and how it is sharded",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			off := kcm.ControllersDisabledByDefault()
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tSCOPE\tSHARD\tDEFAULT")
			for _, row := range catalogue.All() {
				where := catalogue.NamespacesRing + "/*"
				if row.Group != "" {
					where = catalogue.ClusterRing + "/" + row.Group
				}
				enabled := "on"
				if slices.Contains(off, row.Name) {
					enabled = "off"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", row.Name, row.Scope, where, enabled)
				if why {
					fmt.Fprintf(w, "  %s\n", row.Why)
				}
			}
			return w.Flush()
		},
	}
	command.Flags().BoolVar(&why, "why", false, "Also print why each controller is sharded as it is.")
	return command
}

package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/flotilla-kube/flotilla/internal/status"
)

// completeTimeout is how long somebody who has pressed the tab key waits for an API server.
const completeTimeout = 2 * time.Second

// completeMembers completes a first argument with the names of live members; on any error, with
// nothing.
func (c Config) completeMembers(target *Target) cobra.CompletionFunc {
	complete := c.completeFlag(target, func(r *status.Reading) []string {
		var names []string
		for _, m := range status.Members(r) {
			if m.State != "gone" && m.Name == status.Plain(m.Name) {
				names = append(names, m.Name)
			}
		}
		return names
	})
	return func(cmd *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, start)
	}
}

// completeFlag completes the value of a flag with names from the Leases; on any error, with
// nothing.
func (c Config) completeFlag(target *Target, names func(*status.Reading) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		conn, err := c.open(*target)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		base := cmd.Context()
		if base == nil {
			base = context.Background()
		}
		ctx, cancel := context.WithTimeout(base, completeTimeout)
		defer cancel()
		r, err := conn.read(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(r), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeOutput completes the values of -o.
func completeOutput(f *form) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		values := slices.DeleteFunc(slices.Clone(f.allowed), func(v string) bool { return v == formPath })
		return values, cobra.ShellCompDirectiveNoFileComp
	}
}

package app

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestHelpListsEveryCommand checks that the help text names every command that does something
// exactly once. Upstream's usage of the root command shows only flags.
func TestHelpListsEveryCommand(t *testing.T) {
	root, err := NewCommand()
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]int{}
	for line := range strings.Lines(root.Long) {
		if path, what, ok := strings.Cut(strings.TrimSpace(line), "  "); ok && strings.TrimSpace(what) != "" {
			listed[path]++
		}
	}
	var want []string
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if len(c.Commands()) == 0 && c.Parent() != nil && c.Parent().Name() != "completion" {
			want = append(want, c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	for _, path := range append(want, "flotilla completion") {
		if listed[path] != 1 {
			t.Errorf("the help text lists %q %d times, want once:\n%s", path, listed[path], root.Long)
		}
	}
	for _, path := range []string{"flotilla stop", "flotilla plan edit", "flotilla canary start"} {
		if !slices.Contains(want, path) {
			t.Errorf("no command %q among %q", path, want)
		}
	}
}

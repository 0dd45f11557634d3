package check

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/flotilla-kube/flotilla/internal/app"
	"github.com/flotilla-kube/flotilla/test/docs/markdown"
)

const generated = "docs/flags.md"

func command(t *testing.T) *cobra.Command {
	t.Helper()
	root, err := app.NewCommand()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// TestCommandsExist finds commands and flags of flotilla in the pages that the command does not
// have.
func TestCommandsExist(t *testing.T) {
	command := command(t)
	found := 0
	for _, p := range pages(t) {
		for _, b := range p.Blocks {
			n, complaints := commandComplaints(b, command)
			found += n
			for _, complaint := range complaints {
				t.Error(complaint)
			}
		}
		if p.Path == generated {
			continue // Upstream wrote it.
		}
		for _, complaint := range flagComplaints(p, command) {
			t.Error(complaint)
		}
	}
	if found < 20 {
		t.Errorf("only %d commands of flotilla are found in all pages: the test reads less than it should", found)
	}
}

// commandComplaints also returns how many commands of flotilla the block has.
func commandComplaints(b markdown.Block, command *cobra.Command) (int, []string) {
	var complaints []string
	found := 0
	commands, err := b.Commands()
	if err != nil {
		complaints = append(complaints, fmt.Sprintf("%s: %v", b.Page, err))
	}
	for _, c := range commands {
		args, ok := argumentsOf(c.Words)
		if !ok {
			continue
		}
		found++
		if err := accepts(command, args); err != nil {
			complaints = append(complaints, fmt.Sprintf("%s:%d: %q: %v", b.Page, c.Line, strings.Join(c.Words, " "), err))
		}
	}
	// The lines are a pod's arguments.
	if b.Language() == "yaml" {
		for i, line := range b.Lines {
			if match := argument.FindStringSubmatch(line); match != nil && command.Flags().Lookup(match[1]) == nil {
				complaints = append(complaints, fmt.Sprintf("%s:%d: flotilla has no flag --%s", b.Page, b.Line+1+i, match[1]))
			}
		}
	}
	return found, complaints
}

var argument = regexp.MustCompile(`^\s*- ["']?--([a-z0-9-]+)`)

// argumentsOf returns the words after flotilla in a command, under any of its names.
func argumentsOf(words []string) ([]string, bool) {
	for i, word := range words {
		switch name := path.Base(word); {
		case i == 0 && (name == "flotilla" || name == "kubectl-flotilla"):
			return words[1:], true
		case i == 1 && name == "flotilla" && words[0] == "kubectl":
			return words[2:], true
		case word == "--" && i+1 < len(words) && path.Base(words[i+1]) == "flotilla" && words[0] == "kubectl":
			return words[i+2:], true
		}
	}
	return nil, false
}

// accepts returns an error if there is no such command, or if the command has no such flag.
func accepts(root *cobra.Command, args []string) error {
	at, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	var plain []string
	for i := 0; i < len(rest); i++ {
		arg := rest[i]
		name, _, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		var flag *pflag.Flag
		switch {
		case arg == "-" || arg == "--" || arg == "…" || arg == "...":
			continue
		case strings.HasPrefix(arg, "--"):
			flag = lookup(at, name)
		case strings.HasPrefix(arg, "-"):
			flag = shorthand(at, name[:1])
			hasValue = hasValue || len(name) > 1
		default:
			plain = append(plain, arg)
			continue
		}
		if flag == nil && name != "help" && name != "h" {
			return fmt.Errorf("%s has no flag %s", at.CommandPath(), arg)
		}
		if flag != nil && !hasValue && flag.NoOptDefVal == "" {
			i++
		}
	}
	if at.HasSubCommands() && len(plain) > 0 {
		return fmt.Errorf("%s has no command %s", at.CommandPath(), plain[0])
	}
	if at.HasSubCommands() {
		return nil
	}
	return at.ValidateArgs(plain)
}

func lookup(c *cobra.Command, name string) *pflag.Flag {
	if flag := c.Flags().Lookup(name); flag != nil {
		return flag
	}
	return c.InheritedFlags().Lookup(name)
}

func shorthand(c *cobra.Command, name string) *pflag.Flag {
	if flag := c.Flags().ShorthandLookup(name); flag != nil {
		return flag
	}
	return c.InheritedFlags().ShorthandLookup(name)
}

// foreign are flags of other programs that the text names.
var foreign = []string{
	// kubectl, helm, go.
	"force", "grace-period", "type", "patch", "set", "namespace", "from-file", "delete-emptydir-data", "ignore-daemonsets", "for", "subresource",
	"previous", "values", "race", "wait", "selector", "from", "raw", "replicas",
	// kubeadm.
	"patches", "pod-network-cidr", "control-plane",
	// kube-apiserver.
	"request-timeout", "service-account-key-file", "audit-log-path", "runtime-config", "default-not-ready-toleration-seconds", "audit-policy-file",
	"service-account-max-token-expiration", "service-account-extend-token-expiration",
	// cloud-controller-manager, stock and as a fleet.
	"concurrent-service-syncs", "undivided-services",
	// Our own tests.
	"once", "rounds", "rewrite",
}

var flagInText = regexp.MustCompile(`(?:^|[\s(\[=])--([a-z][a-z0-9-]+)`)

// flagComplaints finds flags in code in the text that no command has.
func flagComplaints(p markdown.Page, root *cobra.Command) []string {
	known := map[string]bool{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
		c.InheritedFlags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	all := slices.Collect(maps.Keys(known))
	var complaints []string
	for _, s := range p.Spans {
		for _, match := range flagInText.FindAllStringSubmatch(s.Text, -1) {
			name := match[1]
			// Such as --cluster-signing- for several.
			begins := strings.HasSuffix(name, "-") && slices.ContainsFunc(all, func(full string) bool { return strings.HasPrefix(full, name) })
			if !known[name] && !begins && !slices.Contains(foreign, name) {
				complaints = append(complaints, fmt.Sprintf("%s:%d: flotilla has no flag --%s; if another program has, add it to foreign", p.Path, s.Line, name))
			}
		}
	}
	return complaints
}

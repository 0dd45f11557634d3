package check

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/pflag"

	cliflag "k8s.io/component-base/cli/flag"
)

// hostDependent are the flags with defaults that differ between machines, and what the page says
// instead.
var hostDependent = map[string]string{
	"member-name": "the host name",
	"node-name":   "the environment variable `NODE_NAME`",
	"zone":        "the environment variable `ZONE`",
}

const flagsHead = `# Flags

Every flag of a member, with its default: first the fleet's own, then those of
kube-controller-manager. Those mean what they mean there, but for
[a few](#where-a-flag-of-kube-controller-manager-differs). The flags of the commands that look at a
fleet are in [cli.md](cli.md); what to set the fleet's flags to is in [tune.md](tune.md).

This page is generated: ` + "`go test ./test/docs/check -run TestFlagsPage -rewrite`" + ` writes it, and a test fails when it is out of date.

## Where a flag of kube-controller-manager differs

A fleet is several processes, and a process runs several shards. So these flags mean something else
than for one process that runs everything:

| flag | what it means in a fleet |
|---|---|
`

// differences are the flags of kube-controller-manager with another meaning in a fleet.
// TestDifferencesNameFlags checks the names.
var differences = []struct {
	flags []string
	text  string
}{
	{[]string{"kube-api-qps", "kube-api-burst"}, "The limit of each controller of each member, whatever the number of its shards: ten members may send ten times as much " +
		"as one stock leader. With [--share-kube-api-limits](#share-kube-api-limits) it is the fleet's. See [tune](tune.md#requests-a-replicas-share-and-the-sum)."},
	{[]string{"concurrent-deployment-syncs", "concurrent-replicaset-syncs", "concurrent-job-syncs", "concurrent-service-endpoint-syncs"},
		"And all others that set the number of workers of a controller that works by ranges: the workers of each member. A range gets its part of " +
			"them, and at least one. A controller of a group has as many as its flag says. See [tune](tune.md#workers)."},
	{[]string{"controllers"}, "Each member's own: members with different lists run different controllers in the shards that they hold."},
	{[]string{"controller-start-interval"}, "Counts from the start of the process. Controllers of shards that a member takes over later begin at once."},
	{[]string{"controller-shutdown-timeout"}, "In a process that was told to stop it counts for each shard, once its writes are refused, and is at most the " +
		"lease duration. See [the fleet's design](design/fleet.md#when-upstreams-controllers-stop)."},
	{[]string{"leader-elect-lease-duration", "leader-elect-renew-deadline", "leader-elect-retry-period", "leader-elect-resource-namespace"},
		"The timings and the namespace of all of the fleet's Leases."},
	{[]string{"leader-elect-resource-name"}, "The Lease that all members hold together while any of them runs something, unless [--leader-lock](#leader-lock) says otherwise. " +
		"Which member runs what is on the fleet's own Leases. See [the leader lock](concepts.md#leader-lock)."},
}

// flagsPage returns the page about the flags of all sections.
func flagsPage(sections cliflag.NamedFlagSets) string {
	var b strings.Builder
	b.WriteString(flagsHead)
	for _, d := range differences {
		var links []string
		for _, name := range d.flags {
			links = append(links, fmt.Sprintf("[--%s](#%s)", name, name))
		}
		fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(links, ", "), d.text)
	}
	for _, name := range sections.Order {
		set := sections.FlagSets[name]
		if !set.HasAvailableFlags() {
			continue
		}
		title := strings.ToUpper(name[:1]) + name[1:]
		fmt.Fprintf(&b, "\n## %s\n\n| flag | type | default | meaning |\n|---|---|---|---|\n", title)
		var lists []string
		set.VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Deprecated != "" {
				return
			}
			text, list := meaning(f)
			if len(list) > 0 {
				lists = append(lists, fmt.Sprintf("\n### %s\n\n%s\n", listTitle(f.Name), strings.Join(list, "\n")))
			}
			kind := f.Value.Type()
			fmt.Fprintf(&b, "| <a id=%q></a>`--%s` | %s | %s | %s |\n", f.Name, f.Name, kind, defaultOf(f), text)
		})
		for _, list := range lists {
			b.WriteString(list)
		}
	}
	return b.String()
}

func listTitle(flag string) string {
	if flag == "feature-gates" {
		return "Feature gates"
	}
	return "Values of --" + flag
}

var gate = regexp.MustCompile(`^(?:kube:)?([A-Za-z0-9]+)=true\|false \((.*)\)$`)

// meaning returns a flag's text in one line, and the feature gates if it lists any.
func meaning(f *pflag.Flag) (text string, list []string) {
	_, usage := pflag.UnquoteUsage(f)
	var words []string
	for _, line := range strings.Split(usage, "\n") {
		line = strings.TrimSpace(line)
		if match := gate.FindStringSubmatch(line); match != nil {
			list = append(list, fmt.Sprintf("- `%s`: %s", match[1], strings.ToLower(strings.ReplaceAll(match[2], " - ", ", "))))
			continue
		}
		if line != "" {
			words = append(words, line)
		}
	}
	text = strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`).Replace(strings.Join(words, " "))
	if len(list) > 0 {
		text = strings.TrimSuffix(strings.TrimSuffix(text, "Options are:"), " ") + " Those that there are stand below."
	}
	return text, list
}

func defaultOf(f *pflag.Flag) string {
	if text, ok := hostDependent[f.Name]; ok {
		return text
	}
	switch f.DefValue {
	case "", "[]", "<nil>":
		return ""
	}
	return "`" + strings.ReplaceAll(f.DefValue, "|", `\|`) + "`"
}

package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flotilla-kube/flotilla/internal/status"
)

// Top is what 'flotilla top' prints: what the present members use and carry.
type Top struct {
	Fleet      string `json:"fleet"`
	Generation int64  `json:"generation,omitempty"`
	// Members are without those that have left.
	Members  []status.MemberView `json:"members"`
	Warnings []string            `json:"warnings,omitempty"`
}

// byName is the default order of 'flotilla top'.
const byName = "name"

// orders compare two members, the greater one first. Members without a value come last.
var orders = map[string]func(a, b status.MemberView) int{
	byName:    func(status.MemberView, status.MemberView) int { return 0 },
	"cpu":     func(a, b status.MemberView) int { return descending(a.CPU, b.CPU) },
	"memory":  func(a, b status.MemberView) int { return descending(a.Memory, b.Memory) },
	"queued":  func(a, b status.MemberView) int { return descending(a.Queued, b.Queued) },
	"objects": func(a, b status.MemberView) int { return descending(a.Objects, b.Objects) },
	"shards":  func(a, b status.MemberView) int { return cmp.Compare(b.Shards, a.Shards) },
	"share":   func(a, b status.MemberView) int { return descending(a.Share, b.Share) },
}

func descending[N int64 | float64](a, b *N) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	default:
		return cmp.Compare(*b, *a)
	}
}

// TopOf returns what members use and carry, in one of the orders.
func TopOf(r *status.Reading, order string) Top {
	t := Top{Fleet: r.Fleet, Generation: r.Plan.Generation, Members: []status.MemberView{}, Warnings: status.Warnings(r)}
	for _, m := range status.Members(r) {
		if m.State != "gone" {
			t.Members = append(t.Members, m)
		}
	}
	slices.SortStableFunc(t.Members, orders[order])
	return t
}

func (c Config) topCommand() *cobra.Command {
	var output form
	var order string
	allowed := strings.Join(sortedKeys(orders), ", ")
	command, _ := c.newCommand("top", "Show what members use: CPU, memory, queues, shards",
		`Shows what each member uses and carries, as it says on its Lease every ten seconds: CPU, the
heap, and the items that wait in its workqueues; and the shards that it holds, their
objects, and its share of the keyspace. A hyphen stands where a member does not say.

It needs the same right as 'flotilla status', and neither the members' ports nor the
metrics API.`,
		cobra.NoArgs, func(ctx context.Context, cmd *cobra.Command, conn *connection, _ []string) error {
			if err := output.validate(); err != nil {
				return err
			}
			if orders[order] == nil {
				return fmt.Errorf("--sort-by %q: must be one of %s", order, allowed)
			}
			r, err := conn.read(ctx)
			if err != nil {
				return err
			}
			top := TopOf(r, order)
			if output.value == formName {
				return printNames(cmd.OutOrStdout(), memberNames(top.Members))
			}
			return print(cmd.OutOrStdout(), output.value, top, tableTop(output.value == formWide))
		})
	command.Flags().StringVar(&order, "sort-by", byName, "The order of the members: "+allowed+".")
	output.addListFlag(command)
	return command
}

// tableTop returns a function that writes a Top for people.
func tableTop(wide bool) func(io.Writer, Top) {
	return func(w io.Writer, t Top) { writeTop(w, t, wide) }
}

func writeTop(w io.Writer, t Top, wide bool) {
	if len(t.Members) == 0 {
		fmt.Fprintln(w, "No members")
		printWarnings(w, t.Warnings)
		return
	}
	var lines [][]string
	var silent []string
	for _, m := range t.Members {
		lines = append(lines, []string{
			m.Name, m.State, cores(m.CPU), megabytes(m.Memory), megabytes(m.Estimated), number(m.Queued), fmt.Sprint(m.Shards), number(m.Objects), status.Percent(m.Share),
		})
		if wide {
			last := len(lines) - 1
			lines[last] = append(lines[last], m.Rings, m.Generation, m.Version, m.Node, m.Zone, m.Incarnation)
		}
		if m.CPU == nil && m.State != "silent" {
			silent = append(silent, m.Name)
		}
	}
	head := []string{"MEMBER", "STATE", "CPU", "HEAP", "ESTIMATED", "QUEUED", "SHARDS", "OBJECTS", "KEYSPACE"}
	if wide {
		head = append(head, "RINGS", "GENERATION", "VERSION", "NODE", "ZONE", "INCARNATION")
	}
	rows(w, head, lines)
	if len(silent) > 0 {
		fmt.Fprintf(w, "\nNot reported by %s: it has just begun, or its version does not report it\n", some(silent))
	}
	printWarnings(w, t.Warnings)
}

// cores returns CPU for people as kubectl top does, in thousandths; nothing if it is unknown.
func cores(n *float64) string {
	if n == nil {
		return ""
	}
	return fmt.Sprintf("%.0fm", *n*1000)
}

func number(n *int64) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

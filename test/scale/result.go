package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// result is the result for one size.
type result struct {
	Members int `json:"members"`
	Shards  int `json:"shards"`
	// LeaseDuration is in seconds.
	LeaseDuration float64  `json:"leaseDuration"`
	Idle          figures  `json:"idle"`
	Steps         []step   `json:"steps"`
	Overlaps      []string `json:"overlaps,omitempty"`
	Fault         string   `json:"fault,omitempty"`
	// Lost counts, by reason, the memberships that ended unasked in a failed run.
	Lost       map[string]int `json:"lost,omitempty"`
	LoadBefore string         `json:"loadBefore"`
	LoadAfter  string         `json:"loadAfter"`
	Took       float64        `json:"tookSeconds"`
}

// step is how long a step of the scenario took, in seconds.
type step struct {
	Name string `json:"name"`
	// Whole is the time until every part of the keyspace and every group had exactly one owner,
	// Ready the time until all members were ready too.
	Whole float64 `json:"whole"`
	Ready float64 `json:"ready"`
	// Moves is how many shards started that had run before; the gaps are how long they were
	// unowned.
	Moves   int     `json:"moves"`
	GapP50  float64 `json:"gapP50"`
	GapP99  float64 `json:"gapP99"`
	GapMost float64 `json:"gapMost"`
	// Down is how long there was no API server.
	Down float64 `json:"down,omitempty"`
	// Lost counts the memberships that ended unasked.
	Lost int `json:"lost,omitempty"`
	// Reads are the requests for all Leases during the step.
	Reads reads `json:"reads"`
}

func (r result) step(name string) (step, bool) {
	i := slices.IndexFunc(r.Steps, func(s step) bool { return s.Name == name })
	if i < 0 {
		return step{}, false
	}
	return r.Steps[i], true
}

// write writes the results for machines and for humans.
func write(folder string, results []result) error {
	data, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(folder, "hundred.json"), append(data, '\n'), 0o644),
		os.WriteFile(filepath.Join(folder, "hundred.md"), []byte(markdown(results)), 0o644),
	)
}

// markdown returns a table with a column for each size.
func markdown(results []result) string {
	var b strings.Builder
	row := func(title string, cell func(r result) string) {
		fmt.Fprintf(&b, "| %s |", title)
		for _, r := range results {
			fmt.Fprintf(&b, " %s |", cell(r))
		}
		b.WriteByte('\n')
	}
	row("members", func(r result) string { return fmt.Sprint(r.Members) })
	b.WriteString("|---|" + strings.Repeat("---|", len(results)) + "\n")
	row("shards", func(r result) string { return fmt.Sprint(r.Shards) })
	row("lease duration, s", func(r result) string { return fmt.Sprint(r.LeaseDuration) })
	idle := func(title, format string, value func(f figures) float64) {
		row(title, func(r result) string {
			if r.Idle.Seconds == 0 {
				return "-"
			}
			return fmt.Sprintf(format, value(r.Idle))
		})
	}
	idle("Lease writes a second, idle", "%.1f", func(f figures) float64 { return f.Writes })
	idle("watch events a second, all members", "%.0f", func(f figures) float64 { return f.Events })
	idle("bytes a watch event", "%.0f", func(f figures) float64 { return f.EventBytes / max(1, f.Events) })
	idle("to all members, MB a second", "%.2f", func(f figures) float64 { return f.Received / 1e6 })
	idle("a member's CPU, ms a second", "%.1f", func(f figures) float64 { return f.MemberCPU })
	idle("the same, of one with a process of its own", "%.1f", func(f figures) float64 { return f.SoloCPU })
	idle("its live heap, MB", "%.1f", func(f figures) float64 { return f.SoloHeap / 1e6 })
	idle("its RSS, MB", "%.0f", func(f figures) float64 { return f.SoloRSS / 1e6 })
	idle("heap of one more member in a process, MB", "%.1f", func(f figures) float64 { return f.Heap / 1e6 })
	idle("API server's CPU, ms a second", "%.0f", func(f figures) float64 { return f.ServerCPU })
	idle("etcd's CPU, ms a second", "%.0f", func(f figures) float64 { return f.EtcdCPU })
	steps := func(title, name, format string, values func(s step) []any) {
		row(title, func(r result) string {
			s, found := r.step(name)
			if !found {
				return "-"
			}
			return fmt.Sprintf(format, values(s)...)
		})
	}
	whole := func(s step) []any { return []any{s.Whole} }
	ready := func(s step) []any { return []any{s.Ready} }
	gaps := func(s step) []any { return []any{s.GapP50 * 1000, s.GapP99 * 1000, s.Moves} }
	steps("all have joined, every shard has an owner, s", "join", "%.1f", ready)
	steps("one killed: every shard has an owner again, s", "kill", "%.2f", whole)
	steps("a tenth killed: the same, s", "kill-tenth", "%.2f", whole)
	steps("it comes back: gaps p50 / p99, ms (moves)", "kill-back", "%.0f / %.0f (%d)", gaps)
	steps("rolling restart, s", "roll", "%.0f", ready)
	steps("its gaps p50 / p99, ms (moves)", "roll", "%.0f / %.0f (%d)", gaps)
	steps("all ranges cut anew, s", "plan", "%.1f", ready)
	steps("its gaps p50 / p99, ms (moves)", "plan", "%.0f / %.0f (%d)", gaps)
	steps("API server away, s", "restart", "%.1f", func(s step) []any { return []any{s.Down} })
	steps("memberships lost by that", "restart", "%d", func(s step) []any { return []any{s.Lost} })
	steps("after it is back: all whole, s", "restart", "%.1f", whole)
	steps("lists of all Leases by that, most within a second", "restart", "%d, %d", func(s step) []any { return []any{s.Reads.Count, s.Reads.MostASecond} })
	row("work of two members on one shard at a time", func(r result) string { return fmt.Sprint(len(r.Overlaps)) })
	row("machine idle; load before, after", func(r result) string {
		return fmt.Sprintf("%.0f %%; %s, %s", 100*r.Idle.MachineIdle, strings.Fields(r.LoadBefore)[0], strings.Fields(r.LoadAfter + " -")[0])
	})
	return b.String()
}

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// table writes steps, times, CPU times and results, then the slowest tests and the skips, and
// reports whether all is well.
func table(w io.Writer, name string, results []result, total time.Duration) bool {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "STEP\tRESULT\tTIME\tCPU\t")
	counts := map[state]int{}
	var cpu time.Duration
	for _, r := range slices.Concat(of(results, passed), of(results, failed), of(results, skipped)) {
		note := r.why
		if r.state == failed {
			note = strings.TrimSuffix(filepath.Join(logs, r.step+".log")+": "+r.why, ": ")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.step, r.state, clock(r.took), clock(r.cpu), note)
		counts[r.state]++
		cpu += r.cpu
	}
	_ = t.Flush()
	slow(w, results)
	skips(w, results)
	summary := fmt.Sprintf("%d passed", counts[passed])
	for _, s := range []state{failed, skipped} {
		if counts[s] > 0 {
			summary += fmt.Sprintf(", %d %s", counts[s], s)
		}
	}
	fmt.Fprintf(w, "==> %s: %s in %s, with %s of the processor\n", name, summary, clock(total), clock(cpu))
	return counts[failed] == 0
}

func of(results []result, want state) []result {
	return slices.DeleteFunc(slices.Clone(results), func(r result) bool { return r.state != want })
}

// slow lists the slowest tests that took at least a second.
func slow(w io.Writer, results []result) {
	var tests []timed
	for _, r := range results {
		for _, test := range r.tests {
			if test.took >= time.Second {
				tests = append(tests, timed{test: r.step + ": " + test.test, took: test.took})
			}
		}
	}
	if len(tests) == 0 {
		return
	}
	fmt.Fprintf(w, "\nThe slowest tests:\n")
	for _, test := range slowest(tests) {
		fmt.Fprintf(w, "%12s  %s\n", clock(test.took), test.test)
	}
}

// skips lists single tests: those that lack something, then those that wait for a flag.
func skips(w io.Writer, results []result) {
	var lines []string
	for _, r := range results {
		for _, s := range r.skips {
			line := fmt.Sprintf("  %s: %s: %s\n", r.step, s.test, s.why)
			if s.leftOut() {
				lines = append(lines, line)
			} else {
				lines = append([]string{line}, lines...)
			}
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(w, "\nTests that were not run:\n%s", strings.Join(lines, ""))
	}
}

func clock(d time.Duration) string {
	seconds := int(d.Round(time.Second).Seconds())
	if seconds < 100 {
		return fmt.Sprintf("%d s", seconds)
	}
	return fmt.Sprintf("%d min %02d s", seconds/60, seconds%60)
}

// keep writes a copy of the table beside the logs.
func keep(root, text string) error {
	if err := os.MkdirAll(filepath.Join(root, logs), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, logs, "table.txt"), []byte(text), 0o644)
}

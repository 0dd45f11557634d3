package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// outcome is the outcome of one fault.
type outcome struct {
	name string
	took time.Duration
	err  error
}

// report prints the measurements.
func (c *chaos) report(loadEnded time.Time) {
	mean, median := c.journal.rate(c.loadBegan, loadEnded)
	c.out.printf("load: %d changes made, %d failed, %d of canaries failed; %.0f writes/s on average, %d in the median second",
		c.load.made.Load(), c.load.failed.Load(), c.canaries.failed.Load(), mean, median)
	for line := range strings.Lines(outcomeTable(c.opts.faults, c.outcomes)) {
		c.out.printf("%s", strings.TrimRight(line, "\n"))
	}
	for _, s := range c.journal.spreads() {
		c.out.printf("canary %v", s)
	}
}

// outcomeTable returns a line for each fault of the list, in its order: how often it came, its
// result, and how long it took until the fleet was whole again.
func outcomeTable(names []string, outcomes []outcome) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FAULT\tTIMES\tRESULT\tMEAN\tLONGEST")
	for _, name := range names {
		times, failed := 0, 0
		var sum, longest time.Duration
		for _, o := range outcomes {
			if o.name != name {
				continue
			}
			times, sum, longest = times+1, sum+o.took, max(longest, o.took)
			if o.err != nil {
				failed++
			}
		}
		switch {
		case times == 0:
			fmt.Fprintf(w, "%s\t0\tnot run\t\t\n", name)
			continue
		case failed == 0:
			fmt.Fprintf(w, "%s\t%d\theld\t", name, times)
		default:
			fmt.Fprintf(w, "%s\t%d\tFAILED %d\t", name, times, failed)
		}
		fmt.Fprintf(w, "%.1f s\t%.1f s\n", (sum / time.Duration(times)).Seconds(), longest.Seconds())
	}
	w.Flush()
	return out.String()
}

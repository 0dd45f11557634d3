package audit

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// WriteText writes the verdict for people: what was judged, how long shards were without a holder,
// and at the end what was wrong.
func (v Verdict) WriteText(out io.Writer) error {
	w := bufio.NewWriter(out)
	c := v.Counts
	fmt.Fprintf(w, "%d lines, %d writes checked against their Lease: by version %d, by time %d; against a leader lock %d\n", c.Lines, v.Judged, c.ByVersion, c.ByTime, c.AgainstLeaderLock)
	fmt.Fprintf(w, "not checked: %d refused, %d Events, %d that store nothing, %d of the fleet's own\n", c.Refused, c.Events, c.StoreNothing, c.FleetOwn)
	fmt.Fprintf(w, "after the Lease had run out and before anybody took it: %d; Lease writes without an answer: %d; other writes of which only the arrival is known: %d\n", c.Late, c.LeaseUnknown, c.Lost)
	if c.Ended+c.Taken > 0 {
		fmt.Fprintf(w, "incarnations that ended, checked against their heartbeats: %d; shards taken from a holder, checked against its end: %d\n", c.Ended, c.Taken)
	}
	for _, left := range []struct {
		n    int
		what string
	}{
		{c.Torn, "lines begin with a part of another one, which is lost: a server was killed while it wrote"},
		{c.Unnamed, "writes without a claim may be the fleet's or those of a stock controller manager of the same build, and were not judged"},
		{c.VolumesUnknown, "writes of PersistentVolumes were not compared with the range: the log does not show their claims"},
		{c.PlansRefused, "plans of somebody outside the fleet could not follow the one in force, and count as refused"},
	} {
		if left.n > 0 {
			fmt.Fprintf(w, "%d %s\n", left.n, left.what)
		}
	}
	if c.ByController == 0 && v.Judged > 0 {
		fmt.Fprintln(w, "no write was compared with its shard's controllers: the log or the Leases do not tell them")
	}
	if v.Cut {
		fmt.Fprintln(w, "a log ends within a line, which was left out")
	}
	fmt.Fprintf(w, "denied late: %s\n", counted(v.DeniedLate))
	o := v.Objects
	fmt.Fprintf(w, "pods created %d, pods deleted %d, ReplicaSets created %d, Jobs created %d, EndpointSlices created %d, objects collected %d were judged; skipped: %s\n",
		o.Creates, o.Deletes, o.ReplicaSets, o.Jobs, o.EndpointSlices, o.Collected, counted(o.Skipped))
	fmt.Fprintf(w, "in flight when their term ended: %d, after a release: %d\n", c.Flying, c.FlyingReleased)
	for _, f := range v.InFlight {
		fmt.Fprintf(w, "  %s: %s: %s %s took effect at version %d, the term ended at %d; answered %s after that\n",
			where(f.File, f.Log, f.Line), f.By, f.Verb, f.URI, f.Version, f.Ended, rounded(f.After))
	}
	fmt.Fprintln(w)
	writeShards(w, v.Shards)
	if v.Plans > 1 || len(v.Successions) > 0 {
		writeSuccessions(w, v)
	}
	fmt.Fprintf(w, "\noverlaps: %d\n", len(v.Overlaps))
	for _, o := range v.Overlaps {
		shards := o.Shard
		if o.Other != o.Shard {
			shards += " and " + o.Other
		}
		fmt.Fprintf(w, "  %s: %s and %s for %s, seen at version %d\n", shards, o.First, o.Second, rounded(o.Seconds), o.Version)
	}
	fmt.Fprintf(w, "undecided: %d\n", len(v.Undecided))
	for _, doubt := range v.Undecided {
		fmt.Fprintf(w, "  %s\n", doubt)
	}
	fmt.Fprintf(w, "violations: %d (%s)\n", len(v.Violations), counted(v.Kinds))
	for _, violation := range v.Violations {
		fmt.Fprintf(w, "  %s\n", violation)
	}
	return w.Flush()
}

func writeShards(w io.Writer, shards []ShardEntry) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SHARD\tWRITES\tTERMS\tMOVES\tPLANNED GAPS\tP50\tP99\tWORST\tUNPLANNED\tWORST\tVACANT SINCE")
	for _, s := range shards {
		writes, planned := 0, 0
		for _, n := range s.Writes {
			writes += n
		}
		for _, g := range s.Gaps {
			if g.Planned {
				planned++
			}
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%d\t%s\t%s\n", s.Shard, writes, s.Terms, s.Moves,
			planned, rounded(s.P50), rounded(s.P99), rounded(s.Worst), len(s.Gaps)-planned, rounded(s.WorstUnplanned), s.Vacant)
	}
	table.Flush()
}

// writeSuccessions writes what changes of the plan have moved, and how long nobody ran it.
func writeSuccessions(w io.Writer, v Verdict) {
	worst := 0.0
	for _, s := range v.Successions {
		worst = max(worst, s.Gap)
	}
	fmt.Fprintf(w, "\n%d plans; passed on by changes of the plan: %d, worst gap %s\n", v.Plans, len(v.Successions), rounded(worst))
	for _, s := range v.Successions {
		how := "released"
		if !s.Planned {
			how = "ran out"
		}
		fmt.Fprintf(w, "  %s (%s) to %s (%s), %s of %d controllers, %s at %s: gap %s\n",
			s.Predecessor, s.Before, s.Successor, s.After, s.Range, len(s.Controllers), how, s.Ended, rounded(s.Gap))
	}
}

// counted lists counts by name.
func counted[K ~string](counts map[K]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

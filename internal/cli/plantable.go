package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/flotilla-kube/flotilla/internal/status"
)

// tablePlan returns a function that writes a View for people, with everything in the plan; wide
// adds holders down to the process.
func tablePlan(wide bool) func(io.Writer, status.View) {
	return func(w io.Writer, v status.View) { writePlan(w, v, wide) }
}

func writePlan(w io.Writer, v status.View, wide bool) {
	if v.Fault != "" {
		fmt.Fprintf(w, "Fleet %s\n", v.Fleet)
	} else {
		shards := 0
		for _, ring := range v.Rings {
			shards += len(ring.Shards)
		}
		fmt.Fprintf(w, "Fleet %s, plan generation %d, digest %s: %s, %s\n", v.Fleet, v.Generation, v.Digest, status.Plural(len(v.Rings), "ring"), status.Plural(shards, "shard"))
	}
	for _, ring := range v.Rings {
		tableRing(w, v, ring, wide)
	}
	if len(v.Older) > 0 {
		if v.Fault == "" {
			fmt.Fprintln(w, "\nHeld shards that are not in the plan")
		} else {
			fmt.Fprintln(w, "\nHeld shards")
		}
		tableOlder(w, v)
	}
	tableMembers(w, v)
	if len(v.Findings) > 0 {
		fmt.Fprintln(w)
	}
	tableFindings(w, v.Findings, false)
}

func tableRing(w io.Writer, v status.View, ring status.RingView, wide bool) {
	fmt.Fprintf(w, "\nRing %s: %s, %s", ring.Name, ring.Scope, status.Plural(len(ring.Shards), "shard"))
	if n := len(ring.Controllers); n > 0 {
		fmt.Fprintf(w, ", %s", status.Plural(n, "controller"))
	}
	if len(ring.Isolate) > 0 {
		fmt.Fprintf(w, ", isolates %s", strings.Join(ring.Isolate, ", "))
	}
	fmt.Fprintln(w)
	what := "RANGE"
	if ring.Scope == "cluster" {
		what = "CONTROLLERS"
	}
	var lines [][]string
	for _, s := range ring.Shards {
		objects := ""
		if s.Objects != nil {
			objects = fmt.Sprint(*s.Objects)
		}
		lines = append(lines, []string{
			inRing(s.Shard), cmp.Or(s.Range, fmt.Sprint(len(s.Controllers))), objects, owner(s), holder(s.Claim), ago(s.Since, v.Now), fmt.Sprint(s.Term), state(s),
		})
	}
	head := []string{"SHARD", what, "OBJECTS", "OWNER", "HOLDER", "SINCE", "TERM", "STATE"}
	if ring.Scope == "cluster" { // has no objects of its own
		head = slices.Delete(head, 2, 3)
		for i := range lines {
			lines[i] = slices.Delete(lines[i], 2, 3)
		}
	}
	if wide {
		head = append(head, "MEMORY", "WANTED", "INCARNATION")
		for i, s := range ring.Shards {
			lines[i] = append(lines[i], megabytes(s.Memory), s.Wanted, s.Incarnation)
		}
	}
	rows(w, head, lines)
}

// owner returns the owner by the plan.
func owner(s status.ShardView) string {
	switch {
	case s.Pin != "":
		return s.Pin + " (pin)"
	case s.Home != "":
		return s.Home + " (home)"
	case s.ColocateWith != "":
		return "(with " + s.ColocateWith + ")"
	default:
		return "(hashing)"
	}
}

// holder returns the member, or what else the Lease names.
func holder(c status.Claim) string {
	switch {
	case c.Incarnation == "":
		return ""
	case c.Holder == "":
		return c.Incarnation + " (no member's)"
	default:
		return c.Holder
	}
}

// state returns the state of a shard, and what it waits for.
func state(s status.ShardView) string {
	text := string(s.State)
	if s.Silent {
		text += ", holder is silent"
	}
	if s.Unprepared {
		text += ", unprepared"
	}
	if len(s.Older) > 0 {
		text += ", behind " + strings.Join(s.Older, " ")
	}
	if s.NextHolder != "" && s.NextHolder != s.Incarnation {
		text += ", next is " + s.NextHolder
	}
	if s.Problem != "" {
		text += ", " + s.Problem
	}
	return text
}

func tableMembers(w io.Writer, v status.View) {
	fmt.Fprintln(w)
	if len(v.Members) == 0 {
		fmt.Fprintln(w, "No members")
		return
	}
	fmt.Fprintln(w, "Members")
	var lines [][]string
	for _, m := range v.Members {
		lines = append(lines, []string{m.Name, m.State, fmt.Sprint(m.Shards), m.Rings, m.Generation, ago(m.Since, v.Now), m.Incarnation})
	}
	rows(w, []string{"MEMBER", "STATE", "SHARDS", "RINGS", "GENERATION", "SINCE", "INCARNATION"}, lines)
}

func printWarnings(w io.Writer, warnings []string) {
	if len(warnings) > 0 {
		fmt.Fprintln(w)
	}
	for _, text := range warnings {
		fmt.Fprintf(w, "Warning: %s\n", status.Plain(text))
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/internal/status"
)

const (
	// fewShards is up to how many shards a fleet's shards are all shown by default.
	fewShards = 32
	// mostRows is how many rows of one kind are shown for a larger fleet, most alike how many
	// findings of one kind.
	mostRows  = 20
	mostAlike = 5
)

// tableStatus returns a function that writes a View for people: on one screen, or everything with
// all, and everything known about each member and shard with wide.
func tableStatus(all, wide bool) func(io.Writer, status.View) {
	return func(w io.Writer, v status.View) {
		var shards []status.ShardView
		for _, ring := range v.Rings {
			shards = append(shards, ring.Shards...)
		}
		if v.Fault != "" {
			fmt.Fprintf(w, "Fleet %s, no plan\n", v.Fleet)
		} else {
			fmt.Fprintf(w, "Fleet %s, plan generation %d, digest %s: %s, %s\n", v.Fleet, v.Generation, v.Digest, status.Plural(len(v.Rings), "ring"), status.Plural(len(shards), "shard"))
		}
		for _, l := range v.LeaderLocks {
			fmt.Fprintln(w, leaderLockLine(l, asOf(v)))
		}
		if v.Stop != nil {
			fmt.Fprintln(w, stopLine(v.Stop, v.Now))
		}
		if v.Canary != nil {
			fmt.Fprintln(w, canaryLine(v.Canary, v.Now))
		}
		statusMembers(w, v, all, wide)
		if len(v.Versions) > 0 {
			fmt.Fprintln(w)
			tableVersions(w, v.Versions)
		}
		if len(v.Rings) > 0 {
			statusRings(w, v)
			statusShards(w, v, shards, all, wide)
		}
		if len(v.Older) > 0 {
			fmt.Fprintln(w, "\nHeld shards that are not in the plan")
			tableOlder(w, v)
		}
		fmt.Fprintln(w)
		tableFindings(w, v.Findings, all)
		idle := 0
		for _, s := range shards {
			if s.State != status.StateRunning {
				idle++
			}
		}
		switch {
		case status.Worst(v.Findings) != "":
		case idle > 0:
			fmt.Fprintf(w, "Nothing is wrong; %s not run yet\n", map[bool]string{true: "1 shard does", false: fmt.Sprintf("%d shards do", idle)}[idle == 1])
		default:
			fmt.Fprintln(w, "All is well")
		}
	}
}

// asOf is the time that members' clocks show, as far as it is known: ages of Leases are as of it,
// because the clock here may be wrong.
func asOf(v status.View) time.Time {
	if v.AsOf == nil {
		return v.Now
	}
	return *v.AsOf
}

// leaderLockLine says who holds a leader lock.
func leaderLockLine(l status.LeaderLockView, now time.Time) string {
	if l.Renewed != nil && l.Renewed.After(now) {
		now = *l.Renewed // A stock leader renews it after the last member did.
	}
	switch {
	case l.Held && !l.Silent:
		return fmt.Sprintf("Leader lock %s: held by the fleet", status.Plain(l.Lease))
	case l.Holder == "":
		return fmt.Sprintf("Leader lock %s: held by nobody", status.Plain(l.Lease))
	default:
		return fmt.Sprintf("Leader lock %s: held by %s, acquired %s, renewed %s", status.Plain(l.Lease), status.Plain(l.Holder), orUnknown(ago(l.Since, now)), orUnknown(ago(l.Renewed, now)))
	}
}

// stopLine says that the fleet is stopped.
func stopLine(s *status.StopView, now time.Time) string {
	if s.Fault != "" {
		return "Stop: cannot be read, so members go on as before"
	}
	by := ""
	if s.By != "" {
		by = " by " + status.Plain(s.By)
	}
	return fmt.Sprintf("Stopped %s%s: %d of %s by", orUnknown(ago(s.Since, now)), by, len(s.Still), status.Plural(len(s.Still)+len(s.Draining), "live member")+" stand")
}

func orUnknown(text string) string {
	if text == "" {
		return "at an unknown time"
	}
	return text
}

func statusMembers(w io.Writer, v status.View, all, wide bool) {
	var lines [][]string
	gone := 0
	for _, m := range v.Members {
		if m.State == "gone" && !m.Drained && !all {
			gone++
			continue
		}
		state := m.State
		if m.Drained {
			state += " (drained)"
		}
		if m.Still {
			state += " (stopped)"
		}
		objects, heartbeat := "", ""
		if m.Objects != nil {
			objects = fmt.Sprint(*m.Objects)
		}
		if m.Heartbeat != nil && v.AsOf != nil && m.State != "gone" {
			heartbeat = status.Short(max(0, v.AsOf.Sub(*m.Heartbeat))) + " ago"
		}
		lines = append(lines, []string{
			m.Name, state, fmt.Sprint(m.Shards), objects, megabytes(m.Memory), megabytes(m.Estimated), heartbeat, m.Rings, m.Generation, ago(m.Since, v.Now),
			status.Percent(m.Share), m.Version,
		})
		if wide {
			last := len(lines) - 1
			lines[last] = append(lines[last], cores(m.CPU), number(m.Queued), m.Node, m.Zone, m.Incarnation)
		}
	}
	head := []string{"MEMBER", "STATE", "SHARDS", "OBJECTS", "HEAP", "ESTIMATED", "HEARTBEAT", "RINGS", "GENERATION", "SINCE", "KEYSPACE", "VERSION"}
	if wide {
		head = append(head, "CPU", "QUEUED", "NODE", "ZONE", "INCARNATION")
	}
	fmt.Fprintln(w)
	if len(lines) == 0 {
		fmt.Fprintln(w, "No members")
	} else {
		rows(w, head, limited(lines, all))
	}
	if gone > 0 {
		fmt.Fprintf(w, "(not shown without --all: %s)\n", status.Plural(gone, "gone member"))
	}
}

// megabytes returns a number of bytes for people, or nothing if it is unknown.
func megabytes(bytes *int64) string {
	if bytes == nil {
		return ""
	}
	return fmt.Sprintf("%.0f MB", float64(*bytes)/1e6)
}

// limited returns the first of the lines, and a line with the number of the others.
func limited(lines [][]string, all bool) [][]string {
	if all || len(lines) <= mostRows {
		return lines
	}
	return append(slices.Clone(lines[:mostRows]), []string{fmt.Sprintf("... %d more (--all)", len(lines)-mostRows)})
}

// statusRings writes a line for each ring.
func statusRings(w io.Writer, v status.View) {
	states := []status.State{status.StateUnowned, status.StateStopped, status.StateLockedOut, status.StateOlder, status.StateWaiting, status.StateStarting}
	var lines [][]string
	for _, ring := range v.Rings {
		counts, objects, counted := map[status.State]int{}, int64(0), false
		for _, s := range ring.Shards {
			counts[s.State]++
			if s.Objects != nil {
				objects, counted = objects+*s.Objects, true
			}
		}
		var other []string
		for _, state := range states {
			if counts[state] > 0 {
				other = append(other, fmt.Sprintf("%d %s", counts[state], state))
			}
		}
		text := ""
		if counted {
			text = fmt.Sprint(objects)
		}
		lines = append(lines, []string{ring.Name, fmt.Sprint(len(ring.Members)), text, fmt.Sprint(len(ring.Shards)), fmt.Sprint(counts[status.StateRunning]), strings.Join(other, ", ")})
	}
	fmt.Fprintln(w)
	rows(w, []string{"RING", "MEMBERS", "OBJECTS", "SHARDS", "RUNNING", "NOT RUNNING"}, lines)
}

// statusShards writes all shards of a small fleet, and those with a problem of a large one.
func statusShards(w io.Writer, v status.View, shards []status.ShardView, all, wide bool) {
	every := all || len(shards) <= fewShards
	var lines [][]string
	for _, s := range shards {
		calm := s.State == status.StateRunning && (s.NextHolder == "" || s.NextHolder == s.Incarnation) && s.Problem == "" && len(s.Older) == 0
		if !every && calm {
			continue
		}
		objects := ""
		if s.Objects != nil {
			objects = fmt.Sprint(*s.Objects)
		}
		_, detail, _ := strings.Cut(state(s), ", ")
		lines = append(lines, []string{s.Shard, string(s.State), holder(s.Claim), cmp.Or(s.Wanted, s.Owner), objects, fmt.Sprint(s.Term), ago(s.Since, v.Now), detail})
		if wide {
			last := len(lines) - 1
			lines[last] = append(lines[last], megabytes(s.Memory), s.Range, s.Incarnation)
		}
	}
	if len(lines) == 0 {
		return
	}
	head := []string{"SHARD", "STATE", "HOLDER", "OWNER", "OBJECTS", "TERM", "SINCE", "DETAIL"}
	if wide {
		head = append(head, "MEMORY", "RANGE", "INCARNATION")
	}
	fmt.Fprintln(w)
	rows(w, head, limited(lines, every))
}

// tableOlder writes the held Leases that are not in the plan.
func tableOlder(w io.Writer, v status.View) {
	var lines [][]string
	for _, o := range v.Older {
		lines = append(lines, []string{o.Lease, o.Range, o.Generation, holder(o.Claim), ago(o.Since, v.Now), fmt.Sprint(o.Term)})
	}
	rows(w, []string{"LEASE", "RANGE", "GENERATION", "HOLDER", "SINCE", "TERM"}, lines)
}

// tableFindings writes a line for each finding, and only the first of many similar ones.
func tableFindings(w io.Writer, findings []status.Finding, all bool) {
	type likeness struct {
		severity status.Severity
		kind     status.Kind
	}
	counts, page := map[likeness]int{}, map[string]bool{}
	for _, f := range findings {
		counts[likeness{f.Severity, f.Kind}]++
	}
	shown := map[likeness]int{}
	for _, f := range findings {
		like := likeness{f.Severity, f.Kind}
		if shown[like]++; shown[like] > mostAlike && !all {
			if shown[like] == counts[like] {
				fmt.Fprintf(w, "%s: %s: %d more like these (--all shows them)\n", severity(f), f.Kind, counts[like]-mostAlike)
			}
		} else {
			fmt.Fprintf(w, "%s: %s: %s\n", severity(f), f.Kind, status.Plain(f.Message))
		}
		if f.Runbook != "" && !page[f.Runbook] && shown[like] == counts[like] {
			page[f.Runbook] = true
			fmt.Fprintln(w, seeAlso+f.RunbookURL)
		}
	}
}

func severity(f status.Finding) string {
	switch f.Severity {
	case status.Error:
		return "Error"
	case status.Warning:
		return "Warning"
	default:
		return "Note"
	}
}

package main

import (
	"fmt"
	"strings"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// States of a replica that its Lease does not show.
const (
	startingState = "starting"
	killedState   = "killed"
)

// table shows the fleet and its work at one moment.
type table struct {
	rows []tableRow
	work []work
}

// tableRow is one member, or nobody.
type tableRow struct {
	name, state string
	holds       []hold
	namespaces  int
}

const nobody = "nobody"

// newTable returns the table of these members. A member without an entry in states is starting.
func newTable(plan shard.Plan, members []string, states map[string]string, tenants []tenant, v view) table {
	t := table{work: progress(tenants, v)}
	rows := map[string]*tableRow{}
	for _, name := range append(members[:len(members):len(members)], nobody) {
		state := states[name]
		if state == "" && name != nobody {
			state = startingState
		}
		t.rows = append(t.rows, tableRow{name: name, state: state})
	}
	for i := range t.rows {
		rows[t.rows[i].name] = &t.rows[i]
	}
	held := map[shard.ID]*tableRow{}
	for _, h := range holds(plan, v.leases) {
		row, ok := rows[h.member()]
		if !ok {
			row = rows[nobody]
		}
		row.holds = append(row.holds, h)
		held[h.id] = row
	}
	for _, tenant := range tenants {
		if id, ok := shardOf(plan, tenant.namespace); ok {
			held[id].namespaces++
		}
	}
	return t
}

const rowFormat = "%-12s %-9s %6s %10s  "

// lines returns the table for a terminal of this width: no line is longer.
func (t table) lines(width int) []string {
	lines := []string{fmt.Sprintf(rowFormat, "MEMBER", "STATE", "SHARDS", "NAMESPACES") + "SHARD(TERM)"}
	for _, row := range t.rows {
		if row.name == nobody && len(row.holds) == 0 {
			continue
		}
		var cells []string
		for _, h := range row.holds {
			cells = append(cells, h.cell())
		}
		head := fmt.Sprintf(rowFormat, row.name, row.state, fmt.Sprint(len(row.holds)), fmt.Sprint(row.namespaces))
		lines = append(lines, wrap(head, cells, " ", width)...)
	}
	var cells []string
	for _, w := range t.work {
		cells = append(cells, w.String())
	}
	lines = append(lines, "")
	lines = append(lines, wrap("WORK  ", cells, "   ", width)...)
	for i := range lines {
		lines[i] = cut(strings.TrimRight(lines[i], " "), width)
	}
	return lines
}

// line returns the table as one line for a log.
func (t table) line() string {
	var members []string
	for _, row := range t.rows {
		switch {
		case row.name == nobody && len(row.holds) == 0:
		case row.name == nobody:
			members = append(members, fmt.Sprintf("nobody %d", len(row.holds)))
		default:
			members = append(members, fmt.Sprintf("%s %s %d", row.name, row.state, len(row.holds)))
		}
	}
	return "shards: " + strings.Join(members, ", ") + "; work: " + t.undone()
}

// undone lists the unfinished work once any has begun.
func (t table) undone() string {
	var undone []string
	begun := false
	for _, w := range t.work {
		begun = begun || w.done > 0
		if w.done < w.total {
			undone = append(undone, w.String())
		}
	}
	switch {
	case len(undone) == 0:
		return "all done"
	case !begun:
		return "none yet"
	default:
		return strings.Join(undone, ", ")
	}
}

// cell returns a short name: a range by its name, a group with its ring.
func (h hold) cell() string {
	name := h.id.Name
	if strings.Trim(name, "0123456789") != "" {
		name = h.id.String()
	}
	return fmt.Sprintf("%s(%d)", name, h.term)
}

// wrap appends cells to head, and puts those that do not fit on lines of their own below the first
// cell.
func wrap(head string, cells []string, between string, width int) []string {
	indent := strings.Repeat(" ", len(head))
	var lines []string
	line, empty := head, true
	for _, cell := range cells {
		if !empty && len(line)+len(between)+len(cell) > width {
			lines = append(lines, line)
			line, empty = indent, true
		}
		if !empty {
			line += between
		}
		line += cell
		empty = false
	}
	return append(lines, line)
}

func cut(line string, width int) string {
	if len(line) > width {
		return line[:max(width, 0)]
	}
	return line
}

package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/test/bench/result"
)

// nothing replaces an empty table.
const nothing = "Nothing has been measured yet.\n"

// table writes rows, of which the first is the head, as a Markdown table.
func table(rows [][]string) string {
	if len(rows) < 2 {
		return nothing
	}
	var b strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(&b, "|%s\n", strings.Repeat("---|", len(row)))
		}
	}
	return b.String()
}

// titleIn is the metric's title in a scenario: figures of a fixed time are per second.
func (m Metric) titleIn(scenario string) string {
	if isWindow(scenario) && strings.Contains(m.Title, "CPU") && !strings.Contains(m.Title, "/") && m.Title != StartCPU.Title {
		return m.Title + ", a second"
	}
	return m.Title
}

// column is a column of a scenario's table.
type column struct {
	title string
	value func(Cell) string
}

func (r *Report) plain(m Metric, scenario string) column {
	return column{m.titleIn(scenario), func(c Cell) string {
		s, ok := r.Spread(c, m)
		return text(s, ok, m.Format)
	}}
}

// against is the metric as a multiple of another kind of system's, for systems of other kinds.
func (r *Report) against(m Metric, kind, title string) column {
	return column{title, func(c Cell) string {
		if c.System.Kind == kind {
			return absent
		}
		s, ok := r.Ratio(c, m, kind)
		return text(s, ok, Plain)
	}}
}

// tables are those of a scenario of one size, by title.
func (r *Report) tables(scenario string) []struct {
	title   string
	columns []column
} {
	plain := func(m Metric) column { return r.plain(m, scenario) }
	stock := func(m Metric) column { return r.against(m, result.Stock, "× stock") }
	return []struct {
		title   string
		columns []column
	}{
		{"Time", []column{
			{"rounds", func(c Cell) string { return fmt.Sprint(len(r.runs[c])) }},
			{"bound by", r.bounds},
			plain(Time), {"throughput × stock", stock(Speed).value}, r.against(Speed, result.Ceiling, "throughput × ceiling"),
			plain(LatencyP50), plain(LatencyP99), plain(QueueP50), plain(QueueP99), plain(LoopP99), plain(LongestGap),
		}},
		{"CPU", []column{
			plain(CPU), plain(CPUObject), stock(CPU), plain(CPULargest), stock(CPULargest), plain(CPUBalance), plain(StartCPU),
			plain(ServerCPU), stock(ServerCPU), plain(EtcdCPU), stock(EtcdCPU),
		}},
		{"Memory", []column{
			plain(Memory), stock(Memory), plain(MemoryPeak), plain(MemorySum), stock(MemorySum), plain(MemoryEven), plain(Heap), stock(Heap),
			plain(PeakOne), stock(PeakOne), plain(PeakSum), stock(PeakSum),
			plain(Beyond), stock(Beyond), plain(BeyondHeap), stock(BeyondHeap), plain(BeyondLight), stock(BeyondLight), plain(BeyondOf), stock(BeyondOf),
		}},
		{"Traffic", []column{
			plain(Received), stock(Received), plain(ReceivedOne), stock(ReceivedOne), plain(ReceivedLight), stock(ReceivedLight), plain(ReceivedOf), stock(ReceivedOf), plain(ReceivedMax),
			plain(Requests), stock(Requests), plain(LeaseWrites),
		}},
	}
}

// bounds says what the rounds waited for.
func (r *Report) bounds(c Cell) string {
	if isWindow(c.Scenario) {
		return absent // there is nothing to wait for
	}
	var bounds []string
	for _, at := range r.rounds(c) {
		if b := r.runs[c][at].Bound; b != "" && !slices.Contains(bounds, b) {
			bounds = append(bounds, b)
		}
	}
	if len(bounds) == 0 {
		return absent
	}
	return strings.Join(bounds, ", ")
}

// scenarios returns the tables of each scenario and size. It leaves out columns without values, and
// tables without columns.
func (r *Report) scenarios() string {
	var b strings.Builder
	for _, cells := range r.sizes() {
		fmt.Fprintf(&b, "### %s\n\n", cells[0].size())
		for _, t := range r.tables(cells[0].Scenario) {
			if rows := fill(cells, t.columns); len(rows[0]) > 1 {
				fmt.Fprintf(&b, "%s:\n\n%s\n", t.title, table(rows))
			}
		}
	}
	if b.Len() == 0 {
		return nothing
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func fill(cells []Cell, columns []column) [][]string {
	rows := [][]string{{"system"}}
	for _, c := range cells {
		rows = append(rows, []string{SystemName(c.System)})
	}
	for _, column := range columns {
		var values []string
		for _, c := range cells {
			values = append(values, column.value(c))
		}
		if !slices.ContainsFunc(values, func(v string) bool { return v != absent }) {
			continue
		}
		rows[0] = append(rows[0], column.title)
		for i, v := range values {
			rows[i+1] = append(rows[i+1], v)
		}
	}
	return rows
}

// machine says where, when, with what and how often.
func (r *Report) machine() string {
	rows := [][]string{{"began", "machine", "load before", "versions", "runs", "rounds", "command"}}
	for _, f := range r.files {
		var versions []string
		for name, version := range f.Versions {
			versions = append(versions, name+" "+version)
		}
		slices.Sort(versions)
		rounds := 0
		for _, run := range f.Runs {
			rounds = max(rounds, run.Round)
		}
		rows = append(rows, []string{
			f.Began.UTC().Format(time.RFC3339),
			fmt.Sprintf("%s, %s, %s, Linux %s", f.Machine.CPU, count(f.Machine.Cores, "core"), Bytes(float64(f.Machine.Memory)), f.Machine.Kernel),
			Plain(f.Machine.Load), strings.Join(versions, ", "), fmt.Sprint(len(f.Runs)), fmt.Sprint(rounds), "`" + f.Command + "`",
		})
	}
	return table(rows)
}

func (r *Report) failures() string {
	if len(r.failed) == 0 {
		return "None.\n"
	}
	rows := [][]string{{"scenario", "system", "round", "why"}}
	for _, run := range r.failed {
		c := cellOf(run)
		why, _, _ := strings.Cut(run.Failed, "\n")
		rows = append(rows, []string{c.size(), SystemName(c.System), fmt.Sprint(run.Round), why})
	}
	for _, row := range rows[1:] {
		row[3] = strings.ReplaceAll(row[3], "|", `\|`)
	}
	return table(rows)
}

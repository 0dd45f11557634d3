package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flotilla-kube/flotilla/test/bench/result"
)

// mostKinds is how many kinds have their own line: the others are hardly visible beside them.
const mostKinds = 10

// onlyMetadata is the suffix of a kind of which only the metadata is requested.
const onlyMetadata = " (metadata)"

// kinds returns tables of what the API server sent, kind by kind, and of who watches what; one for
// each size of each scenario.
func (r *Report) kinds() string {
	var b strings.Builder
	for _, size := range r.sizes() {
		if cells := slices.DeleteFunc(size, func(c Cell) bool { return len(r.bytesOf(c)) == 0 }); len(cells) > 0 {
			fmt.Fprintf(&b, "%s:\n\n%s\n", cells[0].size(), table(r.kindRows(cells)))
		}
	}
	if b.Len() == 0 {
		return nothing
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (r *Report) kindRows(cells []Cell) [][]string {
	bytes := r.bytesOf(cells[len(cells)-1])
	all := slices.SortedFunc(maps.Keys(bytes), func(a, b string) int { return cmp.Or(cmp.Compare(bytes[b], bytes[a]), cmp.Compare(a, b)) })
	shown := all[:min(len(all), mostKinds)]
	rows := [][]string{{"kind"}}
	for _, kind := range shown {
		rows = append(rows, []string{kind})
	}
	rows = append(rows, []string{"all others"})
	add := func(title string, of func(kind string) string, others string) {
		rows[0] = append(rows[0], title)
		for i, kind := range shown {
			rows[i+1] = append(rows[i+1], of(kind))
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], others)
	}
	for _, c := range cells {
		sent := func(m Metric) string { s, ok := r.Spread(c, m); return text(s, ok, m.Format) }
		ratio := func(m Metric) string { s, ok := r.Ratio(c, m, result.Stock); return text(s, ok, Plain) }
		rest := sentOf(func(kind string) bool { return !slices.Contains(shown, kind) })
		add(SystemName(c.System), func(kind string) string { return sent(sentOfKind(kind)) }, sent(rest))
		if c.System.Kind != result.Stock {
			add("× stock", func(kind string) string { return ratio(sentOfKind(kind)) }, ratio(rest))
		}
		if most, fewest, ok := r.byGroups(c); ok {
			add("watches of the member with most groups", func(kind string) string { return watchesOf(most, kind) }, absent)
			add("of that with fewest", func(kind string) string { return watchesOf(fewest, kind) }, absent)
		} else if len(most.Kinds) > 0 {
			add("watches", func(kind string) string { return watchesOf(most, kind) }, absent)
		}
	}
	return rows
}

// bytesOf returns the bytes sent in the cell's first round that has them, by kind.
func (r *Report) bytesOf(c Cell) map[string]int64 {
	for _, at := range r.rounds(c) {
		if kinds := r.runs[c][at].Kinds; len(kinds) > 0 {
			return kinds
		}
	}
	return nil
}

func sentOfKind(name string) Metric { return sentOf(func(kind string) bool { return kind == name }) }

func sentOf(which func(kind string) bool) Metric {
	return Metric{Format: Bytes, Of: func(run result.Run) (float64, bool) {
		sent := int64(0)
		for kind, n := range run.Kinds {
			if which(kind) {
				sent += n
			}
		}
		return float64(sent), len(run.Kinds) > 0
	}}
}

// byGroups returns the processes of the cell's last round with most and fewest cluster-scoped
// groups, and whether they are two.
func (r *Report) byGroups(c Cell) (most, fewest result.Process, two bool) {
	rounds := r.rounds(c)
	processes := r.runs[c][rounds[len(rounds)-1]].Processes
	if len(processes) == 0 {
		return most, fewest, false
	}
	byGroups := func(a, b result.Process) int { return cmp.Compare(len(a.Groups), len(b.Groups)) }
	return slices.MaxFunc(processes, byGroups), slices.MinFunc(processes, byGroups), len(processes) > 1
}

// watchesOf says how many watches of a kind a process has, and how many of those are of metadata.
func watchesOf(p result.Process, kind string) string {
	whole, metadata := p.Kinds[kind], p.Kinds[kind+onlyMetadata]
	switch {
	case len(p.Kinds) == 0:
		return absent
	case metadata == 0:
		return fmt.Sprint(whole)
	default:
		return fmt.Sprintf("%d, and %d of metadata", whole, metadata)
	}
}

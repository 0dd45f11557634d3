package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flotilla-kube/flotilla/test/bench/result"
)

// Plot is a plot to draw: the JSON that hack/tools/plot reads. It has Series over numbers, or Bars
// over Categories.
type Plot struct {
	// File is the plot's file name without directory and extension.
	File  string `json:"file"`
	Title string `json:"title"`
	// X and Y are the titles of the axes, with units.
	X string `json:"x"`
	Y string `json:"y"`
	// Reference is a horizontal line to compare with.
	Reference  *Reference `json:"reference,omitempty"`
	Series     []Series   `json:"series,omitempty"`
	Categories []string   `json:"categories,omitempty"`
	// Bars are stacked, the first one lowest.
	Bars []Bars `json:"bars,omitempty"`

	split bool // the figure is bytes received, which may be known separately for groups
}

// Reference is a named value.
type Reference struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// Series are points that belong together.
type Series struct {
	Name   string      `json:"name"`
	Points []PlotPoint `json:"points"`
	// Line is drawn instead of a line from point to point: y = Line[0] + Line[1]*x.
	Line []float64 `json:"line,omitempty"`
}

// PlotPoint is a value with its spread.
type PlotPoint struct {
	X    float64 `json:"x"`
	Y    float64 `json:"y"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Bars are one part of each category's bar; X of a point is the category's index.
type Bars struct {
	Name   string      `json:"name"`
	Points []PlotPoint `json:"points"`
}

const mebi = 1 << 20

// Plots returns the plots of the page that have data.
func (r *Report) Plots() []Plot {
	return slices.Concat(r.throughputPlots(), r.memoryPlots(), r.memberPlots())
}

// throughputPlots returns one for each scenario and size with fleets of at least two sizes.
func (r *Report) throughputPlots() []Plot {
	var plots []Plot
	titles := map[string]int{}
	for _, c := range r.cells {
		s, ok := r.Ratio(c, Speed, result.Stock)
		if !ok || c.System.Kind != result.Fleet {
			continue
		}
		title := c.size()
		i, known := titles[title]
		if !known {
			i = len(plots)
			titles[title] = i
			plots = append(plots, Plot{
				File: "throughput-" + slug(title), Title: "Throughput: " + title, X: "replicas", Y: "throughput, multiple of stock's",
				Reference: &Reference{"stock", 1},
			})
		}
		name := map[string]string{
			result.RateDefault: "default limits in each", result.RateEqual: "stock's limits shared", result.RateHigh: "no limits",
		}[c.System.Rate]
		if c.System.Gate {
			name += ", feature gate on"
		}
		plots[i].add(name, point(float64(c.System.Replicas), s, 1))
	}
	return slices.DeleteFunc(plots, func(p Plot) bool {
		return !slices.ContainsFunc(p.Series, func(s Series) bool { return len(s.Points) > 1 })
	})
}

// add appends a point to the series of that name.
func (p *Plot) add(name string, at PlotPoint) {
	i := slices.IndexFunc(p.Series, func(s Series) bool { return s.Name == name })
	if i < 0 {
		i = len(p.Series)
		p.Series = append(p.Series, Series{Name: name})
	}
	p.Series[i].Points = append(p.Series[i].Points, at)
}

// memoryPlots returns one for each scenario in which memory was measured at several numbers of
// pods.
func (r *Report) memoryPlots() []Plot {
	var plots []Plot
	for _, g := range r.Growth(Memory) {
		i := slices.IndexFunc(plots, func(p Plot) bool { return p.File == "memory-"+slug(g.Scenario) })
		if i < 0 {
			i = len(plots)
			plots = append(plots, Plot{
				File: "memory-" + slug(g.Scenario), Title: "Memory of the largest replica: " + g.Scenario, X: "pods", Y: "resident memory, MiB",
			})
		}
		s := Series{Name: SystemName(g.System), Line: []float64{g.Line.Coefficients[0] / mebi, g.Line.Coefficients[1] / mebi}}
		for _, p := range g.Points {
			s.Points = append(s.Points, point(float64(p.Pods), p.Spread, mebi))
		}
		plots[i].Series = append(plots[i].Series, s)
	}
	return plots
}

// memberPlots are memory and bytes of each member of the largest fleet beside stock's, in the
// fixed-time scenario and size with most pods.
func (r *Report) memberPlots() []Plot {
	var best *Cell
	for _, c := range r.cells {
		if c.System.Kind != result.Fleet || !isWindow(c.Scenario) || r.params[c]["pods"] == 0 || len(r.runs[c]) == 0 {
			continue
		}
		if best == nil || cmp.Or(
			cmp.Compare(r.params[c]["pods"], r.params[*best]["pods"]), cmp.Compare(c.System.Replicas, best.System.Replicas),
			compareBool(c.System.Gate, best.System.Gate)) > 0 {
			best = &c
		}
	}
	if best == nil {
		return nil
	}
	const members = "replicas, those with cluster groups first, then by size"
	title := best.String()
	return slices.Concat(
		r.memberPlot(*best, Plot{File: "members-memory", Title: "Memory of each replica: " + title, X: members, Y: "resident memory, MiB"}, rss),
		r.memberPlot(*best, Plot{File: "members-received", Title: "Bytes received by each replica: " + title, X: members, Y: "received, MiB", split: true}, received),
	)
}

// The parts of the bars.
const (
	forAll    = "stock: everything"
	forRanges = "ranges of namespaces"
	forGroups = "cluster groups"
	forBoth   = "ranges and cluster groups"
)

// memberPlot draws stock and the members by rank, because a different member may be the largest in
// each round. A member's bar is named by what it holds, unless the bytes for its groups were
// measured separately.
func (r *Report) memberPlot(c Cell, p Plot, f figure) []Plot {
	values := map[string]map[int][]float64{} // by part and bar
	names := map[int]string{}
	put := func(part string, bar int, v float64) {
		if values[part] == nil {
			values[part] = map[int][]float64{}
		}
		values[part][bar] = append(values[part][bar], v)
	}
	for _, at := range r.rounds(c) {
		run := r.runs[c][at]
		stock, ok := r.counterpart(c, at, result.Stock)
		if v := all(every, f, stock); ok && len(v) == 1 {
			put(forAll, 0, v[0])
		}
		if all(every, f, run) == nil {
			continue
		}
		// The same order in each round, as far as the shares of groups allow: those with groups
		// first.
		members := slices.SortedFunc(slices.Values(run.Processes), func(a, b result.Process) int {
			x, _ := f(a)
			y, _ := f(b)
			return cmp.Or(cmp.Compare(min(len(b.Groups), 1), min(len(a.Groups), 1)), cmp.Compare(y, x))
		})
		for i, m := range members {
			v, _ := f(m)
			if apart, ok := number(m.GroupReceived); ok && p.split {
				put(forRanges, i+1, v-apart)
				put(forGroups, i+1, apart)
				continue
			}
			// A bar has one name, even if the member of this rank held something else in another
			// round.
			if names[i+1] == "" {
				names[i+1] = part(m)
			}
			put(names[i+1], i+1, v)
		}
	}
	if len(values) == 0 {
		return nil
	}
	p.Categories = []string{"stock"}
	for i := range c.System.Replicas {
		p.Categories = append(p.Categories, fmt.Sprint(i+1))
	}
	for _, name := range []string{forAll, forRanges, forGroups, forBoth} {
		bars := Bars{Name: name}
		for _, bar := range slices.Sorted(maps.Keys(values[name])) {
			s, _ := SpreadOf(values[name][bar])
			bars.Points = append(bars.Points, point(float64(bar), s, mebi))
		}
		if len(bars.Points) > 0 {
			p.Bars = append(p.Bars, bars)
		}
	}
	return []Plot{p}
}

func part(p result.Process) string {
	total := 0
	for _, n := range p.Shards {
		total += n
	}
	switch {
	case len(p.Groups) == 0:
		return forRanges
	case total == len(p.Groups):
		return forGroups
	default:
		return forBoth
	}
}

func point(x float64, s Spread, unit float64) PlotPoint {
	return PlotPoint{X: x, Y: s.Median / unit, Low: s.Min / unit, High: s.Max / unit}
}

// slug turns a title into a file name.
func slug(title string) string {
	return strings.Trim(strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-':
			return c
		case c >= 'A' && c <= 'Z':
			return c + 'a' - 'A'
		default:
			return '-'
		}
	}, title), "-")
}

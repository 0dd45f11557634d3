package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/flotilla-kube/flotilla/test/bench/result"
)

// Growth is how a metric of one system grows with the number of pods, all else equal.
type Growth struct {
	Scenario string
	System   result.System
	Points   []Point
	// Line is metric = Coefficients[0] + Coefficients[1]*pods, over every round.
	Line Fit
	// Fitted is set if there is a line: pods were measured at two sizes or more.
	Fitted bool
}

// Point is the metric at a number of pods.
type Point struct {
	Pods int
	Spread
}

// Growth returns how the metric grows in each scenario and system that was run with at least two
// numbers of pods.
func (r *Report) Growth(m Metric) []Growth {
	var found []Growth
	for _, c := range r.cells {
		pods, sized := r.params[c]["pods"]
		values := r.values(c, m)
		s, ok := SpreadOf(values)
		if !sized || !ok || c.System.Kind == result.Ceiling {
			continue
		}
		i := slices.IndexFunc(found, func(g Growth) bool { return g.Scenario == c.Scenario && g.System == c.System })
		if i < 0 {
			i = len(found)
			found = append(found, Growth{Scenario: c.Scenario, System: c.System})
		}
		found[i].Points = append(found[i].Points, Point{pods, s})
	}
	var grown []Growth
	for _, g := range found {
		var rows [][]float64
		var y []float64
		for _, c := range r.cells {
			if c.Scenario == g.Scenario && c.System == g.System {
				for _, v := range r.values(c, m) {
					rows, y = append(rows, []float64{1, float64(r.params[c]["pods"])}), append(y, v)
				}
			}
		}
		slices.SortStableFunc(g.Points, func(a, b Point) int { return a.Pods - b.Pods })
		if g.Line, g.Fitted = FitOf(rows, y); g.Fitted {
			grown = append(grown, g)
		}
	}
	return grown
}

// perPod has the format of each metric's slope.
var perPod = []struct {
	metric Metric
	slope  Format
}{
	{Memory, Bytes}, {Heap, Bytes}, {Beyond, Bytes}, {StartCPU, Seconds}, {CPULargest, Seconds}, {ReceivedOne, Bytes},
}

func (r *Report) growth() string {
	rows := [][]string{{"scenario", "system", "figure", "by pods", "per pod", "at no pods", "R²", "points"}}
	for _, p := range perPod {
		for _, g := range r.Growth(p.metric) {
			points := ""
			for i, point := range g.Points {
				if i > 0 {
					points += ", "
				}
				points += fmt.Sprintf("%d: %s", point.Pods, p.metric.Format(point.Median))
			}
			rows = append(rows, []string{
				g.Scenario, SystemName(g.System), p.metric.titleIn(g.Scenario), points,
				p.slope(g.Line.Coefficients[1]), p.metric.Format(g.Line.Coefficients[0]), r2(g.Line), fmt.Sprint(g.Line.N),
			})
		}
	}
	return table(rows)
}

func r2(f Fit) string {
	if math.IsNaN(f.R2) {
		return absent
	}
	return fmt.Sprintf("%.3f", f.R2)
}

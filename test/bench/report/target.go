package report

import (
	"fmt"

	"github.com/flotilla-kube/flotilla/test/bench/result"
)

// Verdict says whether a target is met.
type Verdict string

// Verdicts.
const (
	// Met in each cell that the target is about.
	Met Verdict = "met"
	// NotMet in one cell at least.
	NotMet Verdict = "**not met**"
	// Partly met: in each measured cell, while some cell was not measured.
	Partly Verdict = "met where measured"
	// NotMeasured in any cell.
	NotMeasured Verdict = "not measured"
)

// Target is what a fleet may cost, or must reach, as a multiple of stock's in the same round.
type Target struct {
	Name string
	// Limit is the greatest allowed value, or the least if AtLeast.
	Limit   float64
	AtLeast bool
	// Metric is the compared figure, the fleet's with stock's.
	Metric Metric
	about  func(c Cell, params map[string]int) bool
}

// largePods is the size at which the targets for four replicas hold.
const largePods = 20000

// Targets returns the project's own targets.
func Targets() []Target {
	most := func(name string, limit float64, m Metric, about func(Cell, map[string]int) bool) Target {
		return Target{Name: name, Limit: limit, Metric: m, about: about}
	}
	least := func(name string, limit float64, m Metric, about func(Cell, map[string]int) bool) Target {
		return Target{Name: name, Limit: limit, AtLeast: true, Metric: m, about: about}
	}
	const four, eight = "4 replicas, feature gate on, 20,000 pods: ", "8 replicas, feature gate on, 20,000 pods: "
	return []Target{
		most("1 replica: CPU of work", 1.05, CPU, both(replicas(1), work)),
		most("1 replica: memory", 1.10, Memory, replicas(1)),
		most("1 replica: time of work", 1.05, Time, both(replicas(1), work)),
		most("1 replica, feature gate on, 20,000 pods: peak of memory beyond empty", 1.10, PeakOne, large(1)),
		most(four+"peak of memory beyond empty, largest replica", 0.45, PeakOne, large(4)),
		most(four+"peaks of memory beyond empty, sum over replicas", 1.10, PeakSum, large(4)),
		most(eight+"peak of memory beyond empty, largest replica", 0.30, PeakOne, large(8)),
		most(four+"memory beyond the empty process, largest replica without cluster groups", 0.35, Beyond, large(4)),
		most(four+"bytes received, largest replica without cluster groups", 0.35, ReceivedOne, large(4)),
		most(four+"the same memory, largest replica with light groups at most", 0.35, BeyondLight, large(4)),
		most(four+"the same bytes, largest replica with light groups at most", 0.35, ReceivedLight, large(4)),
		most(four+"bytes received, sum over replicas", 1.25, Received, large(4)),
		most(four+"CPU per object, sum over replicas", 1.15, CPUObject, both(large(4), work)),
		most("4 replicas, feature gate on, any size: CPU per object, sum over replicas", 1.15, CPUObject, both(gated, work)),
		least("4 replicas, default flags: throughput", 3.5, Speed, both(atRate(result.RateDefault), both(work, shared))),
		least("4 replicas, stock's limits shared by them: throughput", 1.0, Speed, both(atRate(result.RateEqual), both(work, shared))),
		most("4 replicas, feature gate on: CPU of the API server in work", 1.10, ServerCPU, both(gated, work)),
	}
}

func both(a, b func(Cell, map[string]int) bool) func(Cell, map[string]int) bool {
	return func(c Cell, params map[string]int) bool { return a(c, params) && b(c, params) }
}

func replicas(n int) func(Cell, map[string]int) bool {
	return func(c Cell, _ map[string]int) bool { return c.System.Replicas == n }
}

// work leaves out the scenario with a loss, whose time is that of noticing it.
func work(c Cell, _ map[string]int) bool { return !isWindow(c.Scenario) && c.Scenario != "chaos" }

// shared leaves out work in a single namespace, all of which belongs to one replica.
func shared(_ Cell, params map[string]int) bool { return params["namespaces"] != 1 }

func atRate(rate string) func(Cell, map[string]int) bool {
	return func(c Cell, _ map[string]int) bool { return c.System.Replicas == 4 && c.System.Rate == rate }
}

func gated(c Cell, _ map[string]int) bool { return c.System.Replicas == 4 && c.System.Gate }

// large are the cells of a fleet with largePods pods and the feature gate.
func large(members int) func(Cell, map[string]int) bool {
	return func(c Cell, params map[string]int) bool {
		return c.System.Replicas == members && c.System.Gate && podsOf(params) == largePods
	}
}

// podsOf returns the number of pods in a size.
func podsOf(params map[string]int) int {
	if n, ok := params["pods"]; ok {
		return n
	}
	return params["deployments"] * params["replicas"]
}

// Judgement is a target compared with the measurements.
type Judgement struct {
	Target  Target
	Verdict Verdict
	// Worst is the ratio of the cell that is furthest on the wrong side, and Cell that cell; both
	// only if Measured > 0.
	Worst Spread
	Cell  Cell
	// Cells is how many cells the target is about; Measured of them have a ratio, and Held of them
	// meet the limit.
	Cells, Measured, Held int
}

// Judge compares a target with each cell of a fleet that it is about, by the median of the rounds'
// ratios.
func (r *Report) Judge(t Target) Judgement {
	j := Judgement{Target: t, Verdict: NotMeasured}
	for _, c := range r.cells {
		if c.System.Kind != result.Fleet || !t.about(c, r.params[c]) {
			continue
		}
		j.Cells++
		ratio, ok := r.Ratio(c, t.Metric, result.Stock)
		if !ok {
			continue
		}
		if j.Measured++; t.holds(ratio.Median) {
			j.Held++
		}
		if j.Measured == 1 || t.worse(ratio.Median, j.Worst.Median) {
			j.Worst, j.Cell = ratio, c
		}
	}
	switch {
	case j.Measured == 0:
	case j.Held < j.Measured:
		j.Verdict = NotMet
	case j.Measured < j.Cells:
		j.Verdict = Partly
	default:
		j.Verdict = Met
	}
	return j
}

func (t Target) holds(ratio float64) bool {
	if t.AtLeast {
		return ratio >= t.Limit
	}
	return ratio <= t.Limit
}

func (t Target) worse(a, b float64) bool {
	if t.AtLeast {
		return a < b
	}
	return a > b
}

// bound returns the limit as text.
func (t Target) bound() string {
	if t.AtLeast {
		return fmt.Sprintf("≥ %.2f", t.Limit)
	}
	return fmt.Sprintf("≤ %.2f", t.Limit)
}

// targets returns the table of all targets.
func (r *Report) targets() string {
	rows := [][]string{{"target, as a multiple of stock", "limit", "measured, worst case", "verdict", "met in", "worst case"}}
	for _, t := range Targets() {
		j := r.Judge(t)
		row := []string{t.Name, t.bound(), absent, string(j.Verdict), absent, absent}
		if j.Measured > 0 {
			row[2] = text(j.Worst, true, Plain)
			row[4] = fmt.Sprintf("%d of %d", j.Held, j.Measured)
			if j.Measured < j.Cells {
				row[4] += fmt.Sprintf(", %d without data", j.Cells-j.Measured)
			}
			row[5] = j.Cell.String()
		}
		rows = append(rows, row)
	}
	return table(rows)
}

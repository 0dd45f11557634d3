package report

import (
	"fmt"
	"slices"

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

// Target is what a fleet may cost, or must reach, as a multiple of stock's in the same round unless
// Alone is set.
type Target struct {
	Name string
	// Limit is the greatest allowed value, or the least if AtLeast.
	Limit   float64
	AtLeast bool
	// Metric is the compared figure, the fleet's with stock's; Alone means that it is the fleet's
	// own.
	Metric Metric
	Alone  bool
	about  condition
}

// largePods is the size at which most targets for memory hold.
const largePods = 20000

// condition says whether a target is about a cell.
type condition func(c Cell, params map[string]int) bool

// Targets returns the project's own targets.
func Targets() []Target {
	most := func(name string, limit float64, m Metric, about ...condition) Target {
		return Target{Name: name, Limit: limit, Metric: m, about: allOf(about...)}
	}
	least := func(name string, limit float64, m Metric, about ...condition) Target {
		return Target{Name: name, Limit: limit, AtLeast: true, Metric: m, about: allOf(about...)}
	}
	const four, eight = "4 replicas, feature gate on, 20,000 pods: ", "8 replicas, feature gate on, 20,000 pods: "
	even := most(four+"largest of the peaks beyond empty over their mean", 1.20, PeakEven, large(4))
	even.Alone = true
	return []Target{
		most("1 replica: CPU of work", 1.03, CPU, replicas(1), work),
		most("1 replica: memory", 1.10, Memory, replicas(1)),
		most("1 replica: time of work", 1.00, Time, replicas(1), work),
		most("1 replica, 20,000 pods: peak of memory beyond empty", 1.10, PeakOne, replicas(1), pods(largePods)),
		most(four+"peak of memory beyond empty, largest replica", 0.45, PeakOne, large(4)),
		most(four+"peaks of memory beyond empty, sum over replicas", 1.10, PeakSum, large(4)),
		even,
		most(four+"live heap, largest replica", 0.45, Heap, large(4), steady),
		most(four+"live heap, sum over replicas", 1.10, HeapSum, large(4), steady),
		most("4 replicas, feature gate off, 20,000 pods: peak of memory beyond empty, largest replica", 0.50, PeakOne, replicas(4), ungated, pods(largePods)),
		most("4 replicas, feature gate on, 50,000 pods: peak of memory beyond empty, largest replica", 0.42, PeakOne, gated(4), pods(50000)),
		most(eight+"peak of memory beyond empty, largest replica", 0.30, PeakOne, large(8)),
		most(four+"memory beyond the empty process, largest replica without cluster groups", 0.35, Beyond, large(4)),
		most(four+"bytes received, largest replica without cluster groups", 0.35, ReceivedOne, large(4)),
		most(four+"the same memory, largest replica with light groups at most", 0.35, BeyondLight, large(4)),
		most(four+"the same bytes, largest replica with light groups at most", 0.35, ReceivedLight, large(4)),
		most(four+"bytes received, sum over replicas", 1.25, Received, large(4)),
		most(four+"CPU per object, sum over replicas", 1.05, CPUObject, large(4), work),
		most("4 replicas, default flags: CPU per object, sum over replicas", 1.15, CPUObject, atRate(result.RateDefault), work),
		most("4 replicas, stock's limits shared by them: CPU per object, sum over replicas", 1.20, CPUObject, atRate(result.RateEqual), work),
		most("4 replicas, high limits: CPU per object, sum over replicas", 1.30, CPUObject, atRate(result.RateHigh), work),
		most("4 replicas, feature gate on, idle, 5,000 pods: CPU, sum over replicas", 1.40, CPU, gated(4), steady, pods(5000), rested),
		least("4 replicas, default flags: throughput of any work", 3.5, Speed, atRate(result.RateDefault), work, shared),
		least("4 replicas, default flags: throughput of basic", 3.6, Speed, atRate(result.RateDefault), scenario("basic"), pods(0), shared),
		least("3 replicas, default flags: throughput of arrivals", 3.0, Speed, replicas(3), scenario("arrivals")),
		least("4 replicas, stock's limits shared: throughput", 1.0, Speed, atRate(result.RateEqual), work, shared),
		least("4 replicas, high limits: throughput", 0.95, Speed, atRate(result.RateHigh), work, shared),
		most("4 replicas, feature gate on: CPU of the API server in work", 1.10, ServerCPU, gated(4), work),
		most("4 replicas, stock's limits shared: CPU of the API server in work", 1.05, ServerCPU, atRate(result.RateEqual), work),
	}
}

// allOf is the condition that all of these hold.
func allOf(of ...condition) condition {
	return func(c Cell, params map[string]int) bool {
		return !slices.ContainsFunc(of, func(is condition) bool { return !is(c, params) })
	}
}

func replicas(n int) condition {
	return func(c Cell, _ map[string]int) bool { return c.System.Replicas == n }
}

func scenario(name string) condition {
	return func(c Cell, _ map[string]int) bool { return c.Scenario == name }
}

var steady = scenario("steady")

// rested leaves out windows so short that what came just before them counts.
func rested(_ Cell, params map[string]int) bool { return params["seconds"] >= 60 }

// work leaves out the scenario with a loss, whose time is that of noticing it.
func work(c Cell, _ map[string]int) bool { return !isWindow(c.Scenario) && c.Scenario != "chaos" }

// shared leaves out work in a single namespace, all of which belongs to one replica.
func shared(_ Cell, params map[string]int) bool { return params["namespaces"] != 1 }

func atRate(rate string) condition {
	return func(c Cell, _ map[string]int) bool { return c.System.Replicas == 4 && c.System.Rate == rate }
}

func gated(members int) condition {
	return func(c Cell, _ map[string]int) bool { return c.System.Replicas == members && c.System.Gate }
}

func ungated(c Cell, _ map[string]int) bool { return !c.System.Gate }

// pods are the cells with so many pods. Those that the work itself makes count if n is not zero.
func pods(n int) condition {
	return func(_ Cell, params map[string]int) bool {
		if n == 0 {
			return params["pods"] == 0
		}
		return podsOf(params) == n
	}
}

// large are the cells of a fleet with largePods pods and the feature gate.
func large(members int) condition { return allOf(gated(members), pods(largePods)) }

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
		if t.Alone {
			ratio, ok = r.Spread(c, t.Metric)
		}
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
			if j.Worst.N == 1 {
				row[2] += ", one round"
			}
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

package report

import (
	"fmt"
	"slices"

	"github.com/flotilla-kube/flotilla/test/bench/result"
)

// Idle is what a replica costs by itself, and each range and each group that it holds.
type Idle struct {
	Title                  string
	Replica, Range, Group  string
	R2                     string
	Points                 int
	GroupsApart, Available bool
}

// idleFigures are those of a process on a cluster without objects, or of a fleet without work.
var idleFigures = []struct {
	title  string
	format Format
	of     func(result.Run, result.Process) (float64, bool)
}{
	{"memory of an empty process", Bytes, func(r result.Run, p result.Process) (float64, bool) {
		if r.Scenario == idleCost {
			return rss(p)
		}
		return number(p.EmptyRSS)
	}},
	{"live heap of an empty process", Bytes, func(r result.Run, p result.Process) (float64, bool) {
		if r.Scenario == idleCost {
			return heap(p)
		}
		return number(p.EmptyHeap)
	}},
	{"goroutines", Plain, func(_ result.Run, p result.Process) (float64, bool) { return number(p.Goroutines) }},
	{"watches", Plain, func(_ result.Run, p result.Process) (float64, bool) { return number(p.Watches) }},
	{"CPU a second, nothing to do", Seconds, func(r result.Run, p result.Process) (float64, bool) {
		return p.CPU / max(r.Seconds, 1e-9), r.Seconds > 0
	}},
}

// Idle fits figure = replica + range*ranges + group*groups over every member of every round. If
// groups do not vary independently, figure = replica + shard*shards.
func (r *Report) Idle() []Idle {
	var found []Idle
	for _, f := range idleFigures {
		var split, whole [][]float64
		var y []float64
		r.eachMember(func(run result.Run, p result.Process, ranges, groups int) {
			if v, ok := f.of(run, p); ok {
				split = append(split, []float64{1, float64(ranges), float64(groups)})
				whole = append(whole, []float64{1, float64(ranges + groups)})
				y = append(y, v)
			}
		})
		line := Idle{Title: f.title, Replica: absent, Range: absent, Group: absent, R2: absent, Points: len(y)}
		if fit, ok := FitOf(split, y); ok {
			line.GroupsApart, line.Available = true, true
			line.Replica, line.Range, line.Group = f.format(fit.Coefficients[0]), f.format(fit.Coefficients[1]), f.format(fit.Coefficients[2])
			line.R2 = r2(fit)
		} else if fit, ok := FitOf(whole, y); ok {
			line.Available = true
			line.Replica, line.Range, line.R2 = f.format(fit.Coefficients[0]), f.format(fit.Coefficients[1]), r2(fit)
			line.Group = "as a range"
		}
		found = append(found, line)
	}
	return found
}

// eachMember calls f for each process of a fleet whose shards are known: on clusters without
// objects or, if there are no such runs, in every scenario without work.
func (r *Report) eachMember(f func(run result.Run, p result.Process, ranges, groups int)) {
	empty := slices.ContainsFunc(r.cells, func(c Cell) bool { return c.Scenario == idleCost && len(r.runs[c]) > 0 })
	for _, c := range r.cells {
		if c.System.Kind != result.Fleet || !isWindow(c.Scenario) || empty && c.Scenario != idleCost {
			continue
		}
		for _, at := range r.rounds(c) {
			run := r.runs[c][at]
			for _, p := range run.Processes {
				if p.Shards == nil {
					continue
				}
				total := 0
				for _, n := range p.Shards {
					total += n
				}
				f(run, p, total-len(p.Groups), len(p.Groups))
			}
		}
	}
}

func (r *Report) idle() string {
	rows := [][]string{{"figure", "per replica", "per range", "per group", "R²", "points"}}
	for _, i := range r.Idle() {
		if i.Available {
			rows = append(rows, []string{i.Title, i.Replica, i.Range, i.Group, i.R2, fmt.Sprint(i.Points)})
		}
	}
	return table(rows)
}

// LeaseFit fits writes a second = Coefficients[0]*shards + Coefficients[1]*replicas over every
// round of the fleet in scenarios without work. There is no constant: without shards and replicas
// nobody writes.
func (r *Report) LeaseFit() (Fit, bool) {
	var rows [][]float64
	var y []float64
	for _, c := range r.cells {
		if c.System.Kind != result.Fleet || !isWindow(c.Scenario) {
			continue
		}
		for _, at := range r.rounds(c) {
			run := r.runs[c][at]
			writes, ok := LeaseWrites.Of(run)
			shards, known := shardsOf(run)
			if ok && known {
				rows, y = append(rows, []float64{float64(shards), float64(run.System.Replicas)}), append(y, writes)
			}
		}
	}
	return FitOf(rows, y)
}

func shardsOf(run result.Run) (shards int, known bool) {
	for _, p := range run.Processes {
		if p.Shards == nil {
			return 0, false
		}
		for _, n := range p.Shards {
			shards += n
		}
	}
	return shards, len(run.Processes) > 0
}

func (r *Report) leases() string {
	rows := [][]string{{"scenario", "system", "shards", "Lease writes a second"}}
	for _, c := range r.cells {
		writes, ok := r.Spread(c, LeaseWrites)
		if !ok || !isWindow(c.Scenario) {
			continue
		}
		shards, known := SpreadOf(r.values(c, Metric{Of: func(run result.Run) (float64, bool) {
			n, known := shardsOf(run)
			return float64(n), known
		}}))
		rows = append(rows, []string{
			c.Scenario + " " + c.Params, SystemName(c.System), text(shards, known, Number), text(writes, true, PerSecond),
		})
	}
	said := table(rows)
	if fit, ok := r.LeaseFit(); ok {
		said += fmt.Sprintf("\nFitted: %.3f a second per shard and %.3f per replica (R² %s, %d points).\n",
			fit.Coefficients[0], fit.Coefficients[1], r2(fit), fit.N)
	}
	return said
}

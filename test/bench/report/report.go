// Package report makes tables, verdicts and plots of the results of benchmark runs (package
// result).
//
// # What it promises
//
//   - A figure is the median over rounds, with the least and the greatest value beside it. Nothing
//     is averaged.
//   - A ratio is taken within one round of one file, between two systems that did the same work,
//     and only then is the median taken over rounds. A round in which one of the two failed gives
//     no ratio.
//   - An unmeasured figure is absent: it is never zero, and meets no target.
//   - The same files in the same order give the same text.
//
// It reads no clock, no file and no network; page, the command below it, does.
//
// # What it does not say
//
// Whether a difference is more than chance: with three rounds the spread is all there is. And
// nothing about other machines.
package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flotilla-kube/flotilla/test/bench/result"
)

// Cell is one system under one scenario of one size, which is repeated over rounds.
type Cell struct {
	Scenario string
	// Params is the size as text, "name=value" by name.
	Params string
	System result.System
}

// String returns the cell as text for humans.
func (c Cell) String() string {
	return c.size() + ", " + SystemName(c.System)
}

// size returns the scenario and its size as text for humans.
func (c Cell) size() string { return strings.TrimSpace(c.Scenario + " " + c.Params) }

// SystemName returns the system as text for humans: "stock", "4 replicas, feature gate on, equal".
func SystemName(s result.System) string {
	name := s.Kind
	if s.Kind == result.Fleet {
		name = count(s.Replicas, "replica")
	}
	if s.Kind == result.Ceiling && s.Replicas > 1 {
		name += " of " + count(s.Replicas, "replica")
	}
	if s.Gate {
		name += ", feature gate on"
	}
	if s.Rate != "" && s.Rate != result.RateDefault {
		name += ", " + s.Rate
	}
	return name
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// round is one round of one file. Rounds of different files share only the number.
type round struct{ file, number int }

// Report has the results that were read. It is immutable.
type Report struct {
	files  []result.File
	cells  []Cell // in order
	runs   map[Cell]map[round]result.Run
	params map[Cell]map[string]int
	failed []result.Run
}

// New checks the files and sorts their runs. Failed runs give no figures; Failed has them. It
// returns an error if a file has the same system, scenario, size and round twice, or a run without
// a scenario, a known kind of system or a round, or if two files have the same fleet, scenario and
// size in different versions: a median of both would be nobody's figure.
func New(files []result.File) (*Report, error) {
	r := &Report{files: files, runs: map[Cell]map[round]result.Run{}, params: map[Cell]map[string]int{}}
	versions := map[Cell]string{}
	for i, file := range files {
		seen := map[Cell]map[int]bool{}
		for j, run := range file.Runs {
			if err := check(run); err != nil {
				return nil, fmt.Errorf("file %d, run %d: %w", i+1, j+1, err)
			}
			cell := cellOf(run)
			version := file.Versions["flotilla"]
			if before, found := versions[cell]; found && before != version && cell.System.Kind == result.Fleet {
				return nil, fmt.Errorf("file %d, run %d: %s is of version %q, in an earlier file of %q: keep one of them", i+1, j+1, cell, version, before)
			}
			versions[cell] = version
			if seen[cell] == nil {
				seen[cell] = map[int]bool{}
			}
			if seen[cell][run.Round] {
				return nil, fmt.Errorf("file %d, run %d: round %d of %s occurs twice", i+1, j+1, run.Round, cell)
			}
			seen[cell][run.Round] = true
			if r.runs[cell] == nil {
				r.runs[cell] = map[round]result.Run{}
				r.params[cell] = run.Params
			}
			if run.Failed != "" {
				r.failed = append(r.failed, run)
				continue
			}
			r.runs[cell][round{i, run.Round}] = run
		}
	}
	r.cells = slices.SortedFunc(maps.Keys(r.runs), r.compare)
	return r, nil
}

func check(run result.Run) error {
	switch {
	case run.Scenario == "":
		return fmt.Errorf("scenario is empty")
	case run.Round < 1:
		return fmt.Errorf("round is %d, must be at least 1", run.Round)
	case !slices.Contains([]string{result.Stock, result.Fleet, result.Ceiling}, run.System.Kind):
		return fmt.Errorf("system.kind is %q, must be %s, %s or %s", run.System.Kind, result.Stock, result.Fleet, result.Ceiling)
	case !slices.Contains([]string{result.RateDefault, result.RateEqual, result.RateHigh}, run.System.Rate):
		return fmt.Errorf("system.rate is %q, must be %s, %s or %s", run.System.Rate, result.RateDefault, result.RateEqual, result.RateHigh)
	default:
		return nil
	}
}

func cellOf(run result.Run) Cell {
	var params []string
	for _, name := range slices.Sorted(maps.Keys(run.Params)) {
		params = append(params, fmt.Sprintf("%s=%d", name, run.Params[name]))
	}
	return Cell{Scenario: run.Scenario, Params: strings.Join(params, " "), System: run.System}
}

// compare orders by scenario, size (by number, not by text), rate, kind, gate and replicas.
func (r *Report) compare(a, b Cell) int {
	kinds := []string{result.Stock, result.Fleet, result.Ceiling}
	rates := []string{result.RateDefault, result.RateEqual, result.RateHigh}
	return cmp.Or(
		cmp.Compare(a.Scenario, b.Scenario),
		compareParams(r.params[a], r.params[b]),
		cmp.Compare(a.Params, b.Params),
		cmp.Compare(slices.Index(rates, a.System.Rate), slices.Index(rates, b.System.Rate)),
		cmp.Compare(slices.Index(kinds, a.System.Kind), slices.Index(kinds, b.System.Kind)),
		compareBool(a.System.Gate, b.System.Gate),
		cmp.Compare(a.System.Replicas, b.System.Replicas),
	)
}

func compareParams(a, b map[string]int) int {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if other, ok := b[name]; ok && other != a[name] {
			return cmp.Compare(a[name], other)
		}
	}
	return 0
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// Cells returns what was run, failed or not, in the order of the page.
func (r *Report) Cells() []Cell { return slices.Clone(r.cells) }

// sizes groups the cells by scenario and size; the caller owns the slices.
func (r *Report) sizes() [][]Cell {
	var sizes [][]Cell
	for i, c := range r.cells {
		if i == 0 || c.size() != r.cells[i-1].size() {
			sizes = append(sizes, nil)
		}
		sizes[len(sizes)-1] = append(sizes[len(sizes)-1], c)
	}
	return sizes
}

// Failed returns the runs that gave no figures.
func (r *Report) Failed() []result.Run { return slices.Clone(r.failed) }

// rounds returns the rounds that gave figures, in order.
func (r *Report) rounds(c Cell) []round {
	return slices.SortedFunc(maps.Keys(r.runs[c]), func(a, b round) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.number, b.number))
	})
}

// values returns the metric's values in the order of the rounds, without rounds that lack one.
func (r *Report) values(c Cell, m Metric) []float64 {
	var values []float64
	for _, at := range r.rounds(c) {
		if v, ok := m.Of(r.runs[c][at]); ok {
			values = append(values, v)
		}
	}
	return values
}

// Spread returns the metric over the cell's rounds, and whether it was measured in any.
func (r *Report) Spread(c Cell, m Metric) (Spread, bool) { return SpreadOf(r.values(c, m)) }

// Ratio returns the metric over the cell's rounds as multiples of another kind of system's in the
// same round, and whether there is one. A round counts if both systems measured the metric in it
// and the other's is above zero.
func (r *Report) Ratio(c Cell, m Metric, kind string) (Spread, bool) {
	var ratios []float64
	for _, at := range r.rounds(c) {
		other, ok := r.counterpart(c, at, kind)
		if !ok {
			continue
		}
		a, measured := m.Of(r.runs[c][at])
		b, otherMeasured := m.Of(other)
		if measured && otherMeasured && b > 0 {
			ratios = append(ratios, a/b)
		}
	}
	return SpreadOf(ratios)
}

// counterpart returns the run of the same round to compare with. The gate does not affect stock and
// ceiling, which request no shards, so a run with the other gate serves if there is none with the
// same.
func (r *Report) counterpart(c Cell, at round, kind string) (result.Run, bool) {
	s := result.System{Kind: kind, Replicas: 1, Rate: c.System.Rate}
	candidates := []result.System{s}
	if kind == result.Ceiling && c.System.Kind == result.Fleet && c.System.Rate == result.RateDefault {
		// Each member has the limits of a whole stock process.
		candidates[0].Replicas = c.System.Replicas
	}
	if s.Rate == result.RateEqual {
		// For one process, equal and default are the same.
		s.Rate = result.RateDefault
		candidates = append(candidates, s)
	}
	for _, candidate := range candidates {
		for _, gate := range []bool{c.System.Gate, !c.System.Gate} {
			candidate.Gate = gate
			if run, ok := r.runs[Cell{c.Scenario, c.Params, candidate}][at]; ok {
				return run, true
			}
		}
	}
	return result.Run{}, false
}

package report_test

import (
	"math"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/test/bench/report"
	"github.com/flotilla-kube/flotilla/test/bench/result"
)

const mebi = 1 << 20

// size is the params of a run.
type size = map[string]int

var (
	stock    = result.System{Kind: result.Stock, Replicas: 1, Rate: result.RateDefault}
	ceiling  = result.System{Kind: result.Ceiling, Replicas: 1, Rate: result.RateDefault}
	one      = result.System{Kind: result.Fleet, Replicas: 1, Rate: result.RateDefault}
	four     = result.System{Kind: result.Fleet, Replicas: 4, Rate: result.RateDefault}
	fourGate = result.System{Kind: result.Fleet, Replicas: 4, Rate: result.RateDefault, Gate: true}
)

// work returns a run of "basic" that took this many seconds.
func work(s result.System, round int, seconds float64, processes ...result.Process) result.Run {
	return result.Run{
		Scenario: "basic", Params: size{"deployments": 10}, System: s, Round: round, Seconds: seconds, Objects: 100, Processes: processes,
	}
}

// member returns a member with this many ranges, and these groups; all sizes in MiB.
func member(cpu float64, rss, empty, received int, ranges int, groups ...string) result.Process {
	return result.Process{
		CPU: cpu, RSS: uint64(rss) * mebi, EmptyRSS: ptr.To(uint64(empty) * mebi),
		// Half of it to fill the caches.
		StartReceived: ptr.To(int64(received) * mebi / 2), Received: ptr.To(int64(received) * mebi / 2),
		Shards: map[string]int{"namespaces": ranges, "cluster": len(groups)}, Groups: groups,
	}
}

func process(cpu float64, rss, empty, received int) result.Process {
	p := member(cpu, rss, empty, received, 0)
	p.Shards = nil
	return p
}

func of(t *testing.T, files ...[]result.Run) *report.Report {
	t.Helper()
	var all []result.File
	for _, runs := range files {
		all = append(all, result.File{Runs: runs})
	}
	r, err := report.New(all)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// cell returns the only cell of the system.
func cell(t *testing.T, r *report.Report, s result.System) report.Cell {
	t.Helper()
	for _, c := range r.Cells() {
		if c.System == s {
			return c
		}
	}
	t.Fatalf("no cell of %s", report.SystemName(s))
	return report.Cell{}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func spread(t *testing.T, what string, got report.Spread, ok bool, want report.Spread) {
	t.Helper()
	if !ok {
		t.Errorf("%s was not measured, want %+v", what, want)
		return
	}
	near(t, what+", median", got.Median, want.Median)
	near(t, what+", min", got.Min, want.Min)
	near(t, what+", max", got.Max, want.Max)
	if got.N != want.N {
		t.Errorf("%s: %d rounds, want %d", what, got.N, want.N)
	}
}

func TestSpread(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   report.Spread
	}{
		{[]float64{9, 1, 2}, report.Spread{Median: 2, Min: 1, Max: 9, N: 3}}, // the mean is 4
		{[]float64{9, 1, 2, 4}, report.Spread{Median: 3, Min: 1, Max: 9, N: 4}},
		{[]float64{5}, report.Spread{Median: 5, Min: 5, Max: 5, N: 1}},
	} {
		got, ok := report.SpreadOf(test.values)
		spread(t, "spread", got, ok, test.want)
	}
	if _, ok := report.SpreadOf(nil); ok {
		t.Error("no values have a spread")
	}
}

func TestFit(t *testing.T) {
	// Computed by hand: x 1, 2, 3, y 2, 3, 7. Slope 5/2, intercept 4-5 = -1; residuals 0.5, -1,
	// 0.5, so R² = 1-1.5/14.
	fit, ok := report.FitOf([][]float64{{1, 1}, {1, 2}, {1, 3}}, []float64{2, 3, 7})
	if !ok {
		t.Fatal("no fit")
	}
	near(t, "intercept", fit.Coefficients[0], -1)
	near(t, "slope", fit.Coefficients[1], 2.5)
	near(t, "R²", fit.R2, 1-1.5/14)

	// Realistic bytes and pods: 100 MiB and 7,000 bytes a pod.
	fit, ok = report.FitOf([][]float64{{1, 5e3}, {1, 2e4}, {1, 5e4}}, []float64{100*mebi + 3.5e7, 100*mebi + 1.4e8, 100*mebi + 3.5e8})
	if !ok {
		t.Fatal("no fit")
	}
	near(t, "intercept", fit.Coefficients[0], 100*mebi)
	near(t, "slope", fit.Coefficients[1], 7000)

	// Two columns without a constant: y = a/2 + b/4.
	fit, ok = report.FitOf([][]float64{{21, 1}, {21, 2}, {37, 4}}, []float64{10.75, 11, 19.5})
	if !ok {
		t.Fatal("no fit")
	}
	near(t, "a", fit.Coefficients[0], 0.5)
	near(t, "b", fit.Coefficients[1], 0.25)

	for what, rows := range map[string][][]float64{
		"one x": {{1, 5}, {1, 5}, {1, 5}}, "one point": {{1, 5}}, "no x": {{1, 0}, {1, 0}}, "none": {},
		"a column from others": {{1, 2, 3}, {1, 3, 4}, {1, 4, 5}, {1, 9, 10}},
	} {
		if fit, ok := report.FitOf(rows, make([]float64, len(rows))); ok {
			t.Errorf("%s: fit %v, want none", what, fit)
		}
	}
}

// TestRatioIsWithinARound has rounds that get slower and slower, the same for both. Within rounds
// the fleet is 3, 2 and 4 times as fast, median 3; the ratio of the medians would be 30/8 = 3.75.
func TestRatioIsWithinARound(t *testing.T) {
	r := of(t, []result.Run{
		work(stock, 1, 24), work(four, 1, 8),
		work(stock, 2, 30), work(four, 2, 15),
		work(stock, 3, 32), work(four, 3, 8),
	})
	got, ok := r.Ratio(cell(t, r, four), report.Speed, result.Stock)
	spread(t, "throughput", got, ok, report.Spread{Median: 3, Min: 2, Max: 4, N: 3})
}

// TestRoundsOfFilesAreApart has round 1 in two files, between which there must be no ratio.
func TestRoundsOfFilesAreApart(t *testing.T) {
	r := of(t, []result.Run{work(stock, 1, 10)}, []result.Run{work(four, 1, 5)})
	if got, ok := r.Ratio(cell(t, r, four), report.Speed, result.Stock); ok {
		t.Errorf("ratio %v of runs in different files", got)
	}
	r = of(t, []result.Run{work(stock, 1, 10), work(four, 1, 5)}, []result.Run{work(stock, 1, 10), work(four, 1, 2)})
	got, ok := r.Ratio(cell(t, r, four), report.Speed, result.Stock)
	spread(t, "throughput", got, ok, report.Spread{Median: 3.5, Min: 2, Max: 5, N: 2})
}

func TestFailedRunsGiveNothing(t *testing.T) {
	failed := work(stock, 2, 1)
	failed.Failed = "the deployments did not become available\nmore"
	r := of(t, []result.Run{work(stock, 1, 10), work(four, 1, 5), failed, work(four, 2, 5)})
	got, ok := r.Ratio(cell(t, r, four), report.Speed, result.Stock)
	spread(t, "throughput", got, ok, report.Spread{Median: 2, Min: 2, Max: 2, N: 1})
	if n := len(r.Failed()); n != 1 {
		t.Errorf("%d failed runs, want 1", n)
	}
}

func TestCounterparts(t *testing.T) {
	with := func(s result.System, gate bool, rate string) result.System {
		s.Gate, s.Rate = gate, rate
		return s
	}
	tests := map[string]struct {
		runs []result.Run
		of   result.System
		kind string
		want float64 // 0: none
	}{
		"same gate first": {[]result.Run{work(stock, 1, 10), work(with(stock, true, "default"), 1, 20), work(fourGate, 1, 5)}, fourGate, "stock", 4},
		"the other gate":  {[]result.Run{work(stock, 1, 10), work(fourGate, 1, 5)}, fourGate, "stock", 2},
		"equal is compared with default": {
			[]result.Run{work(stock, 1, 10), work(with(four, false, "equal"), 1, 5)}, with(four, false, "equal"), "stock", 2},
		"high is compared only with high": {[]result.Run{work(stock, 1, 10), work(with(four, false, "high"), 1, 5)}, with(four, false, "high"), "stock", 0},
		"ceiling of as many":              {[]result.Run{work(ceiling, 1, 1), work(four, 1, 5)}, four, "ceiling", 0},
		"ceiling at high": {
			[]result.Run{work(with(ceiling, false, "high"), 1, 4), work(with(four, false, "high"), 1, 5)}, with(four, false, "high"), "ceiling", 0.8},
		"ceiling of stock": {[]result.Run{work(ceiling, 1, 4), work(stock, 1, 5)}, stock, "ceiling", 0.8},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := of(t, test.runs)
			got, ok := r.Ratio(cell(t, r, test.of), report.Speed, test.kind)
			if ok != (test.want != 0) {
				t.Fatalf("ratio %v, %t", got, ok)
			}
			near(t, "ratio", got.Median, test.want)
		})
	}
}

func TestMetrics(t *testing.T) {
	fleet := work(four, 1, 5,
		member(4, 200, 80, 10, 4), member(2, 150, 70, 30, 4), member(1, 400, 90, 90, 3, "nodes", "volumes"), member(1, 90, 75, 0, 0, "garbage"))
	fleet.Servers = []result.Process{{Name: "etcd", CPU: 3}, {Name: "kube-apiserver", CPU: 12}}
	fleet.LeaseWrites = ptr.To[int64](50)
	r := of(t, []result.Run{fleet})
	for _, test := range []struct {
		metric report.Metric
		want   float64
	}{
		{report.CPU, 8}, {report.CPUObject, 0.08}, {report.CPULargest, 4}, {report.CPUBalance, 2},
		{report.Memory, 400 * mebi}, {report.MemorySum, 840 * mebi}, {report.MemoryEven, 400. / 210},
		{report.Beyond, 120 * mebi}, {report.BeyondOf, 310 * mebi},
		{report.Received, 130 * mebi}, {report.ReceivedOne, 30 * mebi}, {report.ReceivedOf, 90 * mebi},
		{report.ServerCPU, 12}, {report.EtcdCPU, 3}, {report.LeaseWrites, 10}, {report.Time, 5},
	} {
		got, ok := r.Spread(cell(t, r, four), test.metric)
		spread(t, test.metric.Title, got, ok, report.Spread{Median: test.want, Min: test.want, Max: test.want, N: 1})
	}
	light := of(t, []result.Run{work(four, 1, 5,
		member(1, 300, 80, 50, 4, "nodes"), member(1, 120, 70, 20, 4, "policy", "certificates"), member(1, 400, 70, 60, 4, "policy", "garbage"))})
	for metric, want := range map[string]float64{"beyond": 50 * mebi, "received": 20 * mebi} {
		m := map[string]report.Metric{"beyond": report.BeyondLight, "received": report.ReceivedLight}[metric]
		got, ok := light.Spread(cell(t, light, four), m)
		spread(t, m.Title, got, ok, report.Spread{Median: want, Min: want, Max: want, N: 1})
	}
	if got, ok := light.Spread(cell(t, light, four), report.Beyond); ok {
		t.Errorf("%v without groups, but all have some", got)
	}
	for _, m := range []report.Metric{report.Heap, report.MemoryPeak, report.QueueP99, report.Requests, report.StartCPU} {
		if got, ok := r.Spread(cell(t, r, four), m); ok {
			t.Errorf("%s is %v, but was not measured", m.Title, got)
		}
	}
}

// TestFixedTime has a scenario that lasts 20 seconds: its time means nothing, and CPU is per
// second.
func TestFixedTime(t *testing.T) {
	r := of(t, []result.Run{steady(work(stock, 1, 20, process(5, 1, 0, 0)))})
	for _, m := range []report.Metric{report.Time, report.Speed, report.CPUObject} {
		if got, ok := r.Spread(cell(t, r, stock), m); ok {
			t.Errorf("%s is %v in a fixed time", m.Title, got)
		}
	}
	got, ok := r.Spread(cell(t, r, stock), report.CPU)
	spread(t, "CPU a second", got, ok, report.Spread{Median: 0.25, Min: 0.25, Max: 0.25, N: 1})
}

// TestPartOfAFleet has figures that one member lacks: the others' greatest value is not the
// fleet's.
func TestPartOfAFleet(t *testing.T) {
	whole, part := member(1, 100, 50, 10, 8), member(1, 100, 50, 10, 8)
	part.Received, part.EmptyRSS, part.Shards = nil, nil, nil
	r := of(t, []result.Run{work(four, 1, 5, whole, part)})
	for _, m := range []report.Metric{report.Received, report.ReceivedOne, report.ReceivedMax, report.Beyond} {
		if got, ok := r.Spread(cell(t, r, four), m); ok {
			t.Errorf("%s is %v, but was not measured in one member", m.Title, got)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	bad := func(change func(*result.Run)) []result.Run {
		run := work(stock, 1, 1)
		change(&run)
		return []result.Run{run}
	}
	for want, runs := range map[string][]result.Run{
		"scenario is empty":                   bad(func(r *result.Run) { r.Scenario = "" }),
		"round is 0":                          bad(func(r *result.Run) { r.Round = 0 }),
		`system.kind is "boat"`:               bad(func(r *result.Run) { r.System.Kind = "boat" }),
		`system.rate is "", must be default`:  bad(func(r *result.Run) { r.System.Rate = "" }),
		"round 1 of basic deployments=10, st": {work(stock, 1, 1), work(stock, 1, 2)},
	} {
		if _, err := report.New([]result.File{{Runs: runs}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// TestVersionsAreNotMixed has two files with the same work: of stock, which the fleet's version
// does not change, and of a fleet.
func TestVersionsAreNotMixed(t *testing.T) {
	in := func(version string, s result.System) result.File {
		return result.File{Versions: map[string]string{"flotilla": version}, Runs: []result.Run{work(s, 1, 1)}}
	}
	if _, err := report.New([]result.File{in("old", stock), in("new", stock)}); err != nil {
		t.Error(err)
	}
	if _, err := report.New([]result.File{in("old", four), in("old", four)}); err != nil {
		t.Error(err)
	}
	_, err := report.New([]result.File{in("old", four), in("new", four)})
	if want := `is of version "new", in an earlier file of "old": keep one of them`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want one with %q", err, want)
	}
}

package report_test

import (
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/test/bench/report"
	"github.com/flotilla-kube/flotilla/test/bench/result"
)

var three = result.System{Kind: result.Fleet, Replicas: 3, Rate: result.RateDefault}

// judge returns the verdict on the only target whose name contains part.
func judge(t *testing.T, r *report.Report, part string) report.Judgement {
	t.Helper()
	var found []report.Judgement
	for _, target := range report.Targets() {
		if strings.Contains(target.Name, part) {
			found = append(found, r.Judge(target))
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d targets are named like %q, want one", len(found), part)
	}
	return found[0]
}

// sized returns a run with 20,000 pods.
func sized(run result.Run) result.Run {
	run.Params = size{"pods": 20000}
	return run
}

func steady(run result.Run) result.Run {
	run.Scenario = "steady"
	return run
}

func TestNothingIsMetWithoutData(t *testing.T) {
	stockOnly := []result.Run{work(stock, 1, 10, process(1, 1, 0, 1)), sized(work(stock, 1, 10, process(1, 1, 0, 1)))}
	failed := sized(work(fourGate, 1, 1, process(1, 1, 0, 1)))
	failed.Failed = "no"
	for what, runs := range map[string][]result.Run{
		"nothing": nil, "stock alone": stockOnly, "the fleet failed": append(stockOnly, failed),
		"the fleet has no figures": append(stockOnly, sized(work(fourGate, 1, 0)), sized(work(one, 1, 0))),
	} {
		r := of(t, runs)
		for _, target := range report.Targets() {
			if j := r.Judge(target); j.Verdict != report.NotMeasured {
				t.Errorf("%s: %s: %s", what, target.Name, j.Verdict)
			}
		}
	}
}

func TestVerdicts(t *testing.T) {
	tests := map[string]struct {
		target string
		runs   []result.Run
		want   report.Verdict
		ratio  float64
	}{
		"CPU at the limit": {"1 replica: CPU", []result.Run{work(stock, 1, 1, process(100, 1, 0, 0)), work(one, 1, 1, process(103, 1, 0, 0))}, report.Met, 1.03},
		"CPU beyond it":    {"1 replica: CPU", []result.Run{work(stock, 1, 1, process(100, 1, 0, 0)), work(one, 1, 1, process(104, 1, 0, 0))}, report.NotMet, 1.04},
		"idle CPU is no work": {"1 replica: CPU", []result.Run{
			steady(work(stock, 1, 1, process(100, 1, 0, 0))), steady(work(one, 1, 1, process(300, 1, 0, 0))),
		}, report.NotMeasured, 0},
		"memory, also when idle": {"1 replica: memory", []result.Run{
			steady(work(stock, 1, 1, process(1, 100, 0, 0))), steady(work(one, 1, 1, process(1, 111, 0, 0))),
		}, report.NotMet, 1.11},
		"the worst of two scenarios": {"1 replica: time", []result.Run{
			work(stock, 1, 100), work(one, 1, 90), sized(work(stock, 1, 100)), sized(work(one, 1, 110)),
		}, report.NotMet, 1.1},
		"one of two was measured": {"1 replica: time", []result.Run{
			work(stock, 1, 100), work(one, 1, 90), sized(work(one, 1, 110)),
		}, report.Partly, 0.9},
		"without groups": {"memory beyond the empty", []result.Run{
			sized(work(stock, 1, 1, process(1, 300, 100, 0))), // 200 beyond
			sized(work(fourGate, 1, 1, member(1, 170, 100, 0, 8), member(1, 160, 100, 0, 7), member(1, 280, 100, 0, 1, "nodes"))),
		}, report.Met, 0.35},
		"the larger of those without groups": {"memory beyond the empty", []result.Run{
			sized(work(stock, 1, 1, process(1, 300, 100, 0))),
			sized(work(fourGate, 1, 1, member(1, 150, 100, 0, 8), member(1, 172, 100, 0, 7), member(1, 280, 100, 0, 1, "nodes"))),
		}, report.NotMet, 0.36},
		"all have groups": {"memory beyond the empty", []result.Run{
			sized(work(stock, 1, 1, process(1, 300, 100, 0))), sized(work(fourGate, 1, 1, member(1, 120, 100, 0, 8, "garbage"))),
		}, report.NotMeasured, 0},
		"other sizes do not count": {"memory beyond the empty", []result.Run{
			work(stock, 1, 1, process(1, 300, 100, 0)), work(fourGate, 1, 1, member(1, 110, 100, 0, 8)),
		}, report.NotMeasured, 0},
		"gate off does not count": {"memory beyond the empty", []result.Run{
			sized(work(stock, 1, 1, process(1, 300, 100, 0))), sized(work(four, 1, 1, member(1, 110, 100, 0, 8))),
		}, report.NotMeasured, 0},
		"the largest peak": {"4 replicas, feature gate on, 20,000 pods: peak of memory", []result.Run{
			sized(work(stock, 1, 1, peaked(process(1, 200, 100, 0), 300))),
			sized(work(fourGate, 1, 1, peaked(member(1, 110, 100, 0, 8), 120), peaked(member(1, 110, 100, 0, 1, "nodes"), 190))),
		}, report.Met, 0.45},
		"all peaks": {"peaks of memory", []result.Run{
			sized(work(stock, 1, 1, peaked(process(1, 200, 100, 0), 300))),
			sized(work(fourGate, 1, 1, peaked(member(1, 110, 100, 0, 8), 234), peaked(member(1, 110, 100, 0, 1, "nodes"), 190))),
		}, report.NotMet, 1.12},
		"even peaks": {"over their mean", []result.Run{
			sized(work(fourGate, 1, 1, peaked(member(1, 110, 100, 0, 8), 180), peaked(member(1, 110, 100, 0, 1, "nodes"), 220))),
		}, report.Met, 1.2},
		"uneven peaks": {"over their mean", []result.Run{
			sized(work(fourGate, 1, 1, peaked(member(1, 110, 100, 0, 8), 175), peaked(member(1, 110, 100, 0, 1, "nodes"), 225))),
		}, report.NotMet, 1.25},
		"a peak, gate off": {"feature gate off", []result.Run{
			sized(work(stock, 1, 1, peaked(process(1, 200, 100, 0), 300))), sized(work(four, 1, 1, peaked(member(1, 110, 100, 0, 8), 204))),
		}, report.NotMet, 0.52},
		"the sum of heaps": {"live heap, sum", []result.Run{
			steady(sized(work(stock, 1, 1, heaped(100)))), steady(sized(work(fourGate, 1, 1, heaped(40), heaped(60)))),
		}, report.Met, 1},
		"basic alone": {"throughput of basic", []result.Run{
			work(stock, 1, 350), work(four, 1, 100), sized(work(stock, 1, 100)), sized(work(four, 1, 90)),
		}, report.NotMet, 3.5},
		"arrivals": {"arrivals", []result.Run{arrivals(work(stock, 1, 90)), arrivals(work(three, 1, 30))}, report.Met, 3},
		"idle for long enough": {"idle, 5,000 pods", []result.Run{
			idle(work(stock, 1, 60, process(1, 1, 0, 0)), 60), idle(work(fourGate, 1, 60, process(1.5, 1, 0, 0)), 60),
			idle(work(stock, 1, 12, process(1, 1, 0, 0)), 12), idle(work(fourGate, 1, 12, process(9, 1, 0, 0)), 12),
		}, report.NotMet, 1.5},
		"a peak of eight": {"8 replicas", []result.Run{
			sized(work(stock, 1, 1, peaked(process(1, 200, 100, 0), 300))), sized(work(fourGate, 1, 1, peaked(member(1, 110, 100, 0, 8), 120))),
		}, report.NotMeasured, 0},
		"sum of bytes": {"received, sum", []result.Run{
			sized(work(stock, 1, 1, process(1, 1, 0, 100))), sized(work(fourGate, 1, 1, member(1, 1, 0, 30, 8), member(1, 1, 0, 96, 8, "nodes"))),
		}, report.NotMet, 1.26},
		"bytes of one": {"bytes received, largest", []result.Run{
			sized(work(stock, 1, 1, process(1, 1, 0, 100))), sized(work(fourGate, 1, 1, member(1, 1, 0, 30, 8), member(1, 1, 0, 96, 8, "nodes"))),
		}, report.Met, 0.3},
		"throughput just short":              {"throughput of any work", []result.Run{work(stock, 1, 349), work(four, 1, 100)}, report.NotMet, 3.49},
		"throughput enough":                  {"throughput of any work", []result.Run{work(stock, 1, 351), work(four, 1, 100)}, report.Met, 3.51},
		"equal":                              {"stock's limits shared: throughput", []result.Run{work(stock, 1, 100), work(equal(), 1, 100)}, report.Met, 1},
		"default is not equal":               {"stock's limits shared: throughput", []result.Run{work(stock, 1, 100), work(four, 1, 100)}, report.NotMeasured, 0},
		"a steady cluster's time is no work": {"1 replica: time", []result.Run{steady(work(stock, 1, 30)), steady(work(one, 1, 30))}, report.NotMeasured, 0},
		"pods of Deployments": {"gate on, 20,000 pods: CPU", []result.Run{
			rolled(work(stock, 1, 1, process(100, 1, 0, 0))), rolled(work(fourGate, 1, 1, process(105, 1, 0, 0))),
		}, report.Met, 1.05},
		"one namespace cannot be shared": {"throughput of any work", []result.Run{alone(work(stock, 1, 100)), alone(work(four, 1, 99))}, report.NotMeasured, 0},
		"a loss is no work":              {"throughput of any work", []result.Run{chaos(work(stock, 1, 100)), chaos(work(four, 1, 90))}, report.NotMeasured, 0},
		"a median over rounds, not a mean": {"throughput of any work", []result.Run{
			work(stock, 1, 100), work(four, 1, 25), work(stock, 2, 100), work(four, 2, 25), work(stock, 3, 100), work(four, 3, 100),
		}, report.Met, 4}, // mean 3
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			j := judge(t, of(t, test.runs), test.target)
			if j.Verdict != test.want {
				t.Errorf("%s at %v: %s, want %s", j.Target.Name, j.Worst, j.Verdict, test.want)
			}
			near(t, "worst ratio", j.Worst.Median, test.ratio)
		})
	}
}

// peaked returns p with a peak in MiB.
func peaked(p result.Process, peak uint64) result.Process {
	p.PeakRSS = peak * mebi
	return p
}

// heaped returns a process with this much live heap, in MiB.
func heaped(heap uint64) result.Process {
	p := process(1, 1, 0, 0)
	p.Heap = ptr.To(heap * mebi)
	return p
}

func arrivals(run result.Run) result.Run {
	run.Scenario = "arrivals"
	return run
}

// idle returns a run that watches 5,000 pods for this many seconds.
func idle(run result.Run, seconds int) result.Run {
	run.Scenario, run.Params = "steady", size{"pods": 5000, "seconds": seconds}
	return run
}

// rolled returns a run with 20,000 pods of Deployments.
func rolled(run result.Run) result.Run {
	run.Params = size{"deployments": 4000, "replicas": 5}
	return run
}

func alone(run result.Run) result.Run {
	run.Params = size{"deployments": 10, "namespaces": 1}
	return run
}

func chaos(run result.Run) result.Run {
	run.Scenario = "chaos"
	return run
}

func equal() result.System {
	s := four
	s.Rate = result.RateEqual
	return s
}

func TestServerTarget(t *testing.T) {
	with := func(run result.Run, cpu float64) result.Run {
		run.Servers = []result.Process{{Name: "etcd", CPU: 1}, {Name: "kube-apiserver", CPU: cpu}}
		return run
	}
	r := of(t, []result.Run{with(work(stock, 1, 1), 10), with(work(fourGate, 1, 1), 12), with(work(four, 1, 1), 99)})
	j := judge(t, r, "gate on: CPU of the API server")
	if j.Verdict != report.NotMet || j.Cells != 1 {
		t.Errorf("%s of %d cells, want %s of one", j.Verdict, j.Cells, report.NotMet)
	}
	near(t, "ratio", j.Worst.Median, 1.2)
}

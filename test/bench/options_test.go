package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/test/bench/result"
	"github.com/flotilla-kube/flotilla/test/bench/system"
)

// valid returns flags that pass, on a machine without binaries.
func valid(t *testing.T) []string {
	binary := filepath.Join(t.TempDir(), "binary")
	if err := os.WriteFile(binary, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{"-stock", binary, "-flotilla", binary, "-out", filepath.Join(t.TempDir(), "out.json")}
}

func TestFlagsAtFault(t *testing.T) {
	there := filepath.Join(t.TempDir(), "there.json")
	if err := os.WriteFile(there, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		want []string // all of them in the error; none: no error
	}{
		{nil, nil},
		{[]string{"-scenarios", "basic,chaos,steady", "-systems", "fleet-3,stock", "-gate", "off,on", "-rates", "high", "-pods", "100,2000"}, nil},
		{[]string{"-scenarios", "basic,basik"}, []string{"-scenarios", `"basik"`, "rolling-update"}},
		{[]string{"-scenarios", "basic,basic"}, []string{"-scenarios", "twice"}},
		{[]string{"-scenarios", ""}, []string{"-scenarios", `""`}},
		{[]string{"-systems", "ceiling,ceiling-4"}, nil},
		{[]string{"-systems", "stock,fleet"}, []string{"-systems", `"fleet"`, "fleet-N", "ceiling-N"}},
		{[]string{"-systems", "stock-2"}, []string{"-systems", `"stock-2"`, "fleet-N"}},
		{[]string{"-systems", "ceiling,ceiling-1"}, []string{"-systems", `"ceiling-1"`, "twice"}},
		{[]string{"-systems", "ceiling", "-scenarios", "chaos,steady"}, []string{"-systems", `"ceiling"`, "chaos,steady"}},
		{[]string{"-systems", "ceiling-2", "-rates", "equal,high"}, []string{"-systems", `"ceiling-2"`, "equal,high"}},
		{[]string{"-systems", "fleet-0"}, []string{"-systems", `"fleet-0"`, "1 to 16"}},
		{[]string{"-systems", "fleet-2,fleet-02"}, []string{"-systems", "twice"}},
		{[]string{"-gate", "true"}, []string{"-gate", `"true"`, "on, off"}},
		{[]string{"-rates", "low"}, []string{"-rates", `"low"`, "default, equal, high"}},
		{[]string{"-rounds", "0"}, []string{"-rounds", "0", "1 to 100"}},
		{[]string{"-namespaces", "0"}, []string{"-namespaces", "0", "1 to 5000"}},
		{[]string{"-namespaces", "1", "-scenarios", "basic,burst"}, []string{"-namespaces", "1", "2 to 5000"}},
		{[]string{"-pods", "150"}, []string{"-pods", `"150"`, "multiple of 100"}},
		{[]string{"-background", "250"}, []string{"-background", "250", "multiple of 100"}},
		{[]string{"-shards", "16,x"}, []string{"-shards", `"x"`, "1019"}},
		{[]string{"-names", "odd"}, []string{"-names", `"odd"`, "balanced, plain"}},
		{[]string{"-limit", "1ms"}, []string{"-limit", "1ms", "1s"}},
		{[]string{"-stock", "/nowhere"}, []string{"-stock", `"/nowhere"`, "executable"}},
		{[]string{"-out", "x.txt"}, []string{"-out", `"x.txt"`, ".json"}},
		{[]string{"-out", there}, []string{"-out", "exists", "-append"}},
		{[]string{"-out", there, "-append"}, nil},
		{[]string{"-rounds", "0", "-gate", "maybe"}, []string{"-rounds", "-gate"}},
		{[]string{"basic"}, []string{`"basic"`, "only flags"}},
	} {
		_, err := parse(append(valid(t), tc.args...), io.Discard)
		if err == nil != (len(tc.want) == 0) {
			t.Errorf("%v: %v", tc.args, err)
		}
		for _, part := range tc.want {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%v: the error %q does not name %s", tc.args, err, part)
			}
		}
	}
}

// TestOrderAlternates checks which systems come first in each round, and what is left out.
func TestOrderAlternates(t *testing.T) {
	o, err := parse(append(valid(t), "-scenarios", "chaos,idle-cost", "-systems", "stock,fleet-1,fleet-2", "-rates", "default,high", "-rounds", "2", "-shards", "16"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, j := range o.jobs() {
		got = append(got, j.scenario+" "+j.system.Rate+" "+system.Name(j.system))
	}
	want := []string{
		"chaos default stock", "chaos default fleet-2", "chaos default fleet-2", "chaos default stock",
		"chaos high stock", "chaos high fleet-2", "chaos high fleet-2", "chaos high stock",
		"idle-cost default fleet-1", "idle-cost default fleet-2", "idle-cost default fleet-2", "idle-cost default fleet-1",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestCeilings checks which ceilings there are for which systems, and what is recorded for them.
func TestCeilings(t *testing.T) {
	o, err := parse(append(valid(t), "-scenarios", "basic,chaos,burst,scale-out", "-systems", "fleet-1,fleet-4,ceiling", "-rates", "default,equal,high", "-rounds", "1",
		"-gate", "off,on", "-deployments", "2", "-namespaces", "2", "-replicas", "3"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, j := range o.jobs() {
		if j.system.Kind != result.Ceiling {
			continue
		}
		if j.system.Gate {
			t.Errorf("%s with the gate: a ceiling has it as the first one in the list", j.recording())
		}
		got = append(got, system.Name(j.system)+" "+j.system.Rate+" of "+j.recording())
	}
	want := []string{
		"ceiling default of basic deployments=2 namespaces=2, rate default",
		"ceiling-4 default of basic deployments=2 namespaces=2, rate default",
		"ceiling equal of basic deployments=2 namespaces=2, rate default",
		"ceiling high of basic deployments=2 namespaces=2, rate high",
		"ceiling default of scale-out deployments=2 namespaces=2 replicas=3, rate default",
		"ceiling-4 default of scale-out deployments=2 namespaces=2 replicas=3, rate default",
		"ceiling equal of scale-out deployments=2 namespaces=2 replicas=3, rate default",
		"ceiling high of scale-out deployments=2 namespaces=2 replicas=3, rate high",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestLimitsOfCeilings compares the limits of a ceiling with the flags of the systems it is
// compared with.
func TestLimitsOfCeilings(t *testing.T) {
	for _, tc := range []struct {
		rate     string
		replicas int
		qps      float32
		burst    int
	}{
		{result.RateDefault, 1, 20, 30}, {result.RateDefault, 4, 80, 120}, {result.RateEqual, 1, 20, 30}, {result.RateHigh, 1, 0, 0},
	} {
		if qps, burst := limits(result.System{Kind: result.Ceiling, Replicas: tc.replicas, Rate: tc.rate}); qps != tc.qps || burst != tc.burst {
			t.Errorf("%s of %d: %v and %d, want %v and %d", tc.rate, tc.replicas, qps, burst, tc.qps, tc.burst)
		}
	}
}

func TestRateFlags(t *testing.T) {
	for _, tc := range []struct {
		rate  string
		fleet bool
		want  string
	}{
		{result.RateDefault, true, ""},
		{result.RateEqual, false, "--kube-api-qps=20 --kube-api-burst=30"},
		{result.RateEqual, true, "--kube-api-qps=20 --kube-api-burst=30 --share-kube-api-limits"},
		{result.RateHigh, false, "--kube-api-qps=1000 --kube-api-burst=2000"},
		{result.RateHigh, true, "--kube-api-qps=1000 --kube-api-burst=2000"},
	} {
		if got := strings.Join(system.RateFlags(tc.rate, tc.fleet), " "); got != tc.want {
			t.Errorf("%s, fleet %v: %q, want %q", tc.rate, tc.fleet, got, tc.want)
		}
	}
}

// full returns a run with all figures.
func full() result.Run {
	return result.Run{
		Scenario: "basic", System: result.System{Kind: result.Stock, Replicas: 1}, Bound: "latency", Seconds: 1, Objects: 1,
		Phases: []result.Phase{{Name: "create", Seconds: 1}}, Servers: make([]result.Process, 2), LeaseWrites: new(int64(1)), RequestsByAll: new(int64(1)),
		Queue: &result.Quantile{}, Reconcile: &result.Quantile{}, Latency: &result.Quantile{},
		Processes: []result.Process{{
			Name: "stock", RSS: 1, PeakRSS: 2, StartCPU: new(1.0), StartReceived: new(int64(1)), Received: new(int64(1)), Sent: new(int64(1)),
			Heap: new(uint64(1)), Watches: new(1), Goroutines: new(1),
		}},
	}
}

// TestCompleteCeiling has a run without controllers.
func TestCompleteCeiling(t *testing.T) {
	r := full()
	r.System.Kind, r.Processes, r.LeaseWrites, r.Queue, r.Reconcile, r.Latency = result.Ceiling, nil, nil, nil, nil, nil
	if err := complete(r); err != nil {
		t.Error(err)
	}
	r.RequestsByAll = nil
	if err := complete(r); err == nil || !strings.Contains(err.Error(), "requests") {
		t.Errorf("without requests: %v", err)
	}
}

// TestComplete removes one figure at a time from a run.
func TestComplete(t *testing.T) {
	if err := complete(full()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*result.Run){
		"bound": func(r *result.Run) { r.Bound = "" }, "servers": func(r *result.Run) { r.Servers = nil },
		"Lease writes": func(r *result.Run) { r.LeaseWrites = nil }, "latency": func(r *result.Run) { r.Latency = nil },
		"times in queues": func(r *result.Run) { r.Queue = nil }, "phases": func(r *result.Run) { r.Phases = nil },
		"each process": func(r *result.Run) { r.Processes = nil }, "memory": func(r *result.Run) { r.Processes[0].PeakRSS = 0 },
		"bytes": func(r *result.Run) { r.Processes[0].Received = nil }, "heap": func(r *result.Run) { r.Processes[0].Heap = nil },
		"watches": func(r *result.Run) { r.Processes[0].Watches = nil }, "requests": func(r *result.Run) { r.RequestsByAll = nil },
	} {
		r := full()
		spoil(&r)
		if err := complete(r); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

func TestEstimate(t *testing.T) {
	e := estimate{}
	stock, fleet := job{scenario: "basic"}, job{scenario: "basic", system: result.System{Kind: result.Fleet, Replicas: 2}}
	e.took(stock, 10*time.Second)
	if got := e.left([]job{stock, fleet, stock}); got != 20*time.Second+unknown {
		t.Errorf("left %v, want 20s and one unknown", got)
	}
}

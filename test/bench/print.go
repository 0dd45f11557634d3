package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flotilla-kube/flotilla/test/bench/result"
	"github.com/flotilla-kube/flotilla/test/bench/scenario"
	"github.com/flotilla-kube/flotilla/test/bench/system"
)

func megabytes(n uint64) string { return fmt.Sprintf("%.0f MB", float64(n)/1e6) }

// nameOf returns the system with the state of its feature gate.
func nameOf(s result.System) string {
	gate := "off"
	if s.Gate {
		gate = "on"
	}
	return fmt.Sprintf("%s, gate %s", system.Name(s), gate)
}

// line returns a run's main figures for humans.
func line(r result.Run) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s", r.Scenario)
	out.WriteString(sizes(r.Params))
	fmt.Fprintf(&out, ", round %d, %s, rate %s: ", r.Round, nameOf(r.System), r.System.Rate)
	if r.Failed != "" {
		return out.String() + "FAILED " + r.Failed
	}
	fmt.Fprintf(&out, "%.1f s", r.Seconds)
	for i, p := range r.Phases {
		fmt.Fprintf(&out, "%s%s %.1f", []string{" (", ", "}[min(i, 1)], p.Name, p.Seconds)
	}
	if len(r.Phases) > 0 {
		out.WriteString(")")
	}
	if r.System.Kind == result.Ceiling {
		fmt.Fprintf(&out, "\n    %d requests, bound by %s", value(r.RequestsByAll), r.Bound)
		return out.String()
	}
	cpu, most, rss, heap, start := 0.0, 0.0, uint64(0), uint64(0), 0.0
	received, startReceived, watches := int64(0), int64(0), 0
	for _, p := range r.Processes {
		cpu, most, rss = cpu+p.CPU, max(most, p.CPU), max(rss, p.RSS)
		heap, start = max(heap, value(p.Heap)), start+value(p.StartCPU)
		received, startReceived, watches = received+value(p.Received), startReceived+value(p.StartReceived), watches+value(p.Watches)
	}
	fmt.Fprintf(&out, "\n    CPU %.2f s (most %.2f), start CPU %.1f s, RSS %s and heap %s at most, received %.1f MB (start %.1f MB), %d watches",
		cpu, most, start, megabytes(rss), megabytes(heap), float64(received)/1e6, float64(startReceived)/1e6, watches)
	if spread := namespacesOf(r); len(spread) > 0 {
		fmt.Fprintf(&out, ", namespaces %v", spread)
	}
	if r.Latency != nil {
		fmt.Fprintf(&out, ", latency p50 %.2f s p99 %.2f s", r.Latency.P50, r.Latency.P99)
	}
	if r.LongestGap != nil {
		fmt.Fprintf(&out, ", longest gap %.1f s", *r.LongestGap)
	}
	fmt.Fprintf(&out, ", %d Lease writes, bound by %s", value(r.LeaseWrites), r.Bound)
	return out.String()
}

// sizes returns " name=value" of each size, by name.
func sizes(params map[string]int) string {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(params)) {
		text += fmt.Sprintf(" %s=%d", name, params[name])
	}
	return text
}

// namespacesOf returns how many namespaces each member has.
func namespacesOf(r result.Run) []int {
	var all []int
	for _, p := range r.Processes {
		if p.Namespaces != nil {
			all = append(all, *p.Namespaces)
		}
	}
	return all
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// leaseSeconds is longer than any Lease goes without a renewal.
const leaseSeconds = 5

// complete returns an error that names the figures that a run should have and lacks.
func complete(r result.Run) error {
	var missing []error
	want := func(there bool, what string) {
		if !there {
			missing = append(missing, fmt.Errorf("%s of %s has no %s", r.Scenario, system.Name(r.System), what))
		}
	}
	busy := !quietScenario(r.Scenario)
	want(r.Seconds > 0, "seconds")
	want(r.Bound != "", "bound")
	want(len(r.Servers) == 2, "servers")
	want(r.RequestsByAll != nil && *r.RequestsByAll > 0, "requests")
	want(!busy || r.Objects > 0, "objects")
	want(!busy || len(r.Phases) > 0, "phases")
	if r.System.Kind == result.Ceiling {
		return errors.Join(missing...) // it has no controllers
	}
	want(r.LeaseWrites != nil && (*r.LeaseWrites > 0 || r.Seconds < leaseSeconds), "Lease writes")
	want(!busy || r.Queue != nil, "times in queues")
	want(!busy || r.Reconcile != nil, "times of reconciles")
	want(!busy || slices.Contains([]string{scenario.Burst, scenario.Owners, scenario.Arrivals}, r.Scenario) || r.Latency != nil, "latency")
	want(busy || len(r.Kinds) > 0, "kinds")
	processes := r.System.Replicas
	if r.Scenario == scenario.Chaos && r.System.Kind == result.Stock {
		processes = 2
	}
	want(len(r.Processes) == processes, "figures of each process")
	live := 0
	for _, p := range r.Processes {
		want(p.RSS > 0 && p.PeakRSS >= p.RSS, "memory of "+p.Name)
		want(value(p.StartCPU) > 0, "start CPU of "+p.Name)
		want(value(p.StartReceived) > 0 && p.Received != nil && p.Sent != nil, "bytes of "+p.Name)
		if p.Heap != nil {
			live++
			want(value(p.Watches) > 0 && value(p.Goroutines) > 0, "watches and goroutines of "+p.Name)
		}
	}
	if r.Scenario == scenario.Chaos {
		processes--
	}
	want(live == processes, "heap of each process")
	return errors.Join(missing...)
}

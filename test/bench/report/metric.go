package report

import (
	"slices"

	"github.com/flotilla-kube/flotilla/test/bench/result"
)

// Metric is a figure of one run.
type Metric struct {
	Title  string
	Format Format
	// Of returns the figure in the format's base unit, and whether it was measured.
	Of func(result.Run) (float64, bool)
}

// windows are the scenarios that observe an idle fleet for a fixed time: their time means nothing.
var windows = []string{"steady", idleCost}

// idleCost is the scenario on a cluster without objects: a process's memory there is its memory
// when empty.
const idleCost = "idle-cost"

func isWindow(scenario string) bool { return slices.Contains(windows, scenario) }

// The figures of a run. CPU is for the time of the run or, in scenarios with a fixed time, per
// second.
var (
	Time          = Metric{"time", Seconds, func(r result.Run) (float64, bool) { return r.Seconds, r.Seconds > 0 && !isWindow(r.Scenario) }}
	Speed         = Metric{"throughput", Plain, func(r result.Run) (float64, bool) { return inverse(Time.Of(r)) }}
	CPU           = Metric{"CPU, sum", Seconds, overTime(sum(every, cpu))}
	CPUObject     = Metric{"CPU per object", Seconds, perObject(sum(every, cpu))}
	CPULargest    = Metric{"CPU, largest", Seconds, overTime(largest(every, cpu))}
	CPUBalance    = Metric{"CPU, max/mean", Plain, balance(cpu)}
	StartCPU      = Metric{"CPU to start, largest", Seconds, largest(every, startCPU)}
	ServerCPU     = Metric{"API server CPU", Seconds, overTime(server("kube-apiserver"))}
	EtcdCPU       = Metric{"etcd CPU", Seconds, overTime(server("etcd"))}
	Memory        = Metric{"memory, largest", Bytes, largest(every, rss)}
	MemorySum     = Metric{"memory, sum", Bytes, sum(every, rss)}
	MemoryPeak    = Metric{"memory, largest peak", Bytes, largest(every, peak)}
	MemoryEven    = Metric{"memory, max/mean", Plain, balance(rss)}
	Heap          = Metric{"live heap, largest", Bytes, largest(every, heap)}
	HeapSum       = Metric{"live heap, sum", Bytes, sum(every, heap)}
	Beyond        = Metric{"beyond empty, largest without groups", Bytes, largest(ranges, beyond)}
	PeakOne       = Metric{"peak beyond empty, largest", Bytes, largest(every, peakBeyond)}
	PeakSum       = Metric{"peaks beyond empty, sum", Bytes, sum(every, peakBeyond)}
	PeakEven      = Metric{"peaks beyond empty, max/mean", Plain, balance(peakBeyond)}
	BeyondHeap    = Metric{"live heap beyond empty, largest without groups", Bytes, largest(ranges, beyondHeap)}
	BeyondOf      = Metric{"beyond empty, largest with groups", Bytes, largest(groups, beyond)}
	BeyondLight   = Metric{"beyond empty, largest with light groups at most", Bytes, largest(light, beyond)}
	Received      = Metric{"received, sum", Bytes, sum(every, received)}
	ReceivedOne   = Metric{"received, largest without groups", Bytes, largest(ranges, received)}
	ReceivedLight = Metric{"received, largest with light groups at most", Bytes, largest(light, received)}
	ReceivedOf    = Metric{"received, largest with groups", Bytes, largest(groups, received)}
	ReceivedMax   = Metric{"received, max/mean", Plain, balance(received)}
	LeaseWrites   = Metric{"Lease writes", PerSecond, func(r result.Run) (float64, bool) {
		if r.LeaseWrites == nil || r.Seconds <= 0 {
			return 0, false
		}
		return float64(*r.LeaseWrites) / r.Seconds, true
	}}
	Requests   = Metric{"mutating requests", Number, func(r result.Run) (float64, bool) { return number(r.RequestsByAll) }}
	QueueP50   = Metric{"queue p50", Seconds, p50(func(r result.Run) *result.Quantile { return r.Queue })}
	QueueP99   = Metric{"queue p99", Seconds, p99(func(r result.Run) *result.Quantile { return r.Queue })}
	LoopP99    = Metric{"reconcile p99", Seconds, p99(func(r result.Run) *result.Quantile { return r.Reconcile })}
	LongestGap = Metric{"longest gap", Seconds, func(r result.Run) (float64, bool) { return number(r.LongestGap) }}
	LatencyP50 = Metric{"latency p50", Seconds, p50(func(r result.Run) *result.Quantile { return r.Latency })}
	LatencyP99 = Metric{"latency p99", Seconds, p99(func(r result.Run) *result.Quantile { return r.Latency })}
)

// figure is a figure of a process.
type figure func(result.Process) (float64, bool)

func cpu(p result.Process) (float64, bool)  { return p.CPU, true }
func rss(p result.Process) (float64, bool)  { return float64(p.RSS), p.RSS > 0 }
func peak(p result.Process) (float64, bool) { return float64(p.PeakRSS), p.PeakRSS > 0 }
func heap(p result.Process) (float64, bool) { return number(p.Heap) }

func startCPU(p result.Process) (float64, bool) { return number(p.StartCPU) }

// received is what came since the process began, because an owner that was there before the work
// had to list what it owns, too.
func received(p result.Process) (float64, bool) {
	start, known := number(p.StartReceived)
	during, ok := number(p.Received)
	return start + during, known && ok
}

func beyond(p result.Process) (float64, bool) {
	empty, ok := number(p.EmptyRSS)
	return float64(p.RSS) - empty, ok && p.RSS > 0
}

func peakBeyond(p result.Process) (float64, bool) {
	empty, ok := number(p.EmptyRSS)
	return float64(p.PeakRSS) - empty, ok && p.PeakRSS > 0
}

func beyondHeap(p result.Process) (float64, bool) {
	full, known := number(p.Heap)
	empty, ok := number(p.EmptyHeap)
	return full - empty, known && ok
}

func number[N int | int64 | uint64 | float64](n *N) (float64, bool) {
	if n == nil {
		return 0, false
	}
	return float64(*n), true
}

// choice picks processes of a run; false if the right ones are unknown.
type choice func(result.Run) ([]result.Process, bool)

func every(r result.Run) ([]result.Process, bool) { return r.Processes, true }

// ranges picks the members that hold no group of cluster-scoped controllers. Stock is compared
// whole.
func ranges(r result.Run) ([]result.Process, bool) {
	return members(r, func(p result.Process) bool { return len(p.Groups) == 0 })
}

// lightGroups are the groups that do not cache something of every pod. In a fleet with no more
// members than groups, each member has one.
var lightGroups = []string{"certificates", "policy"}

// light picks the members that hold no other groups, and stock.
func light(r result.Run) ([]result.Process, bool) {
	return members(r, func(p result.Process) bool {
		return !slices.ContainsFunc(p.Groups, func(group string) bool { return !slices.Contains(lightGroups, group) })
	})
}

// groups picks the members that hold a group, and stock.
func groups(r result.Run) ([]result.Process, bool) {
	return members(r, func(p result.Process) bool { return len(p.Groups) > 0 })
}

func members(r result.Run, wanted func(result.Process) bool) ([]result.Process, bool) {
	if r.System.Kind != result.Fleet {
		return r.Processes, true
	}
	var picked []result.Process
	for _, p := range r.Processes {
		if p.Shards == nil {
			return nil, false
		}
		if wanted(p) {
			picked = append(picked, p)
		}
	}
	return picked, true
}

// all returns the figure of each picked process. It returns none if one of them lacks it, because a
// sum or maximum of the others would be too small.
func all(c choice, f figure, r result.Run) []float64 {
	processes, ok := c(r)
	if !ok {
		return nil
	}
	var values []float64
	for _, p := range processes {
		v, ok := f(p)
		if !ok {
			return nil
		}
		values = append(values, v)
	}
	return values
}

func sum(c choice, f figure) func(result.Run) (float64, bool) {
	return func(r result.Run) (total float64, ok bool) {
		values := all(c, f, r)
		for _, v := range values {
			total += v
		}
		return total, len(values) > 0
	}
}

func largest(c choice, f figure) func(result.Run) (float64, bool) {
	return func(r result.Run) (float64, bool) {
		values := all(c, f, r)
		if len(values) == 0 {
			return 0, false
		}
		return slices.Max(values), true
	}
}

func balance(f figure) func(result.Run) (float64, bool) {
	return func(r result.Run) (float64, bool) {
		total, ok := sum(every, f)(r)
		if most, _ := largest(every, f)(r); ok && total > 0 && len(r.Processes) > 1 {
			return most * float64(len(r.Processes)) / total, true
		}
		return 0, false
	}
}

func server(name string) func(result.Run) (float64, bool) {
	return func(r result.Run) (float64, bool) {
		for _, p := range r.Servers {
			if p.Name == name {
				return p.CPU, true
			}
		}
		return 0, false
	}
}

// overTime divides the figures of a fixed time by that time, so that different times can be
// compared.
func overTime(f func(result.Run) (float64, bool)) func(result.Run) (float64, bool) {
	return func(r result.Run) (float64, bool) {
		v, ok := f(r)
		if !isWindow(r.Scenario) {
			return v, ok
		}
		return v / max(r.Seconds, 1e-9), ok && r.Seconds > 0
	}
}

func perObject(f func(result.Run) (float64, bool)) func(result.Run) (float64, bool) {
	return func(r result.Run) (float64, bool) {
		v, ok := f(r)
		if r.Objects <= 0 || isWindow(r.Scenario) {
			return 0, false
		}
		return v / float64(r.Objects), ok
	}
}

func inverse(v float64, ok bool) (float64, bool) {
	if !ok || v <= 0 {
		return 0, false
	}
	return 1 / v, true
}

func p50(of func(result.Run) *result.Quantile) func(result.Run) (float64, bool) {
	return func(r result.Run) (float64, bool) {
		if q := of(r); q != nil && q.Count > 0 {
			return q.P50, true
		}
		return 0, false
	}
}

func p99(of func(result.Run) *result.Quantile) func(result.Run) (float64, bool) {
	return func(r result.Run) (float64, bool) {
		if q := of(r); q != nil && q.Count > 0 {
			return q.P99, true
		}
		return 0, false
	}
}

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/test/bench/measure"
)

// Names of the API server's counters.
const (
	requestsTotal = "apiserver_request_total"
	watchEvents   = "apiserver_watch_events_total"
	watchBytes    = "apiserver_watch_events_sizes_sum"
	sentBytes     = "apiserver_response_sizes_sum"
)

// snapshot is the resource usage up to one moment.
type snapshot struct {
	at      int64
	crews   map[string]usage
	servers map[string]time.Duration
	machine measure.Times
	metrics measure.Metrics
}

// look reads the usage. Reading loads the API server, so the first of two looks reads the server's
// metrics before anything else, and the last one after.
func (s *scenario) look(ctx context.Context, first bool) (snapshot, error) {
	var shot snapshot
	steps := []func() error{
		func() error { return s.scrapeServer(ctx, &shot) },
		func() (err error) {
			shot.crews, err = s.crews.usages(ctx, first)
			return err
		},
		func() error { return s.lookAtMachine(&shot) },
	}
	if !first {
		slices.Reverse(steps)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return shot, err
		}
	}
	return shot, nil
}

func (s *scenario) lookAtMachine(shot *snapshot) (err error) {
	shot.at, shot.servers = monotonic(), map[string]time.Duration{}
	for _, name := range []string{"kube-apiserver", "etcd"} {
		pid, err := s.plane.ServerPid(name)
		if err != nil {
			return err
		}
		if shot.servers[name], err = measure.CPU(pid); err != nil {
			return err
		}
	}
	shot.machine, err = measure.MachineTimes()
	return err
}

func (s *scenario) scrapeServer(ctx context.Context, shot *snapshot) error {
	body, err := s.client.Discovery().RESTClient().Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	shot.metrics, err = measure.ParseMetrics(body, requestsTotal, watchEvents, watchBytes, sentBytes)
	return err
}

// figures are what an idle fleet costs, per second unless stated otherwise.
type figures struct {
	Seconds float64 `json:"seconds"`
	// Writes counts writes of Leases, Events the events sent to watches of Leases, and EventBytes
	// their size before encryption.
	Writes     float64 `json:"leaseWritesPerSecond"`
	Events     float64 `json:"watchEventsPerSecond"`
	EventBytes float64 `json:"watchEventBytesPerSecond"`
	// Received and Sent are bytes on the members' connections.
	Received float64 `json:"receivedBytesPerSecond"`
	Sent     float64 `json:"sentBytesPerSecond"`
	// MemberCPU is the mean over all members, SoloCPU that of the member with a process of its own,
	// in ms per second.
	MemberCPU float64 `json:"memberCPUMillisecondsPerSecond"`
	SoloCPU   float64 `json:"soloCPUMillisecondsPerSecond"`
	ServerCPU float64 `json:"apiServerCPUMillisecondsPerSecond"`
	EtcdCPU   float64 `json:"etcdCPUMillisecondsPerSecond"`
	// Heap is a member's mean heap in use. SoloHeap and RSS are those of the member by itself. In
	// bytes.
	Heap     float64 `json:"memberHeapBytes"`
	RSS      float64 `json:"memberRSSBytes"`
	SoloHeap float64 `json:"soloHeapBytes"`
	SoloRSS  float64 `json:"soloRSSBytes"`
	// Goroutines are those of the member by itself.
	Goroutines int `json:"soloGoroutines"`
	// MachineIdle is the machine's idle share.
	MachineIdle float64 `json:"machineIdle"`
}

func (f figures) String() string {
	return fmt.Sprintf("%.1f writes/s, %.0f events/s, %.2f MB/s to the members; CPU %.1f ms/s a member (%.1f by itself), API server %.0f, etcd %.0f; heap %.1f MB a member (%.1f, RSS %.0f by itself); machine idle %.0f %%",
		f.Writes, f.Events, f.Received/1e6, f.MemberCPU, f.SoloCPU, f.ServerCPU, f.EtcdCPU, f.Heap/1e6, f.SoloHeap/1e6, f.SoloRSS/1e6, 100*f.MachineIdle)
}

func (s *scenario) figures(before, after snapshot) figures {
	seconds := between(before.at, after.at).Seconds()
	of := func(name string, keep func(map[string]string) bool) float64 {
		return (after.metrics.Sum(name, keep) - before.metrics.Sum(name, keep)) / seconds
	}
	isLease := func(l map[string]string) bool { return l["resource"] == "leases" }
	f := figures{
		Seconds: seconds,
		Writes: of(requestsTotal, func(l map[string]string) bool {
			return isLease(l) && slices.Contains([]string{"PUT", "POST", "PATCH", "DELETE"}, l["verb"])
		}),
		Events: of(watchEvents, isLease), EventBytes: of(watchBytes, isLease),
		MachineIdle: measure.IdleShare(before.machine, after.machine),
	}
	ms := func(from, to time.Duration) float64 { return float64((to - from).Microseconds()) / 1000 / seconds }
	f.ServerCPU = ms(before.servers["kube-apiserver"], after.servers["kube-apiserver"])
	f.EtcdCPU = ms(before.servers["etcd"], after.servers["etcd"])
	n := float64(s.result.Members)
	for name, u := range after.crews {
		old := before.crews[name]
		f.MemberCPU += ms(old.cpu, u.cpu) / n
		f.Heap += float64(u.status.Heap) / n
		f.RSS += float64(u.memory.RSS) / n
		f.Received += float64(u.status.Received-old.status.Received) / seconds
		f.Sent += float64(u.status.Sent-old.status.Sent) / seconds
		if name == "crew-solo" {
			f.SoloCPU, f.SoloHeap, f.SoloRSS, f.Goroutines = ms(old.cpu, u.cpu), float64(u.status.Heap), float64(u.memory.RSS), u.status.Goroutines
		}
	}
	return f
}

// reads are requests that read all Leases.
type reads struct {
	Count       int            `json:"count"`
	MostASecond int            `json:"mostInASecond"`
	ByKind      map[string]int `json:"byKind,omitempty"`
	// Seconds counts them by second, from the first.
	Seconds []int `json:"seconds,omitempty"`
}

func (r reads) String() string {
	return fmt.Sprintf("%d requests for all Leases (%v), %d at most within a second, by second %v", r.Count, r.ByKind, r.MostASecond, r.Seconds)
}

func readsOf(messages []message) reads {
	r := reads{Count: len(messages), ByKind: map[string]int{}}
	slices.SortFunc(messages, func(a, b message) int { return int(a.At - b.At) })
	for i, m := range messages {
		r.ByKind[m.Text]++
		n := 0
		for ; i+n < len(messages) && messages[i+n].At-m.At < int64(time.Second); n++ {
		}
		r.MostASecond = max(r.MostASecond, n)
		second := int((m.At - messages[0].At) / int64(time.Second))
		for len(r.Seconds) <= second {
			r.Seconds = append(r.Seconds, 0)
		}
		r.Seconds[second]++
	}
	return r
}

// load returns the machine's load average over one, five and fifteen minutes.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

package system

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/test/bench/measure"
	"github.com/flotilla-kube/flotilla/test/bench/result"
)

// Names of histograms and counters that both systems have, and of the members' gauge of what they
// hold.
const (
	queueSeconds     = "workqueue_queue_duration_seconds"
	reconcileSeconds = "workqueue_work_duration_seconds"
	requestsTotal    = "rest_client_requests_total"
	goroutines       = "go_goroutines"
	shardOwned       = "flotilla_shard_owned"
)

// Sample is what a process has used up to one moment.
type Sample struct {
	CPU              time.Duration
	Memory           measure.Memory
	Received, Sent   int64
	Queue, Reconcile measure.Histogram
	// Requests are those that write.
	Requests   int64
	Goroutines int
	// Shards are those it holds, by ring.
	Shards map[string][]string
}

// Started records what the processes have used for their start, if more than that comes before the
// work.
func (r *Running) Started(ctx context.Context) (err error) {
	r.started, err = r.sample(ctx, r.used)
	return err
}

// Begin samples every process before the work, and End after it. CPU and bytes are read as close to
// the work as possible, to exclude the cost of the other samples. For a killed process End returns
// its last sample.
func (r *Running) Begin(ctx context.Context) (map[string]Sample, error) {
	return r.sample(ctx, r.scrape, r.used)
}

// End is described at Begin.
func (r *Running) End(ctx context.Context) (map[string]Sample, error) {
	return r.sample(ctx, r.used, r.scrape)
}

func (r *Running) sample(ctx context.Context, steps ...func(context.Context, *Process, *Sample) error) (map[string]Sample, error) {
	samples := map[string]Sample{}
	for _, step := range steps {
		for _, p := range r.processes {
			s := samples[p.Name]
			if p.last != nil {
				s = *p.last
			} else if err := step(ctx, p, &s); err != nil {
				return nil, err
			}
			samples[p.Name] = s
		}
	}
	return samples, nil
}

func (r *Running) sampleOf(ctx context.Context, p *Process) (s Sample, err error) {
	if err := r.used(ctx, p, &s); err != nil {
		return s, err
	}
	return s, r.scrape(ctx, p, &s)
}

func (r *Running) used(_ context.Context, p *Process, s *Sample) (err error) {
	s.Received, s.Sent = p.proxy.Counts()
	if s.CPU, err = measure.CPU(p.process.Pid()); err == nil {
		s.Memory, err = measure.MemoryOf(p.process.Pid())
	}
	return err
}

func (r *Running) scrape(ctx context.Context, p *Process, s *Sample) error {
	body, err := r.open(ctx, p.process.URL+"/metrics")
	if err != nil {
		return err
	}
	defer body.Close()
	m, err := measure.ParseMetrics(body, queueSeconds+"_bucket", reconcileSeconds+"_bucket", requestsTotal, goroutines, shardOwned)
	if err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	s.Queue, s.Reconcile = m.Histogram(queueSeconds), m.Histogram(reconcileSeconds)
	s.Requests = int64(m.Sum(requestsTotal, func(labels map[string]string) bool {
		return slices.Contains([]string{"POST", "PUT", "PATCH", "DELETE"}, labels["method"])
	}))
	s.Goroutines = int(m.Sum(goroutines, nil))
	s.Shards = map[string][]string{}
	for _, owned := range m[shardOwned] {
		if owned.Value == 1 {
			s.Shards[owned.Labels["ring"]] = append(s.Shards[owned.Labels["ring"]], owned.Labels["shard"])
		}
	}
	return nil
}

// Heap returns the live heap of a process, after a collection that it starts.
func (r *Running) Heap(ctx context.Context, p *Process) (uint64, error) {
	text, err := r.get(ctx, p.process.URL+"/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	return measure.ParseHeap(text)
}

// Figures are what the processes used between two samples, the first of which marks the beginning
// of the work. It starts a heap collection, and so comes last.
func (r *Running) Figures(ctx context.Context, before, after map[string]Sample) ([]result.Process, error) {
	clients, err := r.clients()
	if err != nil {
		return nil, err
	}
	var all []result.Process
	for _, p := range r.processes {
		b, a := before[p.Name], after[p.Name]
		s, found := r.started[p.Name]
		if !found {
			s = b
		}
		f := result.Process{
			Name: p.Name, CPU: (a.CPU - b.CPU).Seconds(), StartCPU: new(s.CPU.Seconds()), RSS: a.Memory.RSS, PeakRSS: a.Memory.Peak,
			StartReceived: new(s.Received), Received: new(a.Received - b.Received), Sent: new(a.Sent - b.Sent),
		}
		if r.config.fleet() {
			f.Shards = map[string]int{}
			for ring, shards := range a.Shards {
				f.Shards[ring] = len(shards)
			}
			f.Groups = slices.Sorted(slices.Values(a.Shards["cluster"]))
		}
		if p.last == nil {
			heap, err := r.Heap(ctx, p)
			if err != nil {
				return nil, err
			}
			open := clients[p.source].Watches
			maps.DeleteFunc(open, func(_ string, n int) bool { return n == 0 })
			f.Heap, f.Goroutines, f.Watches, f.Kinds = &heap, new(a.Goroutines), new(clients[p.source].Open()), open
		}
		all = append(all, f)
	}
	return all, nil
}

// Quantiles are those of all processes' queues and reconciles between two samples; nil without any.
func Quantiles(before, after map[string]Sample) (queue, reconcile *result.Quantile) {
	q, w := measure.Histogram{}, measure.Histogram{}
	for name, a := range after {
		q.Add(a.Queue.Since(before[name].Queue))
		w.Add(a.Reconcile.Since(before[name].Reconcile))
	}
	return quantile(q), quantile(w)
}

func quantile(h measure.Histogram) *result.Quantile {
	p50, p99 := h.Quantile(0.5), h.Quantile(0.99)
	if math.IsNaN(p50) || math.IsNaN(p99) {
		return nil
	}
	return &result.Quantile{P50: p50, P99: p99, Count: h.Count()}
}

// Requests are the mutating requests of all processes between two samples.
func Requests(before, after map[string]Sample) int64 {
	n := int64(0)
	for name, a := range after {
		n += a.Requests - before[name].Requests
	}
	return n
}

// LeaseWrites are the writes of Leases by all processes since they began.
func (r *Running) LeaseWrites() (int64, error) {
	clients, err := r.clients()
	n := int64(0)
	for _, c := range clients {
		n += c.LeaseWrites
	}
	return n, err
}

// clients are the audit log's figures for the processes, by address.
func (r *Running) clients() (map[string]measure.Client, error) {
	log, err := r.AuditLog()
	if err != nil {
		return nil, err
	}
	defer log.Close()
	all, err := measure.Audit(log)
	maps.DeleteFunc(all, func(source string, _ measure.Client) bool {
		return !slices.ContainsFunc(r.processes, func(p *Process) bool { return p.source == source })
	})
	return all, err
}

func (r *Running) get(ctx context.Context, url string) (string, error) {
	body, err := r.open(ctx, url)
	if err != nil {
		return "", err
	}
	defer body.Close()
	var text strings.Builder
	_, err = io.Copy(&text, body)
	return text.String(), err
}

// open opens the content of a URL.
func (r *Running) open(ctx context.Context, url string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := r.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("%s: %s", url, response.Status), response.Body.Close())
	}
	return response.Body, nil
}

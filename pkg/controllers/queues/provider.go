package queues

import (
	"sync"

	"k8s.io/client-go/util/workqueue"
	k8smetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/flotilla-kube/flotilla/internal/faults"
)

// stock returns the options of a series that component-base has for every component's workqueues.
func stock(name, help string) *k8smetrics.GaugeOpts {
	return &k8smetrics.GaugeOpts{Subsystem: "workqueue", Name: name, StabilityLevel: k8smetrics.BETA, Help: help}
}

func stockHistogram(name, help string) *k8smetrics.HistogramVec {
	return k8smetrics.NewHistogramVec(&k8smetrics.HistogramOpts{
		Subsystem: "workqueue", Name: name, StabilityLevel: k8smetrics.BETA, Help: help, Buckets: k8smetrics.ExponentialBuckets(10e-9, 10, 10),
	}, byName)
}

func stockCounter(name, help string) *k8smetrics.CounterVec {
	return k8smetrics.NewCounterVec(&k8smetrics.CounterOpts{
		Subsystem: "workqueue", Name: name, StabilityLevel: k8smetrics.BETA, Help: help,
	}, byName)
}

var (
	byName = []string{"name"}

	depth        = k8smetrics.NewGaugeVec(stock("depth", "Current depth of workqueue"), byName)
	adds         = stockCounter("adds_total", "Total number of adds handled by workqueue")
	latency      = stockHistogram("queue_duration_seconds", "How long in seconds an item stays in workqueue before being requested.")
	workDuration = stockHistogram("work_duration_seconds", "How long in seconds processing an item from workqueue takes.")
	retries      = stockCounter("retries_total", "Total number of retries handled by workqueue")
)

// register puts the stock series on /metrics. It waits for the first queue: component-base must
// have its feature gates by then. If this package is not the provider, it is never called, and does
// not interfere with the one that is.
var register = sync.OnceFunc(func() {
	legacyregistry.MustRegister(depth, adds, latency, workDuration, retries)
	legacyregistry.CustomMustRegister(works)
})

var registerShards = sync.OnceFunc(func() { legacyregistry.MustRegister(waited, worked) })

func init() { workqueue.SetProvider(provider{}) }

// provider makes the metrics of a queue. client-go asks for them one after the other on the
// goroutine that makes the queue.
type provider struct{}

var _ workqueue.MetricsProvider = provider{}

// NewDepthMetric implements workqueue.MetricsProvider.
func (provider) NewDepthMetric(name string) workqueue.GaugeMetric {
	register()
	d := &depthPart{gauge: depth.WithLabelValues(name), work: works.join(name)}
	belong(d)
	return d
}

// NewAddsMetric implements workqueue.MetricsProvider.
func (provider) NewAddsMetric(name string) workqueue.CounterMetric {
	register()
	return adds.WithLabelValues(name)
}

// NewLatencyMetric implements workqueue.MetricsProvider.
func (provider) NewLatencyMetric(name string) workqueue.HistogramMetric {
	register()
	return waiting{both(latency.WithLabelValues(name), func(g *Group) k8smetrics.ObserverMetric { return g.waited })}
}

// NewWorkDurationMetric implements workqueue.MetricsProvider.
func (provider) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	register()
	return ending{both(workDuration.WithLabelValues(name), func(g *Group) k8smetrics.ObserverMetric { return g.worked }), works.join(name)}
}

// NewUnfinishedWorkSecondsMetric implements workqueue.MetricsProvider.
func (provider) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return ticker{}
}

// NewLongestRunningProcessorSecondsMetric implements workqueue.MetricsProvider.
func (provider) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return ticker{}
}

// NewRetriesMetric implements workqueue.MetricsProvider.
func (provider) NewRetriesMetric(name string) workqueue.CounterMetric {
	register()
	return counting{retries.WithLabelValues(name)}
}

func belong(p part) {
	if g := groups.current(); g != nil {
		g.add(p)
	}
}

// both observes in the stock histogram, and in the histogram of the queue's shard if it has one.
func both(stock k8smetrics.ObserverMetric, of func(*Group) k8smetrics.ObserverMetric) workqueue.HistogramMetric {
	g := groups.current()
	if g == nil || faults.Bare {
		return stock
	}
	return twice{stock, of(g)}
}

type twice struct{ first, second k8smetrics.ObserverMetric }

// Observe implements workqueue.HistogramMetric.
func (t twice) Observe(v float64) {
	t.first.Observe(v)
	t.second.Observe(v)
}

// ending observes how long an item took, and records that its work has ended.
type ending struct {
	workqueue.HistogramMetric
	work *work
}

// Observe implements workqueue.HistogramMetric.
func (e ending) Observe(seconds float64) {
	took[bucketOf(seconds)].Add(1)
	e.work.end(seconds)
	e.HistogramMetric.Observe(seconds)
}

package queues

import (
	"sync"

	k8smetrics "k8s.io/component-base/metrics"
)

// depthPart is how many items are in one queue; the gauge has those of all queues of a name.
type depthPart struct {
	gauge k8smetrics.GaugeMetric

	mu      sync.Mutex
	n       int
	dropped bool
}

// Inc implements workqueue.GaugeMetric.
func (d *depthPart) Inc() { d.move(1) }

// Dec implements workqueue.GaugeMetric.
func (d *depthPart) Dec() { d.move(-1) }

func (d *depthPart) move(by int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.dropped {
		d.n += by
		d.gauge.Add(float64(by))
	}
}

func (d *depthPart) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.dropped {
		d.dropped = true
		d.gauge.Add(-float64(d.n))
	}
}

// fold is a gauge of which every queue has a value of its own, and how the values of all queues of a name become one.
type fold struct {
	gauge *k8smetrics.GaugeVec
	with  func(a, b float64) float64

	mu     sync.Mutex
	values map[string]map[*foldPart]float64
}

var (
	unfinishedOf = &fold{gauge: unfinished, with: func(a, b float64) float64 { return a + b }, values: map[string]map[*foldPart]float64{}}
	longestOf    = &fold{gauge: longest, with: func(a, b float64) float64 { return max(a, b) }, values: map[string]map[*foldPart]float64{}}
)

// foldPart is the value of one queue.
type foldPart struct {
	of   *fold
	name string
}

func share(of *fold, name string) *foldPart {
	p := &foldPart{of, name}
	of.mu.Lock()
	if of.values[name] == nil {
		of.values[name] = map[*foldPart]float64{}
	}
	of.values[name][p] = 0
	of.writeLocked(name)
	of.mu.Unlock()
	belong(p)
	return p
}

// Set implements workqueue.SettableGaugeMetric. Every queue calls it twice a second, most of them with what it was.
func (p *foldPart) Set(v float64) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if was, counts := p.of.values[p.name][p]; counts && was != v {
		p.of.values[p.name][p] = v
		p.of.writeLocked(p.name)
	}
}

func (p *foldPart) drop() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	delete(p.of.values[p.name], p)
	p.of.writeLocked(p.name)
}

func (f *fold) writeLocked(name string) {
	all := 0.0
	for _, v := range f.values[name] {
		all = f.with(all, v)
	}
	f.gauge.WithLabelValues(name).Set(all)
}

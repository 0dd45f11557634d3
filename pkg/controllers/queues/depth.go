package queues

import (
	"sync"
	"sync/atomic"

	k8smetrics "k8s.io/component-base/metrics"
)

// queued counts the items of all queues.
var queued atomic.Int64

// Queued returns how many items wait in all queues of the process: the sum of workqueue_depth.
func Queued() int64 { return queued.Load() }

// depthPart is how many items are in one queue; the gauge has the items of all queues of a name. An
// item that leaves the queue is in work from then on.
type depthPart struct {
	gauge k8smetrics.GaugeMetric
	work  *work

	mu      sync.Mutex
	n       int
	dropped bool
}

// Inc implements workqueue.GaugeMetric.
func (d *depthPart) Inc() { d.work.add(); d.move(1) }

// Dec implements workqueue.GaugeMetric.
func (d *depthPart) Dec() { d.move(-1); d.work.begin() }

func (d *depthPart) move(by int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.dropped {
		d.n += by
		queued.Add(int64(by))
		d.gauge.Add(float64(by))
	}
}

func (d *depthPart) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.dropped {
		d.dropped = true
		queued.Add(-int64(d.n))
		d.gauge.Add(-float64(d.n))
	}
}

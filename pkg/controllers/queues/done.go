package queues

import (
	"slices"
	"sync/atomic"

	"k8s.io/client-go/util/workqueue"
)

// Done is the work of all queues of the process since it began. It only grows.
type Done struct {
	// Retries is how many items were put back, after an error or to be looked at again.
	Retries int64
	// Took counts the processed items by how long that took: index i has those of at most
	// [TookAtMost](i), and longer than index i-1.
	Took [len(tookBounds) + 1]int64
	// Waited counts them in the same way by how long they had waited in their queue.
	Waited [len(tookBounds) + 1]int64
}

// tookBounds are in seconds, three for each factor of ten.
var tookBounds = [...]float64{
	.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25, 50, 100,
}

// TookAtMost returns the upper bound of an index of Done.Took and Done.Waited, in seconds. The last
// index has no upper bound: for it, the lower one.
func TookAtMost(i int) float64 { return tookBounds[min(i, len(tookBounds)-1)] }

var (
	retried         atomic.Int64
	took, waitedFor [len(tookBounds) + 1]atomic.Int64
)

// WorkDone returns how much has been done up to now.
func WorkDone() Done {
	d := Done{Retries: retried.Load()}
	for i := range took {
		d.Took[i], d.Waited[i] = took[i].Load(), waitedFor[i].Load()
	}
	return d
}

// bucketOf returns the index of a number of seconds.
func bucketOf(seconds float64) int {
	i, _ := slices.BinarySearch(tookBounds[:], seconds)
	return i
}

// waiting observes how long an item has waited, also for the process as a whole.
type waiting struct{ workqueue.HistogramMetric }

// Observe implements workqueue.HistogramMetric.
func (w waiting) Observe(seconds float64) {
	waitedFor[bucketOf(seconds)].Add(1)
	w.HistogramMetric.Observe(seconds)
}

// counting counts the retries of one queue.
type counting struct{ counter }

type counter interface{ Inc() }

// Inc implements workqueue.CounterMetric.
func (c counting) Inc() {
	retried.Add(1)
	c.counter.Inc()
}

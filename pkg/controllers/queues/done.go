package queues

import (
	"slices"
	"sync/atomic"
)

// Done is how much work all queues of the process have had done since it began. It only grows.
type Done struct {
	// Retries is how many items were put back, after an error or to be looked at again.
	Retries int64
	// Took counts the items that were processed, by how long that took: those of index i at most
	// [TookAtMost](i), and longer than what is before.
	Took [len(tookBounds) + 1]int64
}

// tookBounds are in seconds, three for each factor of ten.
var tookBounds = [...]float64{
	.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25, 50, 100,
}

// TookAtMost returns the upper bound of an index of Done.Took, in seconds; of the last one, which
// has none, the lower.
func TookAtMost(i int) float64 { return tookBounds[min(i, len(tookBounds)-1)] }

var (
	retried atomic.Int64
	took    [len(tookBounds) + 1]atomic.Int64
)

// WorkDone returns how much has been done up to now.
func WorkDone() Done {
	d := Done{Retries: retried.Load()}
	for i := range took {
		d.Took[i] = took[i].Load()
	}
	return d
}

func tookSeconds(seconds float64) {
	i, _ := slices.BinarySearch(tookBounds[:], seconds)
	took[i].Add(1)
}

// counting counts the retries of one queue.
type counting struct{ counter }

type counter interface{ Inc() }

// Inc implements workqueue.CounterMetric.
func (c counting) Inc() {
	retried.Add(1)
	c.counter.Inc()
}

package queues

import (
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// TestWorkDone checks that items of the process's queues are counted by how long they took, and
// that retries are counted.
func TestWorkDone(t *testing.T) {
	before := WorkDone()
	q := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Microsecond, time.Microsecond),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "done"})
	defer q.ShutDown()
	for i := range 3 {
		q.Add("item")
		item, _ := q.Get()
		if i == 0 {
			q.AddRateLimited(item)
		}
		q.Done(item)
	}
	after := WorkDone()
	var n, waited int64
	for i := range after.Took {
		n, waited = n+after.Took[i]-before.Took[i], waited+after.Waited[i]-before.Waited[i]
	}
	if n != 3 || waited != 3 || after.Retries-before.Retries != 1 {
		t.Errorf("%d items were processed, %d had waited, %d were put back, want 3, 3 and 1", n, waited, after.Retries-before.Retries)
	}
}

// TestTookAtMost checks that an item counts under the smallest bound that it does not exceed.
func TestTookAtMost(t *testing.T) {
	for seconds, want := range map[float64]float64{0: .00001, .00001: .00001, .000011: .000025, .02: .025, 1: 1, 60: 100, 1e6: 100} {
		if got := TookAtMost(bucketOf(seconds)); got != want {
			t.Errorf("%v s: counted with those of at most %v, want %v", seconds, got, want)
		}
	}
}

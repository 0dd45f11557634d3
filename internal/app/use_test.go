package app

import (
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/controllers/queues"
	"github.com/flotilla-kube/flotilla/pkg/controllers/requests"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// TestUsage checks that usage is measured from call to call, not from the start of the process.
func TestUsage(t *testing.T) {
	now, used := time.Unix(1000, 0), 7*time.Second
	u := newUsage(func() time.Time { return now }, func() time.Duration { return used })
	for _, step := range []struct {
		elapsed, used time.Duration
		want          int64
	}{
		{10 * time.Second, 5 * time.Second, 500}, {10 * time.Second, 25 * time.Second, 2500}, {0, time.Second, 0},
		{time.Second, -time.Second, 0}, {10 * time.Second, 20 * time.Millisecond, 2},
	} {
		now, used = now.Add(step.elapsed), used+step.used
		if got := u.since(); got.CPU != step.want {
			t.Errorf("%v within %v is %d thousandths, want %d", step.used, step.elapsed, got.CPU, step.want)
		}
	}
	if processorTime() <= 0 {
		t.Error("the test has used no CPU time")
	}
}

// TestWorkBetween: rates are of the time between, and half of the items took at most P50.
func TestWorkBetween(t *testing.T) {
	var before, after queues.Done
	before.Retries, after.Retries = 10, 15
	for i := range after.Took {
		before.Took[i], after.Took[i] = 100, 100
	}
	if w := workBetween(before, after, 10*time.Second); *w != (leaseapi.UseOfWork{Retries: 500}) {
		t.Errorf("nothing was reconciled, got %+v", *w)
	}
	after.Took[2] += 60
	after.Took[5] += 38
	after.Took[9] += 2
	us := func(i int) int64 { return int64(1e6 * queues.TookAtMost(i)) }
	if w := workBetween(before, after, 10*time.Second); *w != (leaseapi.UseOfWork{Reconciles: 10000, Retries: 500, P50: us(2), P99: us(9)}) {
		t.Errorf("got %+v", *w)
	}
	after.Took[9]--
	after.Took[5]++
	if w := workBetween(before, after, 10*time.Second); w.P99 != us(5) {
		t.Errorf("P99 is %d µs, want %d", w.P99, us(5))
	}
}

// TestHealthBetween checks that errors, requests and waits are of the time between two calls.
func TestHealthBetween(t *testing.T) {
	asked, answered := requests.Done{All: 1000, Errors: 100}, requests.Done{All: 1250, Errors: 105}
	var before, after queues.Done
	for i := range after.Waited {
		before.Waited[i], after.Waited[i] = 100, 100
	}
	if got := healthBetween(before, after, asked, answered, 10*time.Second); *got != (leaseapi.Health{Requests: 25000, Errors: 500}) {
		t.Errorf("got %+v", *got)
	}
	after.Waited[3] += 98
	after.Waited[7] += 2
	want := leaseapi.Health{Wait50: int64(1e6 * queues.TookAtMost(3)), Wait99: int64(1e6 * queues.TookAtMost(7))}
	if got := healthBetween(before, after, asked, asked, 10*time.Second); *got != want {
		t.Errorf("got %+v, want %+v", *got, want)
	}
}

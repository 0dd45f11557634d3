package app

import (
	"time"

	"github.com/flotilla-kube/flotilla/pkg/controllers/queues"
	"github.com/flotilla-kube/flotilla/pkg/controllers/requests"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// usage measures what the process uses. Its methods must not be called concurrently.
type usage struct {
	now func() time.Time
	// used returns the processor time of the process so far.
	used func() time.Duration

	at       time.Time
	last     time.Duration
	done     queues.Done
	answered requests.Done
}

// newUsage starts measuring.
func newUsage(now func() time.Time, used func() time.Duration) *usage {
	return &usage{
		now: now, used: used, at: now(), last: used(),
		done: queues.WorkDone(), answered: requests.Answered(),
	}
}

// since returns the mean use since the last call, and what is queued now.
func (u *usage) since() leaseapi.Use {
	at, used := u.now(), u.used()
	done, answered := queues.WorkDone(), requests.Answered()
	use := leaseapi.Use{Queued: queues.Queued()}
	if elapsed := at.Sub(u.at); elapsed > 0 {
		use.CPU = max(0, int64(1000*(used-u.last).Seconds()/elapsed.Seconds()))
		use.Work = workBetween(u.done, done, elapsed)
		use.Health = healthBetween(u.done, done, u.answered, answered, elapsed)
	}
	u.at, u.last, u.done, u.answered = at, used, done, answered
	return use
}

// workBetween returns the work done between two moments.
func workBetween(before, after queues.Done, elapsed time.Duration) *leaseapi.UseOfWork {
	var all int64
	for i := range after.Took {
		after.Took[i] -= before.Took[i]
		all += after.Took[i]
	}
	return &leaseapi.UseOfWork{
		Reconciles: perThousand(all, elapsed),
		Retries:    perThousand(after.Retries-before.Retries, elapsed),
		P50:        atMost(after.Took[:], all, 50), P99: atMost(after.Took[:], all, 99),
	}
}

// healthBetween returns the controllers' requests, errors and queue times between two moments.
func healthBetween(
	before, after queues.Done, asked, answered requests.Done, elapsed time.Duration,
) *leaseapi.Health {
	var all int64
	for i := range after.Waited {
		after.Waited[i] -= before.Waited[i]
		all += after.Waited[i]
	}
	return &leaseapi.Health{
		Requests: perThousand(answered.All-asked.All, elapsed),
		Errors:   perThousand(answered.Errors-asked.Errors, elapsed),
		Wait50:   atMost(after.Waited[:], all, 50), Wait99: atMost(after.Waited[:], all, 99),
	}
}

// perThousand returns the rate of n events in the elapsed time, in events per thousand seconds.
func perThousand(n int64, elapsed time.Duration) int64 {
	return int64(1000 * float64(n) / elapsed.Seconds())
}

// atMost returns a percentile of the items' times, in microseconds, as the upper bound of its
// bucket; 0 if there were no items.
func atMost(counted []int64, all, percent int64) int64 {
	var sum int64
	for i, n := range counted {
		if sum += n; n > 0 && 100*sum >= percent*all {
			return int64(1e6 * queues.TookAtMost(i))
		}
	}
	return 0
}

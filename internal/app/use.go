package app

import (
	"time"

	"github.com/flotilla-kube/flotilla/pkg/controllers/queues"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
)

// usage measures what the process uses. Its methods must not be called concurrently.
type usage struct {
	now func() time.Time
	// used returns the processor time of the process so far.
	used func() time.Duration

	at   time.Time
	last time.Duration
	done queues.Done
}

// newUsage begins to measure.
func newUsage(now func() time.Time, used func() time.Duration) *usage {
	return &usage{now: now, used: used, at: now(), last: used(), done: queues.WorkDone()}
}

// since returns the mean use since the last call, and what is queued at the moment.
func (u *usage) since() fleet.Use {
	at, used := u.now(), u.used()
	done := queues.WorkDone()
	use := fleet.Use{Queued: queues.Queued()}
	if elapsed := at.Sub(u.at); elapsed > 0 {
		use.CPU = max(0, int64(1000*(used-u.last).Seconds()/elapsed.Seconds()))
		use.Work = workBetween(u.done, done, elapsed)
	}
	u.at, u.last, u.done = at, used, done
	return use
}

// workBetween returns what was done from one moment to another.
func workBetween(before, after queues.Done, elapsed time.Duration) *fleet.UseOfWork {
	perThousand := func(n int64) int64 { return int64(1000 * float64(n) / elapsed.Seconds()) }
	var all int64
	for i := range after.Took {
		after.Took[i] -= before.Took[i]
		all += after.Took[i]
	}
	return &fleet.UseOfWork{
		Reconciles: perThousand(all), Retries: perThousand(after.Retries - before.Retries),
		P50: took(after, all, 50), P99: took(after, all, 99),
	}
}

// took returns how long so many of a hundred items took at most, in microseconds, by the bounds of
// what was counted; 0 where there were none.
func took(d queues.Done, all, percent int64) int64 {
	var sum int64
	for i, n := range d.Took {
		if sum += n; n > 0 && 100*sum >= percent*all {
			return int64(1e6 * queues.TookAtMost(i))
		}
	}
	return 0
}

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
}

// newUsage begins to measure.
func newUsage(now func() time.Time, used func() time.Duration) *usage {
	return &usage{now: now, used: used, at: now(), last: used()}
}

// since returns the mean use since the last call, and what is queued at the moment.
func (u *usage) since() fleet.Use {
	at, used := u.now(), u.used()
	use := fleet.Use{Queued: queues.Queued()}
	if elapsed := at.Sub(u.at); elapsed > 0 {
		use.CPU = max(0, int64(1000*(used-u.last).Seconds()/elapsed.Seconds()))
	}
	u.at, u.last = at, used
	return use
}

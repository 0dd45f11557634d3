package fleet

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
)

// watchdog reports whether the member's loop still turns.
type watchdog struct {
	// last is when the loop last turned; nil while no loop should turn.
	last atomic.Pointer[time.Time]
}

func (w *watchdog) feed(now time.Time) { w.last.Store(&now) }

func (w *watchdog) rest() { w.last.Store(nil) }

// turned returns the loop that last turned longest ago, and when, among the loops without which the
// member does no work: the member's own, and those of its claims and of the leader locks. The time
// is zero if there is none.
func (m *Member) turned() (oldest time.Time, loop string) {
	if last := m.watchdog.last.Load(); last != nil {
		oldest, loop = *last, "the member's loop"
	}
	for _, r := range m.runners.list() {
		if at, held := r.claimant.Turned(); held && (oldest.IsZero() || at.Before(oldest)) {
			oldest, loop = at, "the claim on shard "+r.shard.ID.String()
		}
	}
	if at, lock := m.leadership.Turned(); !at.IsZero() && (oldest.IsZero() || at.Before(oldest)) {
		oldest, loop = at, "the leader lock "+lock
	}
	return oldest, loop
}

// Live returns nil unless the member's loop has not turned for three lease durations. The loop
// turns at least once in a lease duration whatever the API server does. If it does not, the process
// is wedged, and only ending it helps. A member that waits for its Lease, a plan or a leader lock
// is live.
func (m *Member) Live() error { return m.watchdog.check(m.config.Clock, m.config.Timing) }

func (w *watchdog) check(clock election.Clock, timing election.Timing) error {
	last := w.last.Load()
	if last == nil {
		return nil
	}
	if silence := clock.Now().Sub(*last); silence > 3*timing.LeaseDuration {
		return fmt.Errorf("the member's loop has not turned for %v, which it does within %v", silence.Round(time.Second), timing.LeaseDuration)
	}
	return nil
}

// Renewing returns nil unless the member still relies on a Lease that it has not renewed for a
// lease duration plus tolerance. A claim should have ended long before, so the process is wedged,
// and only ending it helps. A member that holds nothing is healthy.
func (m *Member) Renewing(tolerance time.Duration) error {
	now := m.config.Clock.Now()
	if renewed, right := m.membership.Confirmed(); right {
		if silence := now.Sub(renewed); silence > m.config.Timing.LeaseDuration+tolerance {
			return fmt.Errorf("the claim on Lease %s goes on, and was last renewed %v ago",
				leaserecord.MemberLease(m.config.Fleet, m.config.Member), silence.Round(time.Second))
		}
	}
	var claims []*election.Claim
	for _, r := range m.runners.list() {
		claims = append(claims, r.claimant.Claim())
	}
	for _, claim := range claims {
		if claim == nil {
			continue
		}
		if silence := now.Sub(claim.LastRenew()); silence > m.config.Timing.LeaseDuration+tolerance {
			return fmt.Errorf("the claim on Lease %s goes on, and was last renewed %v ago", claim.Name(), silence.Round(time.Second))
		}
	}
	return nil
}

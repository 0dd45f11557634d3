package leaderlock

import (
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/request"
)

// answered returns the state after the answer to a step's request. obs is the current observation,
// and period is the time until the next read.
//
// This is the clock rule. A renewal counts from a moment before it was written: from the start of
// the request that wrote it, or else from the start of an earlier live request that did not show it
// yet, because the server that answered did not have it yet. When a watch delivered it does not
// matter.
func (s state) answered(
	self string, did action, a request.Answer, obs election.Observation, now time.Time, timing election.Timing, period time.Duration,
) state {
	if a.Err != nil {
		s.stale = s.stale || a.Conflict
		s.unrenewed = s.unrenewed && did == actRead // After a write that failed, first see whether another member has renewed.
		return s
	}
	from, shown := a.Start, leaserecord.From(a.Lease)
	if did == actRead {
		from = s.shownAt // Zero is long ago and extends nothing.
		if !renewed(self, s.shown, shown) {
			from = time.Time{}
		}
	}
	s.shown, s.shownAt, s.due = shown, a.Start, a.Start.Add(period)
	s.stamp = later(s.stamp, shown.RenewTime)
	s.stale, s.notBefore = false, time.Time{}
	left := from.Add(lasts(shown, timing)).Sub(now)
	s = s.counted(self, from, obs, now, timing)
	// What the read proves must last until the next read and a retry of that. Otherwise a write
	// gains more time.
	s.unrenewed = did == actRead && left < time.Duration(2*request.JitterFactor*float64(timing.RetryPeriod))
	return s
}

// counted returns the state given that a renewal was written after from. An outdated renewal
// neither begins a right nor revives one.
func (s state) counted(self string, from time.Time, obs election.Observation, now time.Time, timing election.Timing) state {
	shown, right := s.shown, lasts(s.shown, timing)
	switch {
	case shown.Holder != self || !now.Before(from.Add(right)):
		return s
	case s.phase == phaseIdle:
		if !obs.Exists || obs.Holder != self || !termOf(obs.Record).equal(termOf(shown)) {
			return s // Somebody else has written the Lease since.
		}
		s.phase, s.term = phaseHeld, termOf(shown)
	case !termOf(shown).equal(s.term) || !now.Before(s.deadline()):
		return s
	}
	if !from.Before(s.lastRenew) {
		s.lastRenew, s.right = from, right
	}
	return s
}

// lasts returns how long a right lasts from a renewal: RenewDeadline, or in proportion less if the
// renewal declares less than LeaseDuration, as those of members with other timings do. Other
// candidates wait for as long as the last renewal declares.
func lasts(renewal leaserecord.Record, timing election.Timing) time.Duration {
	declared := min(renewal.Duration, timing.LeaseDuration)
	return time.Duration(float64(timing.RenewDeadline) * (float64(declared) / float64(timing.LeaseDuration)))
}

// renewed reports whether the Lease was renewed for self between two requests, so that client-go's
// elector sees a change too: it compares Leases with their times truncated to seconds.
func renewed(self string, before, after leaserecord.Record) bool {
	return after.Holder == self &&
		(before.Holder != self || before.Transitions != after.Transitions || before.RenewTime.Unix() != after.RenewTime.Unix())
}

// freeSince returns the time since which nobody but the fleet has kept the Lease, as far as this
// process knows. held is the observation that names the fleet, before the last one that did not. If
// their terms are not consecutive, somebody else may have held the Lease in between.
func freeSince(before, held election.Observation, leaseDuration time.Duration) time.Time {
	next := before.Known() && held.Transitions == before.HighTerm+1
	kept := before.Exists && before.Holder != "" && !before.Expired(held.HolderSeen, leaseDuration)
	if !next || kept {
		return held.HolderSeen
	}
	return before.Seen
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

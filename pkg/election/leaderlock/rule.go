package leaderlock

import (
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/request"
)

// answered returns the state after what a step has asked for was answered. obs is what is known
// now, period the time until the next read.
//
// This is the clock rule. A renewal counts from a moment before it was written: from the start of
// the request if that wrote it; else from the start of an earlier live request that has not shown
// it yet, because a server that answered without it had not been given it. When a watch brought it
// is of no account.
func (s state) answered(
	self string, did action, a request.Answer, obs election.Observation, now time.Time, timing election.Timing, period time.Duration,
) state {
	if a.Err != nil {
		s.stale = s.stale || a.Conflict
		s.unrenewed = s.unrenewed && did == actRead // After a write that failed, look first whether others had more luck.
		return s
	}
	from, shown := a.Start, election.RecordFrom(a.Lease)
	if did == actRead {
		from = s.shownAt // Zero is long ago: it counts for nothing.
		if !renewed(self, s.shown, shown) {
			from = time.Time{}
		}
	}
	s.shown, s.shownAt, s.due = shown, a.Start, a.Start.Add(period)
	s.stamp = later(s.stamp, shown.RenewTime)
	s.stale, s.notBefore = false, time.Time{}
	left := from.Add(timing.RenewDeadline).Sub(now)
	s = s.counted(self, from, obs, now, timing)
	// A read must leave time for the next one and for repeating that. Else writing saves more.
	s.unrenewed = did == actRead && left < time.Duration(2*request.JitterFactor*float64(timing.RetryPeriod))
	return s
}

// counted returns the state after a renewal was found to have been written after from. A right does
// not begin, and does not come back to life, by a renewal that is out of date.
func (s state) counted(self string, from time.Time, obs election.Observation, now time.Time, timing election.Timing) state {
	valid := func(from time.Time) bool { return now.Before(from.Add(timing.RenewDeadline)) }
	shown := s.shown
	switch {
	case shown.Holder != self || !valid(from):
		return s
	case s.phase == phaseIdle:
		if !obs.Exists || obs.Holder != self || !termOf(obs.Record).equal(termOf(shown)) {
			return s // Somebody else was faster than the answer.
		}
		s.phase, s.term = phaseHeld, termOf(shown)
	case !termOf(shown).equal(s.term) || !valid(s.lastRenew):
		return s
	}
	s.lastRenew = later(s.lastRenew, from)
	return s
}

// renewed reports whether the Lease was renewed for self between two looks at it, such that
// client-go's elector sees a change too: it compares Leases with their times cut to seconds.
func renewed(self string, before, after election.Record) bool {
	return after.Holder == self &&
		(before.Holder != self || before.Transitions != after.Transitions || before.RenewTime.Unix() != after.RenewTime.Unix())
}

// freeSince returns the time since which nobody but the fleet has kept the Lease, as far as this
// process knows. held is the Lease as it names the fleet, before is how it was last seen when it
// did not. Where the terms do not follow each other, somebody else may have come and gone in
// between.
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

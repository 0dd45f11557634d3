package election

import (
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// lockAction is the one thing that a leader lock's step asks for.
type lockAction int

const (
	// lockWait: nothing, until something changes or lockOutput.wake has come.
	lockWait lockAction = iota
	// lockRead: fetch the Lease.
	lockRead
	// lockCreate the Lease with the fleet as its holder.
	lockCreate
	// lockAcquire: update the Lease as observed, with the fleet as its holder for a new term.
	lockAcquire
	// lockRenew: update the Lease as observed, with the fleet as its holder for the term that it
	// has.
	lockRenew
	// lockEnd: the right has ended, for lockOutput.reason.
	lockEnd
)

func (a lockAction) String() string {
	return [...]string{"wait", "read", "create", "acquire", "renew", "end"}[a]
}

// event is the Action under which requests are reported. Reading is how a leader lock that others
// renew is kept.
func (a lockAction) event() Action {
	return [...]Action{lockRead: Renew, lockCreate: Create, lockAcquire: Acquire, lockRenew: Renew, lockEnd: End}[a]
}

// lockPhase is where a leader lock stands. It only goes forward.
type lockPhase int

const (
	lockIdle lockPhase = iota // never held
	lockHeld
	lockLost
)

// lockTerm is what a term of a Lease is known by. A number alone may come again after a deletion.
type lockTerm struct {
	transitions int32
	acquired    time.Time
}

func termOf(r Record) lockTerm {
	return lockTerm{r.Transitions, r.AcquireTime}
}

func (t lockTerm) equal(other lockTerm) bool {
	return t.transitions == other.transitions && t.acquired.Equal(other.acquired)
}

// lockState is what a leader lock remembers between steps. The zero value has never held anything.
type lockState struct {
	phase lockPhase
	// term that is held.
	term lockTerm
	// lastRenew is a moment before the write of the last renewal that is known of; the right lasts RenewDeadline from it.
	lastRenew time.Time
	// shown is what the last live request has shown, and shownAt when that was started; zero if there was none.
	shown   Record
	shownAt time.Time
	// stamp is the highest renewTime shown.
	stamp time.Time
	// due is when to read again.
	due time.Time
	// unrenewed: the last request was a read that has shown no renewal, or none that lasts until the next read.
	unrenewed bool
	// stale: a write was refused, so the Lease is not as observed.
	stale bool
	// notBefore is when the next request may be sent, after a failed one.
	notBefore time.Time
}

// lockInput is everything a leader lock's step depends on.
type lockInput struct {
	// self is the fleet's identity.
	self        string
	now         time.Time
	observation Observation // includes the results of this process's own requests
	state       lockState
	timing      Timing
	busy        bool // a request is under way
}

// lockOutput is what a step asks for.
type lockOutput struct {
	action lockAction
	state  lockState
	// reason of lockEnd, of waiting while idle, and of a right that is suspended.
	reason Reason
	// term to write.
	term lockTerm
	// validUntil is when the right ends; zero if there is none now.
	validUntil time.Time
	// wake is when to look again if nothing changes before; zero means only then.
	wake time.Time
}

// lockStep decides what to do next. It is pure. After any action but lockWait, step again at once.
//
// The first row that applies is taken; "self" and "other" are the holder that the Lease names, deadline is lastRenew +
// RenewDeadline. Requests wait while busy and until notBefore. A suspended right is not valid.
//
//	Phase  Condition                                   Action               Right
//	idle   nothing known of the Lease                  wait                 none
//	idle   stale                                       read                 none
//	idle   self                                        renew its term       begins when done
//	idle   absent for LeaseDuration                    create, new term     begins when done
//	idle   empty, or other and expired                 acquire, new term    begins when done
//	idle   otherwise                                   wait                 none
//	held   now >= deadline                             end                  lost
//	held   other, or another term                      end                  lost
//	held   stale                                       read                 until deadline
//	held   absent                                      create, same term    suspended until done
//	held   empty                                       renew, same term     suspended until done
//	held   unrenewed: the last read has shown nothing  renew, same term     until deadline
//	held   RetryPeriod since the last live request     read                 until deadline
//	held   otherwise                                   wait                 until deadline
//
// A right that is suspended stays so while the row of stale applies.
func lockStep(in lockInput) lockOutput {
	if in.state.phase == lockHeld {
		return in.held()
	}
	return in.idle()
}

func (in lockInput) idle() lockOutput {
	obs, next := in.observation, lockTerm{in.observation.HighTerm + 1, in.now}
	wait := lockOutput{state: in.state}
	switch {
	case !obs.Known():
		wait.reason = ReasonUnknown
		return wait
	case in.state.stale:
		return in.request(lockRead, lockTerm{})
	case obs.Exists && obs.Holder == in.self:
		return in.request(lockRenew, termOf(obs.Record))
	case obs.HighTerm == math.MaxInt32:
		wait.reason = ReasonTermsExhausted
		return wait
	case !obs.Expired(in.now, in.timing.LeaseDuration):
		wait.reason, wait.wake = ReasonHeld, obs.ExpiresAt(in.timing.LeaseDuration)
		if !obs.Exists {
			wait.reason = ReasonAbsent
		}
		return wait
	case !obs.Exists:
		return in.request(lockCreate, next)
	default:
		return in.request(lockAcquire, next)
	}
}

func (in lockInput) held() lockOutput {
	s, obs := in.state, in.observation
	deadline := s.lastRenew.Add(in.timing.RenewDeadline)
	switch {
	case !in.now.Before(deadline):
		return in.end(ReasonRenewDeadline)
	case obs.Exists && obs.Holder != "" && obs.Holder != in.self:
		return in.end(ReasonOtherHolder)
	case obs.Exists && !termOf(obs.Record).equal(s.term):
		return in.end(ReasonTermChanged)
	}
	out := lockOutput{state: s, wake: s.due}
	switch {
	case s.stale:
		out = in.request(lockRead, s.term)
	case !obs.Exists:
		out = in.request(lockCreate, s.term)
	case obs.Holder == "" || s.unrenewed:
		out = in.request(lockRenew, s.term)
	case !in.now.Before(s.due):
		out = in.request(lockRead, s.term)
	}
	out.validUntil = deadline
	switch {
	case !obs.Exists:
		out.reason, out.validUntil = ReasonAbsent, time.Time{}
	case obs.Holder == "":
		out.reason, out.validUntil = ReasonCleared, time.Time{}
	}
	if out.wake.IsZero() || out.wake.After(deadline) {
		out.wake = deadline
	}
	return out
}

// request asks for a request, or for waiting until one may be sent.
func (in lockInput) request(action lockAction, term lockTerm) lockOutput {
	switch {
	case in.busy:
		return lockOutput{state: in.state}
	case in.now.Before(in.state.notBefore):
		return lockOutput{state: in.state, wake: in.state.notBefore}
	default:
		return lockOutput{action: action, state: in.state, term: term}
	}
}

func (in lockInput) end(reason Reason) lockOutput {
	s := in.state
	s.phase = lockLost
	return lockOutput{action: lockEnd, state: s, reason: reason}
}

// lockAnswer is the outcome of one request.
type lockAnswer struct {
	action   lockAction
	start    time.Time // read before the request was sent
	end      time.Time
	shown    Record // what was read or written; zero if the Lease is absent
	err      error
	conflict bool // err says that the Lease is not as observed
}

// answered returns the state after a request. obs is what is known now, period the time until the next read.
//
// This is the clock rule. A renewal counts from a moment before it was written: from the start of the request if that
// wrote it; else from the start of an earlier live request that has not shown it yet, because a server that answered
// without it had not been given it. When a watch brought it is of no account.
func (s lockState) answered(self string, a lockAnswer, obs Observation, now time.Time, timing Timing, period time.Duration) lockState {
	if a.err != nil {
		s.stale = s.stale || a.conflict
		s.unrenewed = s.unrenewed && a.action == lockRead // After a write that failed, look first whether others had more luck.
		return s
	}
	from := a.start
	if a.action == lockRead {
		from = s.shownAt // Zero is long ago: it counts for nothing.
		if !renewed(self, s.shown, a.shown) {
			from = time.Time{}
		}
	}
	s.shown, s.shownAt, s.due = a.shown, a.start, a.start.Add(period)
	s.stamp = later(s.stamp, a.shown.RenewTime)
	s.stale, s.notBefore = false, time.Time{}
	left := from.Add(timing.RenewDeadline).Sub(now)
	s = s.counted(self, from, obs, now, timing)
	// A read must leave time for the next one and for repeating that. Else writing saves more.
	s.unrenewed = a.action == lockRead && left < time.Duration(2*jitterFactor*float64(timing.RetryPeriod))
	return s
}

// counted returns the state after a renewal was found to have been written after from. A right does not begin, and does not
// come back to life, by a renewal that is out of date.
func (s lockState) counted(self string, from time.Time, obs Observation, now time.Time, timing Timing) lockState {
	valid := func(from time.Time) bool { return now.Before(from.Add(timing.RenewDeadline)) }
	shown := s.shown
	switch {
	case shown.Holder != self || !valid(from):
		return s
	case s.phase == lockIdle:
		if !obs.Exists || obs.Holder != self || !termOf(obs.Record).equal(termOf(shown)) {
			return s // Somebody else was faster than the answer.
		}
		s.phase, s.term = lockHeld, termOf(shown)
	case !termOf(shown).equal(s.term) || !valid(s.lastRenew):
		return s
	}
	s.lastRenew = later(s.lastRenew, from)
	return s
}

// renewed reports whether the Lease was renewed for self between two looks at it, such that
// client-go's elector sees a change too: it compares Leases with their times cut to seconds.
func renewed(self string, before, after Record) bool {
	return after.Holder == self &&
		(before.Holder != self || before.Transitions != after.Transitions || before.RenewTime.Unix() != after.RenewTime.Unix())
}

// freeSince returns the time since which nobody but the fleet has kept the Lease, as far as this
// process knows. held is the Lease as it names the fleet, before is how it was last seen when it
// did not. Where the terms do not follow each other, somebody else may have come and gone in
// between.
func freeSince(before, held Observation, leaseDuration time.Duration) time.Time {
	next := before.Known() && held.Transitions == before.HighTerm+1
	kept := before.Exists && before.Holder != "" && !before.Expired(held.HolderSeen, leaseDuration)
	if !next || kept {
		return held.HolderSeen
	}
	return before.Seen
}

// leaseNaming returns a copy of lease, or a new Lease if it is nil, that names self as its holder
// for term. Nothing but what an election is about is written: the Lease belongs to somebody else.
func leaseNaming(lease *coordinationv1.Lease, name, self string, term lockTerm, duration time.Duration, stamp time.Time) *coordinationv1.Lease {
	out := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if lease != nil {
		out = lease.DeepCopy()
	}
	out.Spec.HolderIdentity = &self
	out.Spec.LeaseTransitions = &term.transitions
	// Rounded up: the Lease must never promise others less than its holder counts on.
	out.Spec.LeaseDurationSeconds = ptr.To(int32(math.Ceil(duration.Seconds())))
	out.Spec.RenewTime = ptr.To(metav1.NewMicroTime(stamp))
	out.Spec.AcquireTime = nil
	if !term.acquired.IsZero() {
		out.Spec.AcquireTime = ptr.To(metav1.NewMicroTime(term.acquired))
	}
	return out
}

// stampAfter returns the renewTime to write at now: a later second than last, the one before. client-go's elector does not
// see a renewal that leaves the second as it was, and members whose clocks differ might write the same one for a while.
func stampAfter(last, now time.Time) time.Time {
	next := last.Truncate(time.Second).Add(time.Second)
	if next.After(now) && next.Year() <= 9999 { // The last year that a Lease can have.
		return next
	}
	return now
}

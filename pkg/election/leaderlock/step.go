package leaderlock

import (
	"math"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
)

// action is what a leader lock's step asks for.
type action int

const (
	// actWait: nothing, until something changes or output.wake has come.
	actWait action = iota
	// actRead: fetch the Lease.
	actRead
	// actCreate the Lease with the fleet as its holder.
	actCreate
	// actAcquire: update the Lease as observed, with the fleet as its holder for a new term.
	actAcquire
	// actRenew: update the Lease as observed, with the fleet as its holder for the same term.
	actRenew
	// actEnd: the right has ended, for output.reason.
	actEnd
)

func (a action) String() string {
	return [...]string{"wait", "read", "create", "acquire", "renew", "end"}[a]
}

// event returns the Action to report for a request. A read counts as Renew, because it keeps a
// leader lock that others renew.
func (a action) event() election.Action {
	return [...]election.Action{
		actRead: election.Renew, actCreate: election.Create, actAcquire: election.Acquire, actRenew: election.Renew, actEnd: election.End,
	}[a]
}

// phase is a leader lock's phase. It only moves forward.
type phase int

const (
	phaseIdle phase = iota // never held
	phaseHeld
	phaseLost
)

// term identifies a term of a Lease. A number alone may repeat after a deletion.
type term struct {
	transitions int32
	acquired    time.Time
}

func termOf(r leaserecord.Record) term {
	return term{r.Transitions, r.AcquireTime}
}

func (t term) equal(other term) bool {
	return t.transitions == other.transitions && t.acquired.Equal(other.acquired)
}

// state is what a leader lock keeps between steps. The zero value has never held anything.
type state struct {
	phase phase
	// term that is held.
	term term
	// lastRenew is a moment before the write of the last known renewal, and right is how long the
	// right lasts from it; see lasts.
	lastRenew time.Time
	right     time.Duration
	// shown is what the last live request showed, and shownAt when that request started; zero if
	// there was none.
	shown   leaserecord.Record
	shownAt time.Time
	// stamp is the highest renewTime shown.
	stamp time.Time
	// due is when to read again.
	due time.Time
	// unrenewed: the last request was a read that showed no renewal, or none that lasts until the
	// next read.
	unrenewed bool
	// stale: a write was refused, so the Lease is not as observed.
	stale bool
	// notBefore is when the next request may be sent, after a failed one.
	notBefore time.Time
}

// deadline returns when the right ends.
func (s state) deadline() time.Time { return s.lastRenew.Add(s.right) }

// input is everything a leader lock's step depends on.
type input struct {
	// self is the fleet's identity.
	self        string
	now         time.Time
	observation election.Observation // includes the results of this process's own requests
	state       state
	timing      election.Timing
	busy        bool // a request is under way
}

// output is what a step asks for.
type output struct {
	action action
	state  state
	// reason of actEnd, of waiting while idle, or of a suspended right.
	reason election.Reason
	// term to write.
	term term
	// validUntil is when the right ends; zero while there is none.
	validUntil time.Time
	// wake is when to step again even if nothing changes; zero means only on a change.
	wake time.Time
}

// step decides what to do next. It is pure. After any action but actWait, step again at once.
//
// The first row that applies is taken. "self" and "other" are the holder that the Lease names;
// deadline is RenewDeadline after lastRenew, or sooner after a renewal that declares less than
// LeaseDuration. Requests wait while busy and until notBefore. A suspended right is not valid.
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
// A suspended right stays suspended while the stale row applies.
func step(in input) output {
	if in.state.phase == phaseHeld {
		return in.held()
	}
	return in.idle()
}

func (in input) idle() output {
	obs, next := in.observation, term{in.observation.HighTerm + 1, in.now}
	wait := output{state: in.state}
	switch {
	case !obs.Known():
		wait.reason = election.ReasonUnknown
		return wait
	case in.state.stale:
		return in.request(actRead, term{})
	case obs.Exists && obs.Holder == in.self:
		return in.request(actRenew, termOf(obs.Record))
	case obs.HighTerm == math.MaxInt32:
		wait.reason = election.ReasonTermsExhausted
		return wait
	case !obs.Expired(in.now, in.timing.LeaseDuration):
		wait.reason, wait.wake = election.ReasonHeld, obs.ExpiresAt(in.timing.LeaseDuration)
		if !obs.Exists {
			wait.reason = election.ReasonAbsent
		}
		return wait
	case !obs.Exists:
		return in.request(actCreate, next)
	default:
		return in.request(actAcquire, next)
	}
}

func (in input) held() output {
	s, obs := in.state, in.observation
	deadline := s.deadline()
	switch {
	case !in.now.Before(deadline):
		return in.end(election.ReasonRenewDeadline)
	case obs.Exists && obs.Holder != "" && obs.Holder != in.self:
		return in.end(election.ReasonOtherHolder)
	case obs.Exists && !termOf(obs.Record).equal(s.term):
		return in.end(election.ReasonTermChanged)
	}
	out := output{state: s, wake: s.due}
	switch {
	case s.stale:
		out = in.request(actRead, s.term)
	case !obs.Exists:
		out = in.request(actCreate, s.term)
	case obs.Holder == "" || s.unrenewed:
		out = in.request(actRenew, s.term)
	case !in.now.Before(s.due):
		out = in.request(actRead, s.term)
	}
	out.validUntil = deadline
	switch {
	case !obs.Exists:
		out.reason, out.validUntil = election.ReasonAbsent, time.Time{}
	case obs.Holder == "":
		out.reason, out.validUntil = election.ReasonCleared, time.Time{}
	}
	if out.wake.IsZero() || out.wake.After(deadline) {
		out.wake = deadline
	}
	return out
}

// request returns the action, or a wait until a request may be sent.
func (in input) request(action action, term term) output {
	switch {
	case in.busy:
		return output{state: in.state}
	case in.now.Before(in.state.notBefore):
		return output{state: in.state, wake: in.state.notBefore}
	default:
		return output{action: action, state: in.state, term: term}
	}
}

func (in input) end(reason election.Reason) output {
	s := in.state
	s.phase = phaseLost
	return output{action: actEnd, state: s, reason: reason}
}

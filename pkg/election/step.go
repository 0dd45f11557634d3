package election

import (
	"math"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/plant"
)

// Input is everything a step depends on.
type Input struct {
	// Self is the incarnation's identity, never empty.
	Self string
	// Now is the clock's reading for this step.
	Now time.Time
	// Wish of the owner.
	Wish Wish
	// Revoked takes all rights at once, and then counts as Leave.
	Revoked bool
	// Observation of the Lease. It includes the results of this incarnation's own requests.
	Observation Observation
	// State as the last step left it.
	State State
	// Timing of the claim.
	Timing Timing
	// Busy is set while a request is under way: there is never more than one.
	Busy bool
	// Returned is set once the work that was started has returned.
	Returned bool
	// DrainTimeout is how long the work may take to return once it has been asked to stop, see
	// ClaimantConfig.
	DrainTimeout time.Duration
	// Touch asks for a renewal now, to write changed annotations.
	Touch bool
	// Ask has the Lease asked for while another incarnation holds it, see Claimant.SetAsk.
	Ask bool
	// CreateAtOnce drops the waiting for an absent Lease, see ClaimantConfig.
	CreateAtOnce bool
	// Following is set if the claim follows the heartbeat of its member, see [Heartbeat]. Confirmed is the start of the last
	// heartbeat that is confirmed, and Right whether the member's rights go on; both are for Following alone.
	Following, Right bool
	Confirmed        time.Time
}

// Output is what a step asks for.
type Output struct {
	Action Action
	// State to remember. The outcome of a request is added to it when it is known.
	State State
	// Reason of an End, or of waiting in Idle while the Lease is wanted.
	Reason Reason
	// Term to write, for Create, Acquire and Renew.
	Term int32
	// Wake is when to look again if nothing changes before; zero means only then.
	Wake time.Time
	// Settled is set when nothing is wanted, held, running or left to release.
	Settled bool
}

// Step decides what to do next. It is pure: the same input gives the same output, and all I/O is elsewhere. After any
// action but Wait, step again at once; a request is under way then, and Busy.
//
// The first row that applies is taken; "want" is Wish == Want && !Revoked, "leave" is Wish == Leave || Revoked, "self" and
// "other" are the holder that the Lease names, deadline is LastRenew + RenewDeadline. Requests wait while Busy and until
// NotBefore.
//
//	Phase     Condition                                           Action           Next
//	Idle      nothing known of the Lease                          Wait             Idle
//	Idle      want, absent, CreateAtOnce or for LeaseDuration     Create term+1    Acquired when done
//	Idle      want, holder empty, self, or other and expired      Acquire term+1   Acquired when done
//	Idle      want, Ask, not asked, nor within RetryPeriod        Ask              Idle
//	Idle      want, otherwise                                     Wait             Idle
//	Idle      !want, self, not expired                            Release          Idle
//	Idle      !want, otherwise                                    Wait, Settled    Idle
//	held      Revoked                                             End              Lost, or Idle if nothing runs
//	held      now >= deadline                                     End              as above
//	held      holder other or empty, or self with another term    End              as above
//	held      work has returned                                   End              Idle
//	Acquired  leave                                               End              Idle
//	Acquired  otherwise                                           Start            Running
//	Running   leave                                               Drain            Draining
//	Draining  DrainTimeout since Drain, once                      Stuck            Draining
//	held      absent                                              Create term      same
//	held      Touch, or RetryPeriod since LastRenew               Renew            same
//	held      otherwise                                           Wait             same
//	Lost      work has returned                                   Rest             Idle
//	Lost      LeaseDuration since LastRenew, once                 Stuck            Lost
//	Lost      otherwise                                           Wait             Lost
//
// held is Acquired, Running or Draining. Draining goes on renewing after Stuck: the Lease is not
// released while work runs.
//
// A claim that follows a heartbeat differs in this: LastRenew is Confirmed; a held claim ends without a Right; it renews for
// Touch alone; and what is done in Idle is what [heartbeat.ClaimStep] says, beside asking. It gives up releasing when others may
// list the incarnation as ended.
func Step(in Input) Output {
	if in.Following && in.State.held() {
		in.State.LastRenew = in.Confirmed
	}
	switch in.State.Phase {
	case Idle:
		return in.idle()
	case Lost:
		return in.lost()
	default:
		return in.held()
	}
}

func (in Input) want() bool {
	return in.Wish == Want && !in.Revoked
}

func (in Input) leave() bool {
	return in.Wish == Leave || in.Revoked
}

func (in Input) idle() Output {
	if in.Following {
		return in.follow()
	}
	obs := in.Observation
	if !in.want() {
		if obs.Exists && obs.Holder == in.Self && !obs.Expired(in.Now, in.Timing.LeaseDuration) {
			return in.request(Release, obs.Transitions)
		}
		return Output{Action: Wait, State: in.State, Settled: !in.Busy}
	}
	wait := Output{Action: Wait, State: in.State}
	switch {
	case !obs.Known():
		wait.Reason = ReasonUnknown
		return wait
	case obs.HighTerm == math.MaxInt32:
		wait.Reason = ReasonTermsExhausted
		return wait
	case !obs.Exists && in.CreateAtOnce:
		return in.request(Create, in.nextTerm())
	case obs.Exists && obs.Holder == in.Self:
		// An earlier claim of this incarnation, or one whose answer was lost. Its work has returned or never began.
		return in.request(Acquire, in.nextTerm())
	case !obs.Expired(in.Now, in.Timing.LeaseDuration):
		wait.Wake = obs.ExpiresAt(in.Timing.LeaseDuration)
		wait.Reason = ReasonHeld
		switch {
		case !obs.Exists:
			wait.Reason = ReasonAbsent
		case in.Ask && obs.NextHolder() != in.Self && !in.Busy:
			return in.ask(wait)
		}
		return wait
	case !obs.Exists:
		return in.request(Create, in.nextTerm())
	default:
		return in.request(Acquire, in.nextTerm())
	}
}

// nextTerm is the term of a new claim.
func (in Input) nextTerm() int32 {
	if plant.TermKept {
		return max(1, in.Observation.HighTerm)
	}
	return in.Observation.HighTerm + 1
}

func (in Input) held() Output {
	s, obs := in.State, in.Observation
	deadline := s.LastRenew.Add(in.Timing.RenewDeadline)
	switch {
	case in.Revoked:
		return in.end(ReasonRevoked)
	case in.Following && !in.Right:
		return in.end(ReasonNoRight)
	case !in.Now.Before(deadline):
		return in.end(ReasonRenewDeadline)
	case obs.Exists && obs.Holder == "":
		return in.end(ReasonCleared)
	case obs.Exists && obs.Holder != in.Self:
		return in.end(ReasonOtherHolder)
	case obs.Exists && obs.Transitions != s.Term:
		return in.end(ReasonTermChanged)
	case in.Returned && s.Phase == Draining:
		return in.end(ReasonDrained)
	case in.Returned:
		return in.end(ReasonWorkReturned)
	case s.Phase == Acquired && in.leave():
		return in.end(ReasonUnwanted)
	case s.Phase == Acquired:
		s.Phase = Running
		return Output{Action: Start, State: s}
	case s.Phase == Running && in.leave():
		s.Phase, s.DrainingSince = Draining, in.Now
		return Output{Action: Drain, State: s}
	case s.Phase == Draining && !s.Warned && !in.Now.Before(in.drainEnd()):
		s.Warned = true
		return Output{Action: Stuck, State: s}
	}
	var out Output
	switch due := s.LastRenew.Add(in.Timing.RetryPeriod); {
	case !obs.Exists:
		out = in.request(Create, s.Term)
	case in.Touch || !in.Now.Before(due) && !in.Following:
		out = in.request(Renew, s.Term)
	case in.Following:
		out = Output{Action: Wait, State: s}
	default:
		out = Output{Action: Wait, State: s, Wake: due}
	}
	if out.Action == Wait {
		if out.Wake.IsZero() {
			out.Wake = deadline
		}
		out.Wake = earlier(out.Wake, deadline)
		if in.Following {
			// The heartbeat goes on only while this loop comes round, whatever it waits for.
			out.Wake = earlier(out.Wake, in.Now.Add(in.Timing.RetryPeriod/2))
		}
		if s.Phase == Draining && !s.Warned {
			out.Wake = earlier(out.Wake, in.drainEnd())
		}
	}
	return out
}

// drainEnd is when work that has been asked to stop must have returned.
func (in Input) drainEnd() time.Time {
	if plant.StuckEarly {
		return in.State.DrainingSince
	}
	return in.State.DrainingSince.Add(in.DrainTimeout)
}

func (in Input) lost() Output {
	s := in.State
	if in.Returned {
		s.Phase = Idle
		return Output{Action: Rest, State: s}
	}
	out := Output{Action: Wait, State: s}
	switch at := s.stuckAt(in.Timing); {
	case s.Warned:
	case in.Now.Before(at):
		out.Wake = at
	default:
		out.Action = Stuck
		out.State.Warned = true
	}
	return out
}

// ask asks the holder for the Lease. Of two that ask, each overwrites the other's request: not more often than a holder
// renews.
func (in Input) ask(wait Output) Output {
	at := in.State.NotBefore
	if !in.State.Asked.IsZero() {
		at = later(at, in.State.Asked.Add(in.Timing.RetryPeriod))
	}
	if in.Now.Before(at) {
		if at.Before(wait.Wake) {
			wait.Wake = at
		}
		return wait
	}
	out := Output{Action: Ask, State: in.State, Term: in.Observation.Transitions}
	out.State.Asked = in.Now
	return out
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// request asks for a request, or for waiting until one may be sent.
func (in Input) request(action Action, term int32) Output {
	switch {
	case in.Busy:
		return Output{Action: Wait, State: in.State}
	case in.Now.Before(in.State.NotBefore):
		return Output{Action: Wait, State: in.State, Wake: in.State.NotBefore}
	default:
		return Output{Action: action, State: in.State, Term: term}
	}
}

// end asks for the end of the claim. The Lease is left to Idle, which releases it if it still names this incarnation.
func (in Input) end(reason Reason) Output {
	s := in.State
	s.Phase = Lost
	s.EndedAt = in.Now
	if in.State.Phase == Acquired || in.Returned {
		s.Phase = Idle
	}
	if reason == ReasonWorkReturned {
		// Work that cannot run here must not be started over and over.
		s.NotBefore = in.Now.Add(in.Timing.RetryPeriod)
	} else if reason.Planned() {
		s.NotBefore = time.Time{}
	}
	return Output{Action: End, State: s, Reason: reason}
}

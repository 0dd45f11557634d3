package election

import (
	"time"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election/heartbeat"
)

// Input is everything a step depends on.
type Input struct {
	// Self is the incarnation's identity, never empty.
	Self string
	// Now is the clock's reading for this step.
	Now time.Time
	// Desired is the state to reach.
	Desired Desired
	// Revoked ends any claim at once, and counts as Released.
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
	// Touch requests an update of the Lease, to write changed annotations.
	Touch bool
	// Ask has the step ask for the Lease while another incarnation holds it, see Claimant.SetAsk.
	Ask bool
	// Unanswered is set if the last acquisition failed and may have been carried out all the same:
	// nothing newer than what it was conditional on has been observed.
	Unanswered bool
	// Confirmed is the start of the last confirmed heartbeat of the incarnation's member. Right
	// reports whether it gives rights, see [Heartbeat].
	Confirmed time.Time
	Right     bool
}

// Output is what a step asks for.
type Output struct {
	Action Action
	// State to keep. The outcome of a request is added to it once known.
	State State
	// Reason of an End, or of waiting in Idle while the Lease is wanted.
	Reason Reason
	// Term to write, for Create, Acquire and Renew.
	Term int32
	// Wake is when to step again even if nothing changes; zero means only on a change.
	Wake time.Time
	// Settled is set when nothing is wanted, held, running or left to release.
	Settled bool
}

// Step decides what to do next. It is pure: the same input gives the same output, and all I/O is
// elsewhere. After any action but Wait, step again at once; while a request is under way, set Busy.
//
// [heartbeat.ClaimStep] decides what a claim does with its Lease. Step adds the work, asking, and
// changed annotations. The first row that applies is taken. "want" is Desired == Held && !Revoked,
// "leave" is Desired == Released || Revoked; ended, absent, acquire and so on are as in ClaimStep's
// table. Requests wait while Busy and until NotBefore.
//
//	Phase     Condition                                           Action           Next
//	Idle      !want, self, LeaseDuration since Confirmed          Wait, Settled    Idle
//	Idle      !want, Unanswered, < LeaseDuration since Confirmed  Release          Idle
//	Idle      held by another, Ask, not asked within RetryPeriod  Ask              Idle
//	Idle      held by another, asked and neither want nor Ask     Unask            Idle
//	Idle      otherwise                                           as ClaimStep     Acquired once created or acquired
//	held      Revoked                                             End              Lost, or Idle if nothing runs
//	held      ClaimStep ends the claim                            End              as above
//	held      work has returned                                   End              Idle
//	Acquired  leave                                               End              Idle
//	Acquired  otherwise                                           Start            Running
//	Running   leave                                               Drain            Draining
//	Draining  DrainTimeout since Drain, once                      Stuck            Draining
//	held      absent                                              Create term      same
//	held      Touch                                               Renew            same
//	held      otherwise                                           Wait             same
//	Lost      work has returned                                   Rest             Idle
//	Lost      its time is up, once                                Stuck            Lost
//	Lost      otherwise                                           Wait             Lost
//
// held is Acquired, Running or Draining. Draining continues after Stuck: the Lease is not released
// while work runs. The time of work whose claim was lost is up LeaseDuration after LastRenew, or
// DrainTimeout after Drain if that is earlier; stuckAt says what a suspended process has. The first
// row gives up a release: others may list the incarnation as ended by then, so nobody waits for it.
func Step(in Input) Output {
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
	return in.Desired == Held && !in.Revoked
}

func (in Input) leave() bool {
	return in.Desired == Released || in.Revoked
}

// claim returns the input for heartbeat.ClaimStep.
func (in Input) claim() heartbeat.ClaimInput {
	obs, s := in.Observation, in.State
	out := heartbeat.ClaimInput{
		Self: in.Self, Now: in.Now, Want: in.want(),
		Shard: heartbeat.ShardView{
			ShardRecord: heartbeat.ShardRecord{Holder: obs.Holder, Term: obs.Transitions, Released: obs.IsReleased()},
			Exists:      obs.Exists, Seen: obs.Seen, HighTerm: obs.HighTerm,
		},
		Ended:  obs.HolderEnded() || faults.TakenUnstruck && obs.Heartbeat != nil,
		State:  heartbeat.ClaimState{Term: s.Term, Asked: s.TermAsked, NotBefore: s.NotBefore},
		Timing: heartbeat.Timing(in.Timing),
		Busy:   in.Busy,
	}
	if s.held() {
		out.State.Phase = heartbeat.Held
	}
	if in.Right {
		out.Right.Until = in.Confirmed.Add(in.Timing.RenewDeadline)
	}
	return out
}

func (in Input) idle() Output {
	obs := in.Observation
	decided := heartbeat.ClaimStep(in.claim())
	out := Output{Action: Wait, State: in.State, Reason: Reason(decided.Reason), Wake: decided.Wake, Settled: decided.Settled}
	out.State.TermAsked = decided.State.Asked
	if decided.Reason == heartbeat.ReasonNoRight {
		out.Wake = in.Now.Add(in.Timing.RetryPeriod) // no event reports that a right begins
	}
	switch decided.Action {
	case heartbeat.ClaimCreate:
		out.Action, out.Term = Create, in.termOf(decided)
	case heartbeat.ClaimAcquire:
		out.Action, out.Term = Acquire, in.termOf(decided)
	case heartbeat.ClaimRelease:
		out.Action, out.Term = Release, obs.Transitions
	}
	over := in.Confirmed.Add(in.Timing.LeaseDuration)
	if !in.want() && obs.Exists && obs.Holder == in.Self && !in.Busy && !in.Now.Before(over) {
		return Output{Action: Wait, State: in.State, Settled: true}
	}
	if out.Settled && in.Unanswered && in.Now.Before(over) {
		// Otherwise nobody might be left who knows that the Lease is this incarnation's.
		if in.Now.Before(in.State.NotBefore) {
			out.Settled = false
			return out.by(in.State.NotBefore)
		}
		return Output{Action: Release, State: out.State, Term: in.State.TermAsked}
	}
	asks := in.Ask && in.want()
	switch heldByOther := obs.Exists && obs.Holder != "" && obs.Holder != in.Self; {
	case in.Busy:
	case decided.Reason == heartbeat.ReasonHeld && obs.Exists && asks && obs.NextHolder() != in.Self:
		return in.ask(out)
	case heldByOther && in.Right && !in.Revoked && !asks && obs.NextHolder() == in.Self:
		return in.unask(out)
	}
	return out
}

// termOf returns the term of a new claim.
func (in Input) termOf(decided heartbeat.ClaimOutput) int32 {
	if faults.TermKept {
		return max(1, in.Observation.HighTerm)
	}
	return decided.Shard.Term
}

func (in Input) held() Output {
	in.State.LastRenew = in.Confirmed
	decided := heartbeat.ClaimStep(in.claim())
	s := in.State
	switch {
	case in.Revoked:
		return in.end(ReasonRevoked)
	case decided.Action == heartbeat.ClaimEnd:
		return in.end(Reason(decided.Reason))
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
	switch {
	case decided.Action == heartbeat.ClaimCreate:
		return Output{Action: Create, State: s, Term: s.Term}
	case in.Touch && in.Observation.Exists && !in.Busy && !in.Now.Before(s.NotBefore):
		return Output{Action: Renew, State: s, Term: s.Term}
	}
	// The heartbeat continues only while this loop iterates, whatever it waits for.
	out := Output{Action: Wait, State: s, Wake: earlier(decided.Wake, in.Now.Add(in.Timing.RetryPeriod/2))}
	if in.Now.Before(s.NotBefore) {
		out.Wake = earlier(out.Wake, s.NotBefore)
	}
	if s.Phase == Draining && !s.Warned {
		out.Wake = earlier(out.Wake, in.drainEnd())
	}
	return out
}

// drainEnd returns when work that was asked to stop must have returned.
func (in Input) drainEnd() time.Time {
	if faults.StuckEarly {
		return in.State.DrainingSince
	}
	return in.State.DrainingSince.Add(in.DrainTimeout)
}

// stuckAt returns when the work of a lost claim must have returned. Work gets at least the time that
// it gets after a missed renew deadline, from the end of its claim, if the process was suspended for
// longer than the heartbeat lasts. Then its drain does not count either: the work may not have heard
// of it.
func (in Input) stuckAt() time.Time {
	s := in.State
	expiry := s.LastRenew.Add(in.Timing.LeaseDuration)
	at := later(expiry, s.EndedAt.Add(in.Timing.LeaseDuration-in.Timing.RenewDeadline))
	if !s.DrainingSince.IsZero() && s.EndedAt.Before(expiry) {
		at = earlier(at, in.drainEnd())
	}
	return at
}

func (in Input) lost() Output {
	s := in.State
	if in.Returned {
		s.Phase = Idle
		return Output{Action: Rest, State: s}
	}
	out := Output{Action: Wait, State: s}
	switch at := in.stuckAt(); {
	case s.Warned:
	case in.Now.Before(at):
		out.Wake = at
		if !s.DrainingSince.IsZero() {
			out.Wake = earlier(at, in.Now.Add(in.Timing.RetryPeriod/2)) // DrainTimeout may change
		}
	default:
		out.Action = Stuck
		out.State.Warned = true
	}
	return out
}

// ask asks the holder for the Lease, at most once per RetryPeriod: of two that ask, each overwrites
// the other's request.
func (in Input) ask(wait Output) Output {
	at := in.State.NotBefore
	if !in.State.Asked.IsZero() {
		at = later(at, in.State.Asked.Add(in.Timing.RetryPeriod))
	}
	if in.Now.Before(at) {
		return wait.by(at)
	}
	out := Output{Action: Ask, State: in.State, Term: in.Observation.Transitions}
	out.State.Asked = in.Now
	return out
}

// unask withdraws a request that the Lease still has. Otherwise the holder would take it for a new
// one when the shard is this member's again, and let go before anything is prepared.
func (in Input) unask(wait Output) Output {
	if in.Now.Before(in.State.NotBefore) {
		wait.Settled = false
		return wait.by(in.State.NotBefore)
	}
	return Output{Action: Unask, State: in.State, Term: in.Observation.Transitions}
}

// by returns the output with a Wake at that time at the latest.
func (o Output) by(at time.Time) Output {
	if o.Wake.IsZero() || at.Before(o.Wake) {
		o.Wake = at
	}
	return o
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

// end ends the claim. Idle then releases the Lease if it still names this incarnation.
func (in Input) end(reason Reason) Output {
	s := in.State
	s.Phase = Lost
	s.EndedAt = in.Now
	if in.State.Phase == Acquired || in.Returned {
		s.Phase = Idle
	}
	if reason == ReasonWorkReturned {
		// Work that cannot run here must not be restarted without a pause.
		s.NotBefore = in.Now.Add(in.Timing.RetryPeriod)
	} else if reason.Planned() {
		s.NotBefore = time.Time{}
	}
	return Output{Action: End, State: s, Reason: reason}
}

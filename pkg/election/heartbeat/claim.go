package heartbeat

import (
	"math"
	"time"
)

// ClaimPhase is the phase of the claim on one shard.
type ClaimPhase int

const (
	// Idle: nothing is held. The shard's Lease may still name this incarnation.
	Idle ClaimPhase = iota
	// Held: the shard's Lease was last seen to name this incarnation in the claim's term. The claim
	// is valid while the member's right is.
	Held
)

func (p ClaimPhase) String() string { return [...]string{"Idle", "Held"}[p] }

// ClaimAction is what a step of a claim asks for.
type ClaimAction int

const (
	// ClaimWait: nothing, until something changes or ClaimOutput.Wake has come.
	ClaimWait ClaimAction = iota
	// ClaimCreate the shard's Lease with ClaimOutput.Shard.
	ClaimCreate
	// ClaimAcquire: update the shard's Lease with ClaimOutput.Shard, which names this incarnation.
	ClaimAcquire
	// ClaimRelease: update the shard's Lease with ClaimOutput.Shard, which names nobody.
	ClaimRelease
	// ClaimEnd: the claim has ended, for ClaimOutput.Reason. Its work must stop.
	ClaimEnd
)

func (a ClaimAction) String() string {
	return [...]string{"Wait", "Create", "Acquire", "Release", "End"}[a]
}

// ClaimState is what a claim keeps between steps. The zero value is Idle.
type ClaimState struct {
	// Phase of the claim.
	Phase ClaimPhase
	// Term of the current or last claim.
	Term int32
	// Asked is the highest term that this incarnation has ever requested. A Lease that names the
	// incarnation in another term is forged.
	Asked int32
	// NotBefore is when the next request may be sent after a failed one.
	NotBefore time.Time
}

// Valid reports whether self may start a write for the shard at now, which must be a fresh reading
// of the process's clock. It is for the fence: view and right must be current too, whatever the
// last step knew.
func (s ClaimState) Valid(self string, view ShardView, right Right, now time.Time) bool {
	return s.Phase == Held && right.Valid(now) && view.Exists && view.Holder == self && view.Term == s.Term
}

// Taken returns the state after a ClaimCreate or ClaimAcquire of term succeeded.
func (s ClaimState) Taken(term int32) ClaimState {
	s.Phase, s.Term, s.NotBefore = Held, term, time.Time{}
	return s
}

// Done returns the state after any other request succeeded.
func (s ClaimState) Done() ClaimState {
	s.NotBefore = time.Time{}
	return s
}

// Failed returns the state after a request that started at start failed or got no answer. After a
// conflict the caller reads the Lease again, and the next request may follow at once.
func (s ClaimState) Failed(start time.Time, conflict bool, timing Timing) ClaimState {
	s.NotBefore = start
	if !conflict {
		s.NotBefore = start.Add(timing.RetryPeriod)
	}
	return s
}

// ClaimInput is everything a step of a claim depends on.
type ClaimInput struct {
	// Self is the incarnation, never empty.
	Self string
	// Now is the clock's reading for this step.
	Now time.Time
	// Want is set to acquire the shard's Lease when it is free. Leave is set to give up a held
	// claim. With neither, a held claim is kept and nothing is acquired.
	Want, Leave bool
	// Right of the incarnation, from the heartbeat's last Step.
	Right Right
	// Shard is what is known about the shard's Lease.
	Shard ShardView
	// Ended is set if the Lease of the holder's member lists the holder as ended. Once true it
	// stays true.
	Ended bool
	// State as the last step, or the last answer, left it.
	State ClaimState
	// Timing of the fleet.
	Timing Timing
	// Busy is set while a request of this claim is under way.
	Busy bool
	// Working is set while work of this claim has not returned.
	Working bool
}

// ClaimOutput is what a step of a claim asks for.
type ClaimOutput struct {
	// Action to carry out.
	Action ClaimAction
	// State to keep.
	State ClaimState
	// Shard is what to write on the shard's Lease, for ClaimCreate, ClaimAcquire and ClaimRelease.
	Shard ShardRecord
	// Reason of a ClaimEnd, or of waiting while the shard is wanted.
	Reason Reason
	// Wake is when to step again even if nothing changes; zero means only on a change.
	Wake time.Time
	// Settled is set when nothing is wanted, held, working or left to release.
	Settled bool
}

// ClaimStep decides what the claim on one shard does next. It is pure. After any action but
// ClaimWait, step again at once; while a request is under way, set Busy.
//
// The first row that applies is taken. The holder is the one that the shard's Lease names. "ended"
// means listed as ended on its member's Lease, as [JudgeStep] does; "still" means not seen to
// change for LeaseDuration. Requests wait while Busy and until NotBefore.
//
//	Phase  Condition                                                     Action    Next
//	Held   the right is not valid                                        End       Idle
//	Held   holder other or empty, or self with another term              End       Idle
//	Held   leave, and nothing works                                      End       Idle
//	Held   absent                                                        Create    Held, same term
//	Held   otherwise                                                     Wait      Held
//	Idle   !want, nothing works, holder self, in a term asked for        Release   Idle
//	Idle   !want, nothing works, holder self, and still                  Release   Idle
//	Idle   !want                                                         Wait      Idle
//	Idle   something works, the right is not valid, or nothing known     Wait      Idle
//	Idle   absent for LeaseDuration                                      Create    Held when done, term+1
//	Idle   holder empty, and released                                    Acquire   Held when done, term+1
//	Idle   holder self, in the term that was asked for                   Acquire   Held when done, term+1
//	Idle   holder empty, self, or no member's, and still                 Acquire   Held when done, term+1
//	Idle   holder ended                                                  Acquire   Held when done, term+1
//	Idle   otherwise                                                     Wait      Idle
func ClaimStep(in ClaimInput) ClaimOutput {
	if in.State.Phase == Held {
		return in.held()
	}
	return in.idle()
}

func (in ClaimInput) held() ClaimOutput {
	s, o := in.State, in.Shard
	switch {
	case in.Right.Until.IsZero():
		return in.end(ReasonNoRight)
	case !in.Right.Valid(in.Now):
		return in.end(ReasonRenewDeadline)
	case o.Exists && o.Holder == "":
		return in.end(ReasonCleared)
	case o.Exists && o.Holder != in.Self:
		return in.end(ReasonOtherHolder)
	case o.Exists && o.Term != s.Term:
		return in.end(ReasonTermChanged)
	case in.Leave && !in.Working:
		return in.end(ReasonDrained)
	}
	out := ClaimOutput{State: s}
	if !o.Exists {
		out = in.take(ClaimCreate, s.Term)
	}
	if out.Action == ClaimWait && (out.Wake.IsZero() || out.Wake.After(in.Right.Until)) {
		out.Wake = in.Right.Until
	}
	return out
}

func (in ClaimInput) idle() ClaimOutput {
	o := in.Shard
	if !in.Want {
		if !in.Working && o.Exists && o.Holder == in.Self {
			at := time.Time{}
			if !in.asked() {
				// Somebody has forged the name, perhaps over that of a holder that has not seen
				// that yet.
				at = o.Seen.Add(in.Timing.LeaseDuration)
			}
			out := in.request(ClaimRelease, at)
			if out.Action == ClaimRelease {
				out.Shard = o.released()
			}
			return out
		}
		return ClaimOutput{State: in.State, Settled: !in.Busy && !in.Working}
	}
	switch {
	case in.Working:
		return in.wait("", time.Time{})
	case !in.Right.Valid(in.Now):
		return in.wait(ReasonNoRight, time.Time{})
	case !o.Known():
		return in.wait(ReasonUnknown, time.Time{})
	case o.HighTerm == math.MaxInt32:
		return in.wait(ReasonTermsExhausted, time.Time{})
	}
	still := o.Seen.Add(in.Timing.LeaseDuration)
	next := o.HighTerm + 1
	switch {
	case !o.Exists && in.Now.Before(still):
		return in.wait(ReasonAbsent, still)
	case !o.Exists:
		return in.take(ClaimCreate, next)
	case o.Holder == "" && o.Released, o.Holder == in.Self && in.asked():
		return in.take(ClaimAcquire, next)
	case in.Ended:
		return in.take(ClaimAcquire, next)
	case MemberOf(o.Holder) != "" && o.Holder != in.Self:
		return in.wait(ReasonHeld, time.Time{})
	case in.Now.Before(still):
		return in.wait(ReasonHeld, still)
	default:
		return in.take(ClaimAcquire, next)
	}
}

// asked reports whether the Lease's term is one that this incarnation has asked for. Terms begin
// at 1.
func (in ClaimInput) asked() bool { return in.Shard.Term > 0 && in.Shard.Term == in.State.Asked }

// take requests the shard's Lease in term.
func (in ClaimInput) take(action ClaimAction, term int32) ClaimOutput {
	out := in.request(action, time.Time{})
	if out.Action == ClaimWait {
		return out
	}
	out.Shard = in.Shard.held(in.Self, term)
	if action == ClaimCreate {
		out.Shard.Version, out.Shard.UID = 0, ""
	}
	out.State.Asked = max(out.State.Asked, term)
	return out
}

func (in ClaimInput) wait(reason Reason, wake time.Time) ClaimOutput {
	out := ClaimOutput{State: in.State, Reason: reason}
	if wake.After(in.Now) {
		out.Wake = wake
	}
	return out
}

// request returns the action, or a wait until a request may be sent.
func (in ClaimInput) request(action ClaimAction, at time.Time) ClaimOutput {
	out := ClaimOutput{State: in.State}
	if may, wake := allowed(in.Busy, in.Now, later(at, in.State.NotBefore)); may {
		out.Action = action
	} else {
		out.Wake = wake
	}
	return out
}

func (in ClaimInput) end(reason Reason) ClaimOutput {
	s := in.State
	s.Phase, s.NotBefore = Idle, time.Time{}
	return ClaimOutput{Action: ClaimEnd, State: s, Reason: reason}
}

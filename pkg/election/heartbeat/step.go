package heartbeat

import (
	"slices"
	"time"
)

// Input is everything a step of the heartbeat depends on.
type Input struct {
	// Self is the incarnation, never empty.
	Self string
	// Now is the clock's reading for this step.
	Now time.Time
	// Want is false once the member leaves.
	Want bool
	// Member is what is known about the member's own Lease.
	Member MemberView
	// Through is the version up to which all writes to Leases of members and shards are known.
	Through Version
	// State as the last step, or the last answer, left it.
	State State
	// Timing of the fleet.
	Timing Timing
	// Busy is set while a request is under way.
	Busy bool
	// Turned is when the loops without which the member does no work last iterated: the earliest of
	// those times.
	Turned time.Time
	// Holding is set while any claim is held, or work of a claim has not returned.
	Holding bool
	// Named are the incarnations of this member that the known shards' Leases name. The order does
	// not matter.
	Named []string
	// Foreign is set while a live member follows another protocol, see MemberView.Foreign.
	Foreign bool
	// Spread, in [0, 1), selects when within the allowed time the member reads all Leases. It
	// differs between members, so that they do not all read at once after an outage.
	Spread float64
}

// Output is what a step of the heartbeat asks for.
type Output struct {
	// Action to carry out.
	Action Action
	// State to keep.
	State State
	// Right of the incarnation from now on.
	Right Right
	// Member is what to write, for Create, Acquire, Renew and Release.
	Member MemberRecord
	// Reason of an End, or of an unusual wait.
	Reason Reason
	// Wake is when to step again even if nothing changes; zero means only on a change.
	Wake time.Time
	// Settled is set when this incarnation has nothing left to do.
	Settled bool
}

// Step decides what the heartbeat does next. It is pure. After any action but Wait, step again at
// once; while a request is under way, set Busy.
//
// The first row that applies is taken. "ended" means listed as ended on the Lease. A heartbeat is
// pending from its answer until Through reaches its version. The deadline is RenewDeadline after
// the start of the last confirmed heartbeat, or of the acquisition if none is confirmed. The watch
// hangs while Through stays what it was at the answer. "soon" means that 2/5 of RenewDeadline or
// less is left until the deadline, and that of the time left at the answer a third to two thirds,
// by Spread, has passed. Requests wait while Busy and until NotBefore.
//
//	Phase    Condition                                              Action     Next
//	Waiting  !Want                                                  End        Over
//	Waiting  self is ended                                          End        Over
//	Waiting  nothing known of the Lease, or Foreign                 Wait       Waiting
//	Waiting  absent                                                 Create     Live when done
//	Waiting  holder empty, self, or ended                           Acquire    Live when done
//	Waiting  holder not seen to renew for LeaseDuration             Acquire    Live when done; lists the holder as ended
//	Waiting  otherwise                                              Wait       Waiting
//	Live     now >= deadline                                        End        Over
//	Live     self is ended                                          End        Over
//	Live     holder other or empty                                  End        Over
//	Live     !Want, nothing held                                    End        Over
//	Live     absent                                                 Create     Live
//	Live     pending for RetryPeriod and the watch hangs, or soon   Read       Live
//	Live     pending, or RetryPeriod not over since the last one    Wait       Live
//	Live     loops not iterated since the last one was sent         Wait       Live
//	Live     otherwise                                              Renew      Live
//	Over     nothing held, holder self, self not ended              Release    Over; lists self as ended
//	Over     otherwise                                              Wait       Over
//
// Renew and Acquire drop from the list the incarnations that no shard's Lease names, provided that
// everything written up to the Lease's version is known.
func Step(in Input) Output {
	switch in.State.Phase {
	case Waiting:
		return in.waiting()
	case Live:
		return in.live()
	default:
		return in.over()
	}
}

func (in Input) waiting() Output {
	m := in.Member
	wait := Output{State: in.State}
	switch {
	case !in.Want:
		return in.end(ReasonLeft)
	case m.HasEnded(in.Self):
		return in.end(ReasonStruck)
	case !m.Known():
		wait.Reason = ReasonUnknown
		return wait
	case in.Foreign:
		wait.Reason, wait.Wake = ReasonProtocol, in.Now.Add(in.Timing.RetryPeriod)
		return wait
	case !m.Exists:
		return in.beat(Create, in.keep())
	case m.Holder == "" || m.Holder == in.Self || m.HasEnded(m.Holder):
		return in.beat(Acquire, in.keep())
	}
	if at := m.endableAt(m.Holder, in.Timing.LeaseDuration); in.Now.Before(at) {
		wait.Reason, wait.Wake = ReasonHeld, at
		return wait
	}
	return in.beat(Acquire, with(in.keep(), m.Holder))
}

func (in Input) live() Output {
	in.State = in.confirm()
	s, m := in.State, in.Member
	switch {
	case !in.Now.Before(s.Deadline(in.Timing)):
		return in.end(ReasonRenewDeadline)
	case m.HasEnded(in.Self):
		return in.end(ReasonStruck)
	case m.Exists && m.Holder == "":
		return in.end(ReasonCleared)
	case m.Exists && m.Holder != in.Self:
		return in.end(ReasonOtherHolder)
	case !in.Want && !in.Holding:
		return in.end(ReasonLeft)
	case !m.Exists:
		return in.bounded(in.beat(Create, m.Ended))
	case s.Pending.Version != 0:
		read := in.soon()
		if s.Pending.Through == 0 {
			in.State.Pending.Through = in.Through
		}
		if in.Through == in.State.Pending.Through {
			// The watch hangs. Reading everything would not help a watch that is only delayed.
			read = earlier(read, s.Pending.Answered.Add(in.Timing.RetryPeriod))
		}
		return in.bounded(in.request(Read, read))
	}
	due := s.Sent.Add(in.Timing.RetryPeriod)
	switch {
	case in.Now.Before(due):
		return in.bounded(Output{State: s, Wake: due})
	case in.Turned.Before(s.Sent):
		return in.bounded(Output{State: s, Reason: ReasonHung})
	default:
		return in.bounded(in.beat(Renew, in.keep()))
	}
}

// soon returns when the member must read all Leases, so that a stored heartbeat is confirmed in
// time. Not earlier: after an outage all members are late, and the watch, which costs less, is
// about to be back.
func (in Input) soon() time.Time {
	deadline, answered := in.State.Deadline(in.Timing), in.State.Pending.Answered
	left := float64(deadline.Sub(answered))
	return later(deadline.Add(-2*in.Timing.RenewDeadline/5), answered.Add(time.Duration(left*(1+in.Spread)/3)))
}

// confirm returns the state after the pending heartbeat was confirmed, if it is.
func (in Input) confirm() State {
	s := in.State
	// A late confirmation does not count: a right never revives.
	if s.Pending.Version != 0 && s.Pending.Version <= in.Through && in.Now.Before(s.Deadline(in.Timing)) {
		s.Confirmed, s.Pending = s.Pending.Start, Beat{}
	}
	return s
}

func (in Input) over() Output {
	m := in.Member
	if !in.Holding && m.Exists && m.Holder == in.Self && !m.HasEnded(in.Self) {
		out := in.request(Release, time.Time{})
		out.Member = m.ended(in.Self)
		return out
	}
	return Output{State: in.State, Settled: !in.Busy && !in.Holding}
}

// keep returns the ended incarnations to keep on the list: those that a shard's Lease may name.
func (in Input) keep() []string {
	if in.Through < in.Member.Version {
		return in.Member.Ended
	}
	var kept []string
	for _, incarnation := range in.Member.Ended {
		if slices.Contains(in.Named, incarnation) {
			kept = append(kept, incarnation)
		}
	}
	return kept
}

// beat returns a heartbeat that lists these incarnations as ended.
func (in Input) beat(action Action, ended []string) Output {
	out := in.request(action, time.Time{})
	if out.Action != Wait {
		out.Member = in.Member.beaten(in.Self, ended, in.Now, in.Timing.LeaseDuration)
		if action == Create {
			out.Member.Version, out.Member.UID = 0, ""
		}
		out.State.Sent = in.Now
	}
	return out
}

// request returns the action, or a wait until a request may be sent.
func (in Input) request(action Action, at time.Time) Output {
	out := Output{State: in.State, Right: in.State.right(in.Timing)}
	if may, wake := allowed(in.Busy, in.Now, later(at, in.State.NotBefore)); may {
		out.Action = action
	} else {
		out.Wake = wake
	}
	return out
}

// allowed reports whether a request that must not be sent before at may be sent now, or else when
// to step again; zero while busy, because the answer wakes the loop.
func allowed(busy bool, now, at time.Time) (may bool, wake time.Time) {
	switch {
	case busy:
		return false, time.Time{}
	case now.Before(at):
		return false, at
	default:
		return true, time.Time{}
	}
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

// bounded makes a live incarnation step again at its deadline at the latest.
func (in Input) bounded(out Output) Output {
	out.Right = in.State.right(in.Timing)
	if deadline := in.State.Deadline(in.Timing); out.Wake.IsZero() || out.Wake.After(deadline) {
		out.Wake = deadline
	}
	return out
}

func (in Input) end(reason Reason) Output {
	s := in.State
	s.Phase, s.Pending, s.NotBefore = Over, Beat{}, time.Time{}
	return Output{Action: End, State: s, Reason: reason}
}

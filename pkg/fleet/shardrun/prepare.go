package shardrun

import "time"

// PrepareStep decides the next action of the lane that prepares ahead of a claim. Except for Wait
// and End, carry the action out and step again with its answer. Fill and
// Discard run beside the lane, and are answered when they are done.
//
// The first row that applies decides. "prepares" means Wanted or Standby, "keeps" means Owned or
// Standby. "filled" and "unfilled" are answers to Fill of this Number. Others change nothing.
//
//	Stage       Condition                                  Action    Next
//	any         asking, and not Warm, Free, Owned alone    Unask     same
//	Resting     has a slot                                 Yield     same
//	Resting     Ending                                     End       same
//	Resting     not prepares, or before Until              Wait      same
//	Resting     otherwise                                  Wait      Queued
//	Queued      Slot, and Ending or not prepares           Yield     Resting, Until Retry
//	Queued      Slot, and Claimed or work not Idle         Yield     Resting, Until Retry
//	Queued      Slot                                       Fill      Filling, next Number, Until Longest
//	Queued      Ending, or not prepares                    Wait      Resting
//	Filling     unfilled, not Judged                       Discard   Discarding
//	Filling     filled, or unfilled                        Wait      Warm
//	Filling     Rejected, or Free and since Until, once    Cancel    same
//	Warm        Rejected                                   Discard   Discarding
//	Warm        Judged                                     Wait      same
//	Warm        Ending, or not keeps                       Discard   Discarding
//	Warm        asking, Patience since Ask                 Discard   Discarding
//	Warm        Standby, has a slot                        Yield     same
//	Warm        neither Standby nor asking                 Ask       same, Until Patience
//	Discarding  discarded                                  Wait      Resting, Until its Pause
//	any         otherwise                                  Wait      same
//
// A Judged preparation belongs to the work: [WorkStep] takes it, and leaves Resting, or rejects it.
// One that could not be filled is Warm while it is Judged: the work has the error too.
func PrepareStep(in Input) Output {
	in.Answer = in.fitting()
	p := in.State.Preparation
	if p.Asking && !in.asks() {
		if p.Asking = false; p.Stage == Warm {
			p.Until = time.Time{}
		}
		return in.prepared(Unask, p)
	}
	switch p.Stage {
	case Resting:
		return in.resting()
	case Queued:
		return in.queued()
	case Filling:
		return in.filling()
	case Warm:
		return in.warm()
	default:
		if in.Answer.To == Discard {
			return in.prepared(Wait, p.rest(in.Now, in.Answer.Pause)).again(in)
		}
		return in.prepared(Wait, p)
	}
}

// asks reports whether the lane may ask the holder, or go on asking.
func (in Input) asks() bool {
	p, goal := in.State.Preparation, in.State.Goal
	return p.Stage == Warm && p.Hold == Free && goal.Owned && !goal.Standby && !in.Ending
}

// fitting returns the answer, or none if it answers the filling of another preparation.
func (in Input) fitting() Answer {
	if in.Answer.To == Fill && in.Answer.Number != in.State.Preparation.Number {
		return Answer{}
	}
	return in.Answer
}

// prepared returns an output that leaves the preparation as p.
func (in Input) prepared(a Action, p Preparation) Output {
	out := Output{Action: a, State: in.State}
	out.State.Preparation = p
	return out
}

// again steps from the state of an output, without the answer, which is used up.
func (out Output) again(in Input) Output {
	in.State, in.Answer = out.State, Answer{}
	return PrepareStep(in)
}

// rest returns what remains of a preparation that is over.
func (p Preparation) rest(now time.Time, pause time.Duration) Preparation {
	return Preparation{
		Stage: Resting, Number: p.Number, Slot: p.Slot, Asking: p.Asking, Until: now.Add(pause),
	}
}

func (in Input) resting() Output {
	p := in.State.Preparation
	out := in.prepared(Wait, p)
	switch {
	case p.Slot:
		p.Slot = false
		return in.prepared(Yield, p)
	case in.Ending:
		out.Action = End
	case !in.State.Goal.prepares():
	case in.Now.Before(p.Until):
		out.Wake = p.Until
	default:
		p.Stage, p.Until = Queued, time.Time{}
		return in.prepared(Wait, p)
	}
	return out
}

func (in Input) queued() Output {
	p := in.State.Preparation
	unwanted := in.Ending || !in.State.Goal.prepares()
	// The work of a claim that has ended may not have returned, and may look for a preparation.
	held := in.Claimed || in.State.Work.Stage != Idle
	switch {
	case in.Slot && (unwanted || held):
		return in.prepared(Yield, p.rest(in.Now, in.Retry))
	case in.Slot:
		p.Stage, p.Slot, p.Until = Filling, true, in.Now.Add(in.Longest)
		p.Number++
		return in.prepared(Fill, p)
	case unwanted:
		p.Stage = Resting
		return in.prepared(Wait, p).again(in)
	}
	return in.prepared(Wait, p)
}

func (in Input) filling() Output {
	p := in.State.Preparation
	limited := p.Hold == Free && !p.Cancelled && !p.Until.IsZero()
	switch {
	case in.Answer.To == Fill && in.Answer.Failed && p.Hold != Judged:
		return in.discard(Unfilled)
	case in.Answer.To == Fill:
		p.Stage, p.Until = Warm, time.Time{}
		return in.prepared(Wait, p).again(in)
	case p.Hold == Rejected && !p.Cancelled, limited && !in.Now.Before(p.Until):
		p.Cancelled = true
		return in.prepared(Cancel, p)
	}
	out := in.prepared(Wait, p)
	if limited {
		out.Wake = p.Until
	}
	return out
}

func (in Input) warm() Output {
	p, goal := in.State.Preparation, in.State.Goal
	switch {
	case p.Hold == Rejected:
		return in.discard(Unfit)
	case p.Hold == Judged:
		return in.prepared(Wait, p)
	case in.Ending || !goal.keeps():
		return in.discard(Unwanted)
	case p.Asking && !in.Now.Before(p.Until):
		return in.discard(Ungiven)
	case goal.Standby && p.Slot:
		p.Slot = false
		return in.prepared(Yield, p)
	case !goal.Standby && !p.Asking:
		p.Asking, p.Until = true, in.Now.Add(in.Patience)
		return in.prepared(Ask, p)
	}
	out := in.prepared(Wait, p)
	out.Wake = p.Until
	return out
}

// discard discards the preparation. One that is unwanted anyway does not count as failed.
func (in Input) discard(why Why) Output {
	p := in.State.Preparation
	switch {
	case p.Hold == Rejected:
		why = Unfit
	case in.Ending || !in.State.Goal.keeps():
		why = Unwanted
	}
	p.Stage, p.Asking, p.Until = Discarding, false, time.Time{}
	out := in.prepared(Discard, p)
	out.Why = why
	return out
}

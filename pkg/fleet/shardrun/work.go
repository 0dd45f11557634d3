package shardrun

// WorkStep decides the next action under a claim. Carry the action out, and step again with its
// answer, until the action is Return. Wait lasts until Output.Wake, or until the work should stop.
//
// The first row that applies decides. "fails" and "rivals" are those of the answer. "offered" means
// a preparation that is Filling or Warm, and Free.
//
//	Stage       Condition           Action    Next         The preparation
//	Idle        Begun               Preflight Checking
//	Checking    fails, or Stopped   Return    Idle
//	Checking    rivals              Prepare   Succeeding   rejected
//	Checking    offered             Judge     Judging      Judged
//	Checking    otherwise           Build     Building
//	Judging     fails, Stopped      Return    Idle         rejected
//	Judging     fails               Build     Building     rejected
//	Judging     otherwise           *         *            Resting, Until Retry
//	Succeeding  fails, Stopped      Return    Idle
//	Succeeding  fails               Preflight Checking
//	Succeeding  Stopped             Drop      Dropping
//	Succeeding  otherwise           Await     Waiting
//	Waiting     fails               Drop      Dropping
//	Waiting     rivals              Await     Waiting
//	Waiting     otherwise           Join      Joining
//	Joining     fails, not Stopped  Drop      Dropping, Again
//	Joining     otherwise           *         *
//	Building    fails, not Stopped  Wait      Pausing
//	Building    fails               Return    Idle
//	Building    otherwise           *         *
//	Pausing     Stopped             Return    Idle
//	Pausing     since Until         Build     Building
//	Pausing     otherwise           Wait      Pausing
//	Running     fails, not Stopped  Wait      Pausing
//	Running     otherwise           Return    Idle
//	Dropping    Again, not Stopped  Build     Building
//	Dropping    otherwise           Return    Idle
//
// In the rows with * the work has an instance in hand: it drops it if Stopped, otherwise runs it.
func WorkStep(in Input) Output {
	failed := in.Answer.Failed
	switch in.State.Work.Stage {
	case Idle:
		if in.Begun == 0 {
			return Output{Action: Wait, State: in.State}
		}
		in.State.Work = Work{Stage: Checking, Term: in.Begun}
		return Output{Action: Preflight, State: in.State}
	case Checking:
		return in.checked()
	case Judging:
		return in.judged()
	case Succeeding:
		switch {
		case failed && in.Stopped:
			return in.work(Return, Idle)
		case failed:
			return in.work(Preflight, Checking)
		case in.Stopped:
			return in.work(Drop, Dropping)
		}
		return in.work(Await, Waiting)
	case Waiting:
		switch {
		case failed:
			return in.work(Drop, Dropping)
		case in.Answer.Rivals:
			return in.work(Await, Waiting)
		}
		return in.work(Join, Joining)
	case Joining:
		if failed && !in.Stopped {
			out := in.work(Drop, Dropping)
			out.State.Work.Again = true
			return out
		}
		return in.start()
	case Building:
		if failed {
			return in.pause()
		}
		return in.start()
	case Pausing:
		return in.pausing()
	case Running:
		if failed {
			return in.pause()
		}
		return in.work(Return, Idle)
	default:
		if in.State.Work.Again && !in.Stopped {
			return in.work(Build, Building)
		}
		return in.work(Return, Idle)
	}
}

// work returns an output that leaves the work in a stage.
func (in Input) work(a Action, stage WorkStage) Output {
	out := Output{Action: a, State: in.State}
	out.State.Work = Work{Stage: stage, Term: in.State.Work.Term}
	return out
}

func (in Input) checked() Output {
	switch {
	case in.Answer.Failed || in.Stopped:
		return in.work(Return, Idle)
	case in.Answer.Rivals:
		out := in.work(Prepare, Succeeding)
		out.State.Preparation = out.State.Preparation.rejected()
		return out
	case in.State.Preparation.offered():
		out := in.work(Judge, Judging)
		out.State.Preparation.Hold = Judged
		return out
	}
	return in.work(Build, Building)
}

func (in Input) judged() Output {
	if in.Answer.Failed {
		out := in.work(Build, Building)
		if in.Stopped {
			out = in.work(Return, Idle)
		}
		out.State.Preparation = out.State.Preparation.rejected()
		return out
	}
	in.State.Preparation = in.State.Preparation.rest(in.Now, in.Retry)
	return in.start()
}

// start runs the instance in hand, unless the work should stop.
func (in Input) start() Output {
	if in.Stopped {
		return in.work(Drop, Dropping)
	}
	return in.work(Run, Running)
}

// pause waits for the next attempt, unless the work should stop.
func (in Input) pause() Output {
	if in.Stopped {
		return in.work(Return, Idle)
	}
	out := in.work(Wait, Pausing)
	out.State.Work.Until = in.Now.Add(in.Answer.Pause)
	out.Wake = out.State.Work.Until
	return out
}

func (in Input) pausing() Output {
	switch until := in.State.Work.Until; {
	case in.Stopped:
		return in.work(Return, Idle)
	case in.Now.Before(until):
		return Output{Action: Wait, State: in.State, Wake: until}
	}
	return in.work(Build, Building)
}

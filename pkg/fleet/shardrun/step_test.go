package shardrun

import (
	"testing"
	"time"
)

const (
	retry    = 2 * time.Second
	longest  = time.Minute
	patience = 10 * time.Second
)

var (
	owned   = Goal{Owned: true}
	wanted  = Goal{Owned: true, Wanted: true}
	standby = Goal{Standby: true}
)

// TestPrepareStep has a case for each row of PrepareStep's table.
func TestPrepareStep(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	soon := now.Add(time.Second)
	answer := func(to Action, failed bool) Answer {
		return Answer{To: to, Number: 3, Failed: failed, Pause: time.Minute}
	}
	for _, c := range []struct {
		row    string
		goal   Goal
		before Preparation
		in     Input
		action Action
		why    Why
		after  Preparation
		wake   time.Time
	}{
		{
			row: "nothing is wanted", before: Preparation{Number: 3}, action: Wait,
			after: Preparation{Number: 3},
		},
		{row: "it is owned, and nobody holds it", goal: owned, action: Wait},
		{row: "it is to end", in: Input{Ending: true}, goal: wanted, action: End},
		{
			row: "it has a slot left", before: Preparation{Slot: true, Until: soon}, action: Yield,
			after: Preparation{Until: soon},
		},
		{
			row: "it still asks when it was taken", goal: owned,
			before: Preparation{Asking: true, Slot: true, Until: soon},
			action: Unask, after: Preparation{Slot: true, Until: soon},
		},
		{
			row: "it pauses", goal: wanted, before: Preparation{Until: soon}, action: Wait,
			after: Preparation{Until: soon}, wake: soon,
		},
		{
			row: "it is wanted", goal: wanted, before: Preparation{Until: now}, action: Wait,
			after: Preparation{Stage: Queued},
		},
		{row: "it is a standby", goal: standby, action: Wait, after: Preparation{Stage: Queued}},

		{
			row: "no slot", goal: wanted, before: Preparation{Stage: Queued}, action: Wait,
			after: Preparation{Stage: Queued},
		},
		{
			row: "no slot and not wanted", goal: owned, before: Preparation{Stage: Queued},
			action: Wait,
		},
		{
			row: "no slot and to end", goal: wanted, in: Input{Ending: true},
			before: Preparation{Stage: Queued}, action: End,
		},
		{
			row: "a slot", goal: wanted, in: Input{Slot: true},
			before: Preparation{Stage: Queued, Number: 3},
			action: Fill, after: Preparation{Stage: Filling, Number: 4, Slot: true, Until: now.Add(longest)},
		},
		{
			row: "a slot and a claim", goal: wanted, in: Input{Slot: true, Claimed: true},
			before: Preparation{Stage: Queued},
			action: Yield, after: Preparation{Until: now.Add(retry)},
		},
		{
			row: "a slot and not wanted", goal: owned, in: Input{Slot: true},
			before: Preparation{Stage: Queued},
			action: Yield, after: Preparation{Until: now.Add(retry)},
		},

		{
			row: "it is filled, and asks", goal: wanted, in: Input{Answer: answer(Fill, false)},
			before: Preparation{Stage: Filling, Number: 3, Slot: true},
			action: Ask,
			after:  Preparation{Stage: Warm, Number: 3, Slot: true, Asking: true, Until: now.Add(patience)},
		},
		{
			row: "another one is filled", goal: wanted, in: Input{Answer: answer(Fill, false)},
			before: Preparation{Stage: Filling, Number: 4, Slot: true},
			action: Wait, after: Preparation{Stage: Filling, Number: 4, Slot: true},
		},
		{
			row: "another one is not", goal: wanted, in: Input{Answer: answer(Fill, true)},
			before: Preparation{Stage: Filling, Number: 4, Slot: true},
			action: Wait, after: Preparation{Stage: Filling, Number: 4, Slot: true},
		},
		{
			row: "it cannot be filled", goal: wanted, in: Input{Answer: answer(Fill, true)},
			before: Preparation{Stage: Filling, Number: 3, Slot: true},
			action: Discard, why: Unfilled,
			after: Preparation{Stage: Discarding, Number: 3, Slot: true},
		},
		{
			row: "it cannot be filled and is not wanted", in: Input{Answer: answer(Fill, true)},
			before: Preparation{Stage: Filling, Number: 3},
			action: Discard, why: Unwanted, after: Preparation{Stage: Discarding, Number: 3},
		},
		{
			row: "it cannot be filled and is judged", goal: owned,
			in:     Input{Answer: answer(Fill, true)},
			before: Preparation{Stage: Filling, Number: 3, Hold: Judged},
			action: Wait, after: Preparation{Stage: Warm, Number: 3, Hold: Judged},
		},
		{
			row: "it takes its time", goal: wanted,
			before: Preparation{Stage: Filling, Number: 3, Slot: true, Until: soon},
			action: Wait, after: Preparation{Stage: Filling, Number: 3, Slot: true, Until: soon}, wake: soon,
		},
		{
			row: "it takes too long", goal: wanted,
			before: Preparation{Stage: Filling, Number: 3, Slot: true, Until: now},
			action: Cancel, after: Preparation{Stage: Filling, Number: 3, Slot: true, Until: now, Cancelled: true},
		},
		{
			row: "it takes too long, once", goal: wanted,
			before: Preparation{Stage: Filling, Until: now, Cancelled: true},
			action: Wait, after: Preparation{Stage: Filling, Until: now, Cancelled: true},
		},
		{
			row: "it takes long and is judged", goal: owned,
			before: Preparation{Stage: Filling, Hold: Judged, Until: now},
			action: Wait, after: Preparation{Stage: Filling, Hold: Judged, Until: now},
		},
		{
			row: "it is filled late, and asks", goal: wanted, in: Input{Answer: answer(Fill, false)},
			before: Preparation{Stage: Filling, Number: 3, Until: now},
			action: Ask, after: Preparation{Stage: Warm, Number: 3, Asking: true, Until: now.Add(patience)},
		},
		{
			row: "it is rejected while it is filled", goal: owned,
			before: Preparation{Stage: Filling, Hold: Rejected},
			action: Cancel, after: Preparation{Stage: Filling, Hold: Rejected, Cancelled: true},
		},
		{
			row: "once", goal: owned,
			before: Preparation{Stage: Filling, Hold: Rejected, Cancelled: true},
			action: Wait, after: Preparation{Stage: Filling, Hold: Rejected, Cancelled: true},
		},
		{
			row: "what was called off has come to its end", goal: owned,
			in:     Input{Answer: answer(Fill, true)},
			before: Preparation{Stage: Filling, Number: 3, Hold: Rejected, Cancelled: true},
			action: Discard, why: Unfit,
			after: Preparation{Stage: Discarding, Number: 3, Hold: Rejected, Cancelled: true},
		},
		{
			row: "it is not wanted while it is filled", before: Preparation{Stage: Filling},
			action: Wait, after: Preparation{Stage: Filling},
		},

		{
			row: "it is rejected", goal: owned, before: Preparation{Stage: Warm, Hold: Rejected},
			action: Discard, why: Unfit, after: Preparation{Stage: Discarding, Hold: Rejected},
		},
		{
			row: "it is judged, whatever is wanted", in: Input{Ending: true},
			before: Preparation{Stage: Warm, Hold: Judged, Until: now},
			action: Wait, after: Preparation{Stage: Warm, Hold: Judged, Until: now},
		},
		{
			row: "it is judged, and asks no more", goal: owned,
			before: Preparation{Stage: Warm, Hold: Judged, Asking: true, Until: soon},
			action: Unask, after: Preparation{Stage: Warm, Hold: Judged},
		},
		{
			row:    "it is not wanted, and asks no more",
			before: Preparation{Stage: Warm, Asking: true, Until: soon},
			action: Unask, after: Preparation{Stage: Warm},
		},
		{
			row: "it is not wanted", before: Preparation{Stage: Warm, Slot: true}, action: Discard,
			why: Unwanted, after: Preparation{Stage: Discarding, Slot: true},
		},
		{
			row: "the run is to end", goal: standby, in: Input{Ending: true},
			before: Preparation{Stage: Warm},
			action: Discard, why: Unwanted, after: Preparation{Stage: Discarding},
		},
		{
			row: "it has asked for long", goal: wanted,
			before: Preparation{Stage: Warm, Asking: true, Slot: true, Until: now},
			action: Discard, why: Ungiven, after: Preparation{Stage: Discarding, Slot: true},
		},
		{
			row: "it asks", goal: wanted,
			before: Preparation{Stage: Warm, Asking: true, Slot: true, Until: soon},
			action: Wait, after: Preparation{Stage: Warm, Asking: true, Slot: true, Until: soon},
			wake: soon,
		},
		{
			row: "it is released, and asks", goal: owned,
			before: Preparation{Stage: Warm, Asking: true, Until: soon},
			action: Wait, after: Preparation{Stage: Warm, Asking: true, Until: soon}, wake: soon,
		},
		{
			row: "a standby needs no slot", goal: standby,
			before: Preparation{Stage: Warm, Slot: true}, action: Yield,
			after: Preparation{Stage: Warm},
		},
		{
			row: "a standby waits", goal: standby, before: Preparation{Stage: Warm}, action: Wait,
			after: Preparation{Stage: Warm},
		},
		{
			row: "an owner becomes a standby", goal: standby,
			before: Preparation{Stage: Warm, Asking: true, Until: soon},
			action: Unask, after: Preparation{Stage: Warm},
		},
		{
			row: "a standby becomes the owner", goal: owned, before: Preparation{Stage: Warm},
			action: Ask, after: Preparation{Stage: Warm, Asking: true, Until: now.Add(patience)},
		},

		{
			row: "it is discarded", goal: wanted, in: Input{Answer: answer(Discard, false)},
			before: Preparation{Stage: Discarding, Number: 3, Hold: Rejected, Cancelled: true, Slot: true},
			action: Yield, after: Preparation{Number: 3, Until: now.Add(time.Minute)},
		},
		{
			row: "it is being discarded", goal: wanted, before: Preparation{Stage: Discarding},
			action: Wait, after: Preparation{Stage: Discarding},
		},
	} {
		t.Run(c.row, func(t *testing.T) {
			in := c.in
			in.Now, in.Retry, in.Longest, in.Patience = now, retry, longest, patience
			in.State = State{Goal: c.goal, Preparation: c.before}
			out := PrepareStep(in)
			want := Output{Action: c.action, Why: c.why, Wake: c.wake}
			want.State = State{Goal: c.goal, Preparation: c.after}
			if out != want {
				t.Errorf("got\n%+v, want\n%+v", out, want)
			}
		})
	}
}

// TestWorkStep has a case for each row of WorkStep's table.
func TestWorkStep(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	later := now.Add(time.Minute)
	ok, fails, rivals := Answer{}, Answer{Failed: true, Pause: time.Minute}, Answer{Rivals: true}
	warm := Preparation{Stage: Warm, Number: 3, Slot: true}
	judged := Preparation{Stage: Warm, Number: 3, Slot: true, Hold: Judged}
	rejected := Preparation{Stage: Warm, Number: 3, Slot: true, Hold: Rejected}
	taken := Preparation{Number: 3, Slot: true, Until: now.Add(retry)}
	for _, c := range []struct {
		row          string
		before       WorkStage
		answer       Answer
		stopped      bool
		begun        int32
		until        time.Time
		again        bool
		prepared     Preparation
		action       Action
		after        WorkStage
		wake         time.Time
		afterAgain   bool
		preparedThen Preparation
	}{
		{row: "nothing begins", before: Idle, action: Wait, after: Idle},
		{
			row: "a claim begins", before: Idle, begun: 7, prepared: warm, action: Preflight,
			after: Checking, preparedThen: warm,
		},
		{
			row: "it may not run", before: Checking, answer: fails, prepared: warm, action: Return,
			after: Idle, preparedThen: warm,
		},
		{
			row: "it is to stop", before: Checking, stopped: true, prepared: warm, action: Return,
			after: Idle, preparedThen: warm,
		},
		{
			row: "others are in the way", before: Checking, answer: rivals, prepared: warm,
			action: Prepare, after: Succeeding, preparedThen: rejected,
		},
		{
			row: "others are, and nothing was prepared", before: Checking, answer: rivals,
			action: Prepare, after: Succeeding,
		},
		{
			row: "something is prepared", before: Checking, prepared: warm, action: Judge,
			after: Judging, preparedThen: judged,
		},
		{
			row: "something is being filled", before: Checking,
			prepared: Preparation{Stage: Filling},
			action:   Judge, after: Judging, preparedThen: Preparation{Stage: Filling, Hold: Judged},
		},
		{
			row: "something is rejected", before: Checking, prepared: rejected,
			action: Build, after: Building, preparedThen: rejected,
		},
		{
			row: "something is discarded", before: Checking,
			prepared: Preparation{Stage: Discarding},
			action:   Build, after: Building, preparedThen: Preparation{Stage: Discarding},
		},
		{row: "nothing is prepared", before: Checking, action: Build, after: Building},

		{
			row: "it is fit", before: Judging, prepared: judged, action: Run, after: Running,
			preparedThen: taken,
		},
		{
			row: "it is fit, and to stop", before: Judging, stopped: true, prepared: judged,
			action: Drop, after: Dropping, preparedThen: taken,
		},
		{
			row: "it is unfit", before: Judging, answer: fails, prepared: judged, action: Build,
			after: Building, preparedThen: rejected,
		},
		{
			row: "it is unfit, and to stop", before: Judging, answer: fails, stopped: true,
			prepared: judged, action: Return, after: Idle, preparedThen: rejected,
		},

		{
			row: "a successor cannot be prepared, and is to stop", before: Succeeding, answer: fails, stopped: true,
			action: Return, after: Idle,
		},
		{
			row: "a successor cannot be prepared, and nobody runs it", before: Succeeding, answer: fails,
			action: Preflight, after: Checking,
		},
		{
			row: "a successor is prepared, and is to stop", before: Succeeding, stopped: true,
			action: Drop, after: Dropping,
		},
		{row: "a successor is prepared", before: Succeeding, action: Await, after: Waiting},
		{
			row: "it may not run any more", before: Waiting, answer: fails, action: Drop,
			after: Dropping,
		},
		{row: "there are others", before: Waiting, answer: rivals, action: Await, after: Waiting},
		{row: "all are released", before: Waiting, action: Join, after: Joining},
		{row: "it has seen their writes", before: Joining, action: Run, after: Running},
		{
			row: "it has not", before: Joining, answer: fails, action: Drop, after: Dropping,
			afterAgain: true,
		},
		{
			row: "it is to stop while it joins", before: Joining, answer: fails, stopped: true,
			action: Drop, after: Dropping,
		},
		{
			row: "it has joined and is to stop", before: Joining, stopped: true, action: Drop,
			after: Dropping,
		},

		{row: "it is built", before: Building, answer: ok, action: Run, after: Running},
		{
			row: "it is built, and to stop", before: Building, stopped: true, action: Drop,
			after: Dropping,
		},
		{
			row: "it cannot be built", before: Building, answer: fails, action: Wait,
			after: Pausing, wake: later,
		},
		{
			row: "it cannot be built, and is to stop", before: Building, answer: fails,
			stopped: true, action: Return, after: Idle,
		},
		{
			row: "it pauses", before: Pausing, until: later, action: Wait, after: Pausing,
			wake: later,
		},
		{row: "it has paused", before: Pausing, until: now, action: Build, after: Building},
		{
			row: "it pauses, and is to stop", before: Pausing, until: later, stopped: true,
			action: Return, after: Idle,
		},
		{
			row: "it could not be started", before: Running, answer: fails, action: Wait,
			after: Pausing, wake: later,
		},
		{
			row: "it could not be started, and is to stop", before: Running, answer: fails,
			stopped: true, action: Return, after: Idle,
		},
		{row: "it has ended", before: Running, stopped: true, action: Return, after: Idle},
		{row: "it has ended by itself", before: Running, action: Return, after: Idle},
		{row: "it is dropped", before: Dropping, action: Return, after: Idle},
		{
			row: "it is dropped, and built again", before: Dropping, again: true, action: Build,
			after: Building,
		},
		{
			row: "it is dropped, and to stop", before: Dropping, again: true, stopped: true,
			action: Return, after: Idle,
		},
	} {
		t.Run(c.row, func(t *testing.T) {
			work := Work{Stage: c.before, Term: 7, Until: c.until, Again: c.again, Up: c.before == Running}
			out := WorkStep(Input{
				Now: now, Answer: c.answer, Stopped: c.stopped, Begun: c.begun, Retry: retry,
				State: State{Goal: owned, Preparation: c.prepared, Work: work},
			})
			want := Output{Action: c.action, Wake: c.wake, State: State{
				Goal: owned, Preparation: c.preparedThen,
				Work: Work{Stage: c.after, Term: 7, Again: c.afterAgain},
			}}
			if c.after == Pausing {
				want.State.Work.Until = later
			}
			if out != want {
				t.Errorf("got\n%+v, want\n%+v", out, want)
			}
		})
	}
}

func TestWhatAStateSays(t *testing.T) {
	for stage := Idle; stage <= Dropping; stage++ {
		w := Work{Stage: stage, Term: 7}
		ready := map[WorkStage]int32{Waiting: 7, Joining: 7}[stage]
		if ready != w.Ready() {
			t.Errorf("%v is ready in term %d", stage, w.Ready())
		}
		if waits := stage == Succeeding || stage == Waiting; waits != w.Waits() {
			t.Errorf("%v: Waits is %t", stage, w.Waits())
		}
		if runs := stage == Running; runs != w.IsRunning() || runs != (w.Running() == 7) {
			t.Errorf("%v runs in term %d", stage, w.Running())
		}
		for _, term := range []int32{0, 6, 7} {
			if up := (State{Work: w}).Raised(term).Work.Up; up != (stage == Running && term == 7) {
				t.Errorf("%v: Up after Raised(%d) is %t", stage, term, up)
			}
		}
	}
}

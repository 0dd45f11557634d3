package shardrun

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// This file walks through every history of one shard on one member. The decisions are those of
// PrepareStep and WorkStep. Everything that pkg/fleet does around them is modelled here at its
// least orderly: answers come at any time, either lane may step at any time, the goal changes,
// claims come and go, timers fire or not. The only abstractions are that of a time the model knows
// just whether it has come, and of preparations just the present one and an earlier one whose
// answer is late.
//
// The explorers of pkg/election and its heartbeat walk through versions of Leases, ages and members
// in any order, and need special keys for that. Here a model is a comparable value, so the
// explorers would share no more than a map.

// instance is the condition of an instance that was built.
type instance int8

const (
	none instance = iota
	unfilled
	full
	broken // it could not be filled
	cold   // with empty caches, as intended
)

func (i instance) String() string {
	return [...]string{"none", "unfilled", "full", "broken", "cold"}[i]
}

// filled is an unread answer to a Fill.
type filled int8

const (
	unanswered filled = iota
	succeeded
	failed
)

// model is a state of one shard's run and its surroundings.
type model struct {
	state State
	// ahead is the instance of the preparation, hand that of the work. judged reports whether the
	// latter has seen the last writes.
	ahead, hand instance
	judged      bool
	// present and late are the answers to the filling of the present preparation and of an earlier
	// one.
	present, late filled
	// got is set while a slot was received but not yet reported, slot while the run has one.
	got, slot bool
	// discarding, discarded: the lane waits for the end of a Discard, or has its answer.
	discarding, discarded bool
	ending, ended         bool
	// claimed: there is a claim. stopped: its work should stop.
	claimed, stopped bool
	// doing is the work's action under way. checked is set once the preflight has passed.
	doing   Action
	checked bool
}

const (
	presentNumber = 2
	lateNumber    = 1
	claimTerm     = 7
)

var (
	early = time.Unix(1_000_000, 0)
	due   = early.Add(time.Hour)
	over  = due.Add(time.Hour)
)

// rules are the two step functions, possibly with a planted mistake.
type rules struct {
	prepare, work func(Input) Output
}

var ours = rules{PrepareStep, WorkStep}

// explorer walks through all models.
type explorer struct {
	rules
	from  map[model]step
	queue []model
	// broken is the first broken promise, and how the steps that led to it.
	broken, how string
}

// step is how a model was reached.
type step struct {
	before model
	what   string
}

// at returns the state with each time reduced to one that is still to come.
func at(s State) State {
	for _, t := range []*time.Time{&s.Preparation.Until, &s.Work.Until} {
		if !t.IsZero() {
			*t = due
		}
	}
	return s
}

func explore(r rules) *explorer {
	e := &explorer{rules: r, from: map[model]step{}}
	start := model{}
	start.state.Preparation.Number = presentNumber
	e.from[start] = step{}
	e.queue = []model{start}
	for len(e.queue) > 0 && e.broken == "" {
		w := e.queue[0]
		e.queue = e.queue[1:]
		e.expand(w)
		if e.broken == "" {
			e.judgeEnd(w)
		}
		if e.broken == "" {
			e.judgeProgress(w)
		}
	}
	return e
}

func (e *explorer) fail(w model, why string) {
	if e.broken != "" {
		return
	}
	var steps []string
	for w := w; e.from[w].what != ""; w = e.from[w].before {
		p, work := w.state.Preparation, w.state.Work
		line := fmt.Sprintf("%-28s %v/%v, work %v", e.from[w].what, p.Stage, p.Hold, work.Stage)
		steps = append([]string{line}, steps...)
	}
	e.broken, e.how = why, strings.Join(steps, "\n")
}

// add records a model that follows another.
func (e *explorer) add(before, after model, what string) {
	if _, known := e.from[after]; known || e.broken != "" {
		return
	}
	e.from[after] = step{before, what}
	e.queue = append(e.queue, after)
}

// expand adds everything that may happen next.
func (e *explorer) expand(w model) {
	try := func(what string, change func(*model)) {
		next := w
		change(&next)
		e.add(w, next, what)
	}
	for _, g := range []Goal{{}, {Owned: true}, {Owned: true, Wanted: true}, {Standby: true}} {
		try(fmt.Sprintf("goal %+v", g), func(n *model) { n.state.Goal = g })
	}
	try("told to end", func(n *model) { n.ending = true })
	if !w.claimed {
		try("acquires", func(n *model) { n.claimed, n.stopped = true, false })
	} else {
		try("told to stop", func(n *model) { n.stopped = true })
		if w.doing == Wait && w.state.Work.Stage == Idle {
			try("claim ends", func(n *model) { n.claimed = false })
		}
	}
	if w.state.Work.Stage == Running {
		try("runs", func(n *model) { n.state = n.state.Raised(claimTerm) })
	}
	if w.state.Preparation.Stage == Queued && !w.got && !w.ended {
		try("gets a slot", func(n *model) { n.got, n.slot = true, true })
	}
	if w.ahead == unfilled {
		try("is filled", func(n *model) { n.ahead, n.present = full, succeeded })
		try("is not filled", func(n *model) { n.ahead, n.present = broken, failed })
	}
	if w.discarding {
		try("has discarded", func(n *model) { n.discarding, n.discarded, n.ahead = false, true, none })
	}
	for _, now := range []time.Time{early, over} {
		for _, answer := range w.answers() {
			// The lane may be given either at any time.
			for _, claimed := range []bool{false, true} {
				next := w
				what := e.stepPrepare(&next, now, answer, claimed)
				e.add(w, next, what)
			}
		}
	}
	for _, now := range []time.Time{early, over} {
		for _, answer := range w.outcomes() {
			next := w
			what := e.stepWork(&next, now, answer)
			e.add(w, next, what)
		}
	}
}

// answers returns the answers that the lane that prepares may find.
func (w model) answers() []Answer {
	if w.discarded {
		return []Answer{{To: Discard, Pause: time.Second}}
	}
	all := []Answer{{}}
	if w.present != unanswered {
		all = append(all, Answer{To: Fill, Number: presentNumber, Failed: w.present == failed})
	}
	if w.late != unanswered {
		all = append(all, Answer{To: Fill, Number: lateNumber, Failed: w.late == failed})
	}
	return all
}

// stepPrepare steps the lane that prepares, and begins the action.
func (e *explorer) stepPrepare(w *model, now time.Time, answer Answer, claimed bool) string {
	before := *w
	in := Input{
		Now: now, State: w.state, Answer: answer, Ending: w.ending, Claimed: claimed, Slot: w.got,
		Retry: time.Second, Longest: time.Second, Patience: time.Second,
	}
	out := e.prepare(in)
	w.state, w.got, w.discarded = at(out.State), false, false
	switch {
	case answer.To == Fill && answer.Number == presentNumber:
		w.present = unanswered
	case answer.To == Fill:
		w.late = unanswered
	}
	require := func(ok bool, why string) {
		if !ok {
			e.fail(before, why)
		}
	}
	p := w.state.Preparation
	switch out.Action {
	case Wait:
		asks := p.Stage == Warm && p.Hold == Free && w.ahead == full
		require(!p.Asking || asks, "asks without a full instance")
	case Fill:
		require(w.slot && p.Slot, "fills without a slot")
		require(w.ahead == none, "fills a second instance")
		require(!claimed && w.state.Work.Stage == Idle && !w.ending, "prepares although claimed or ending")
		w.ahead = unfilled
		if w.present != unanswered {
			w.late = w.present
		}
		w.present, w.state.Preparation.Number = unanswered, presentNumber
	case Cancel:
		require(p.Hold == Rejected || p.Hold == Free && now == over, "cancels a wanted preparation")
	case Ask:
		require(w.ahead == full, "asks before it has prepared")
	case Unask:
	case Yield:
		require(w.slot && !p.Slot, "gives back a slot that it does not have")
		w.slot = false
	case Discard:
		require(w.ahead == full || w.ahead == broken, fmt.Sprintf("discards an instance that is %v", w.ahead))
		require(before.doing != Judge, "discards an instance that the work may take")
		w.discarding = true
	case End:
		require(w.ending && w.ahead == none && !w.slot && !p.Asking, "ends and leaves something behind")
		w.ended = true
	default:
		e.fail(before, "prepares by "+out.Action.String())
	}
	return "prepares: " + out.Action.String()
}

// outcomes returns the answers that the work's action may have; none if there is no reason to step.
func (w model) outcomes() []Answer {
	yes, no := Answer{To: w.doing}, Answer{To: w.doing, Failed: true, Pause: time.Second}
	rivals := Answer{To: w.doing, Rivals: true}
	switch w.doing {
	case Preflight, Await:
		return []Answer{yes, no, rivals}
	case Judge:
		if w.ahead == full {
			return []Answer{yes, no}
		}
		return []Answer{no}
	case Prepare, Join, Build, Run:
		return []Answer{yes, no}
	case Drop:
		return []Answer{yes}
	}
	if w.state.Work.Stage == Pausing || w.claimed && w.state.Work.Stage == Idle && !w.ended {
		return []Answer{{}}
	}
	return nil
}

// stepWork gives the work the answer to its action, steps it, and begins the next action.
func (e *explorer) stepWork(w *model, now time.Time, answer Answer) string {
	before := *w
	require := func(ok bool, why string) {
		if !ok {
			e.fail(before, why)
		}
	}
	switch answer.To {
	case Preflight:
		w.checked = !answer.Failed
	case Judge:
		if !answer.Failed {
			require(w.hand == none, "takes a second instance")
			w.hand, w.judged, w.ahead = w.ahead, true, none
		}
	case Prepare:
		if !answer.Failed {
			w.hand, w.judged = full, false
		}
	case Join:
		w.judged = !answer.Failed
	case Build:
		if !answer.Failed {
			w.hand = cold
		}
	case Run, Drop:
		w.hand, w.judged = none, false
	}
	in := Input{Now: now, State: w.state, Answer: answer, Stopped: w.stopped, Retry: time.Second}
	if w.state.Work.Stage == Idle {
		in.Begun = claimTerm
	}
	out := e.work(in)
	w.state, w.doing = at(out.State), out.Action
	switch out.Action {
	case Wait:
		require(w.state.Work.Stage == Pausing, "waits for nothing")
	case Preflight:
	case Judge:
		require(w.ahead != none && !w.discarding, "judges a missing preparation")
	case Prepare, Build:
		require(w.checked, "begins before its preflight")
		require(w.hand == none, out.Action.String()+"s a second instance")
	case Await:
		require(w.hand == full && w.state.Work.Ready() == claimTerm, "waits for predecessors and is not prepared")
	case Join:
		require(w.hand == full, "joins with nothing in hand")
	case Run:
		require(w.claimed && w.checked, "runs unclaimed, or before its preflight")
		require(w.hand == cold || w.hand == full && w.judged, "runs an instance that is "+w.hand.String()+" or unfit")
		require(!w.stopped, "runs after it was told to stop")
	case Drop:
		require(w.hand != none, "drops nothing")
	case Return:
		require(w.hand == none && w.state.Work.Stage == Idle, "returns with something in hand")
		w.doing, w.checked, w.claimed, w.stopped = Wait, false, false, false
	default:
		e.fail(before, "works by "+out.Action.String())
	}
	require(!w.state.Work.Up || w.state.Work.Stage == Running, "is up and does not run")
	require(w.state.Work.Ready() == 0 || w.hand == full, "says ready and is not prepared")
	return fmt.Sprintf("works: %v", out.Action)
}

// settle answers everything, the work's actions by answer, until done or until nothing happens. It
// reports whether done was reached.
func (e *explorer) settle(w model, answer func(model) Answer, done func(model) bool) bool {
	for range 60 {
		if done(w) {
			return true
		}
		switch {
		case w.discarding:
			w.discarding, w.discarded, w.ahead = false, true, none
		case w.ahead == unfilled:
			w.ahead, w.present = full, succeeded
		}
		if w.state.Preparation.Stage == Queued && !w.got {
			w.got, w.slot = true, true
		}
		if !w.ended {
			now := early
			if w.state.Preparation.Stage == Resting {
				now = over
			}
			answers := w.answers()
			e.stepPrepare(&w, now, answers[len(answers)-1], w.claimed)
		}
		if w.doing != Wait || w.state.Work.Stage == Pausing || w.claimed && !w.stopped && !w.ended {
			e.stepWork(&w, over, answer(w))
		}
		if e.broken != "" {
			return true
		}
	}
	return false
}

// judgeEnd checks that a run that should end does.
func (e *explorer) judgeEnd(w model) {
	start := w
	w.ending, w.stopped = true, true
	ends := e.settle(w,
		func(w model) Answer { return Answer{To: w.doing, Failed: w.doing == Judge || w.doing == Await} },
		func(w model) bool { return w.ended && w.state.Work.Stage == Idle && w.hand == none && !w.slot })
	if !ends {
		e.fail(start, "never ends")
	}
}

// judgeProgress checks that a shard that this member should own is asked for, and runs once it is
// claimed.
func (e *explorer) judgeProgress(w model) {
	if w.ending {
		return
	}
	start := w
	works := func(w model) Answer {
		return Answer{To: w.doing, Failed: w.doing == Judge && w.ahead != full}
	}
	if w.claimed {
		if work := w.state.Work; w.stopped || work.Stage == Dropping && !work.Again {
			return // The claim is given back.
		}
		if !e.settle(w, works, func(w model) bool { return w.state.Work.Stage == Running }) {
			e.fail(start, "never runs")
		}
		return
	}
	w.state.Goal = Goal{Owned: true, Wanted: true}
	if !e.settle(w, works, func(w model) bool { return w.state.Preparation.Asking }) {
		e.fail(start, "never asks")
	}
}

func TestExplore(t *testing.T) {
	e := explore(ours)
	if e.broken != "" {
		t.Fatalf("%s after\n%s", e.broken, e.how)
	}
	t.Logf("%d states", len(e.from))
	if len(e.from) < 5_000 {
		t.Errorf("only %d states: most histories were not tried", len(e.from))
	}
}

// TestExploreConvicts plants one mistake at a time.
func TestExploreConvicts(t *testing.T) {
	prepare := func(change func(Input) Input) rules {
		return rules{func(in Input) Output { return PrepareStep(change(in)) }, WorkStep}
	}
	work := func(change func(Input, Output) Output) rules {
		return rules{PrepareStep, func(in Input) Output { return change(in, WorkStep(in)) }}
	}
	for _, c := range []struct {
		mistake, why string
		rules        rules
	}{
		{"released before it has stopped", "returns with something in hand",
			work(func(_ Input, out Output) Output {
				if out.Action == Drop {
					out.Action, out.State.Work = Return, Work{}
				}
				return out
			})},
		{"run without a preparation", "runs an instance that is none or unfit",
			work(func(_ Input, out Output) Output {
				if out.Action == Judge || out.Action == Build {
					out.Action, out.State.Work.Stage = Run, Running
				}
				return out
			})},
		{"run before its preflight", "runs unclaimed, or before its preflight",
			work(func(_ Input, out Output) Output {
				if out.Action == Preflight {
					out.Action, out.State.Work.Stage = Run, Running
				}
				return out
			})},
		{"an unfit preparation is run", "runs an instance that is none or unfit",
			rules{PrepareStep, func(in Input) Output {
				if in.State.Work.Stage == Judging {
					in.Answer.Failed = false
				}
				return WorkStep(in)
			}}},
		{"an instance that could not catch up is run", "runs an instance that is full or unfit",
			rules{PrepareStep, func(in Input) Output {
				if in.State.Work.Stage == Joining {
					in.Answer.Failed = false
				}
				return WorkStep(in)
			}}},
		{"run after it was told to stop", "runs after it was told to stop",
			rules{PrepareStep, func(in Input) Output {
				if in.State.Work.Stage != Pausing {
					in.Stopped = false
				}
				return WorkStep(in)
			}}},
		{"ready before it is prepared", "waits for predecessors and is not prepared",
			work(func(_ Input, out Output) Output {
				if out.Action == Prepare {
					out.Action, out.State.Work.Stage = Await, Waiting
				}
				return out
			})},
		{"a late answer is taken for the present one", "asks before it has prepared",
			prepare(func(in Input) Input {
				if in.Answer.To == Fill {
					in.Answer.Number = in.State.Preparation.Number
				}
				return in
			})},
		{"discarded while it is judged", "discards an instance that the work may take",
			prepare(func(in Input) Input {
				if in.State.Preparation.Hold == Judged {
					in.State.Preparation.Hold = Free
				}
				return in
			})},
		{"a taken instance stays with the preparation", "asks before it has prepared",
			work(func(in Input, out Output) Output {
				if in.State.Work.Stage == Judging && !in.Answer.Failed {
					out.State.Preparation = in.State.Preparation
					out.State.Preparation.Hold = Free
				}
				return out
			})},
		{"a rejected instance is kept", "never ends", prepare(func(in Input) Input {
			if in.State.Preparation.Hold == Rejected {
				in.State.Preparation.Hold = Judged
			}
			return in
		})},
		{"prepared for a shard that is claimed", "prepares although claimed or ending",
			prepare(func(in Input) Input {
				in.Claimed = false
				return in
			})},
		{"the slot is kept", "ends and leaves something behind", prepare(func(in Input) Input {
			if in.State.Preparation.Stage == Resting {
				in.State.Preparation.Slot = false
			}
			return in
		})},
		{"the answer to a discard is lost", "never ends", prepare(func(in Input) Input {
			if in.Answer.To == Discard {
				in.Answer = Answer{}
			}
			return in
		})},
		{"not waited for the end of a discard", "ends and leaves something behind", prepare(func(in Input) Input {
			if in.State.Preparation.Stage == Discarding {
				in.Answer = Answer{To: Discard, Pause: time.Second}
			}
			return in
		})},
		{"asked for while it is filled", "asks before it has prepared",
			rules{func(in Input) Output {
				out := PrepareStep(in)
				if p := &out.State.Preparation; out.Action == Wait && p.Stage == Filling && !p.Asking {
					out.Action, p.Asking = Ask, true
				}
				return out
			}, WorkStep}},
	} {
		t.Run(c.mistake, func(t *testing.T) {
			e := explore(c.rules)
			if e.broken != c.why {
				t.Errorf("the explorer found %q, want %q; %d states\n%s", e.broken, c.why, len(e.from), e.how)
			}
		})
	}
}

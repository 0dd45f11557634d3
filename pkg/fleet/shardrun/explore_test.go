package shardrun

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// This file walks through every history of one shard on one member. Decisions are those of
// PrepareStep and WorkStep; what pkg/fleet does around them is modelled here, at its least orderly:
// answers come whenever they like, either lane may step at any time, the goal changes, claims come
// and go, timers fire or do not. Nothing is bounded but what is told apart: of times, whether they
// have come, and of preparations, the present one and an earlier one whose answer is late.
//
// The explorers of pkg/election and its heartbeat walk through versions of Leases, ages and members
// in whatever order, and need keys of their own for that. Here a world is a comparable value, so a
// map is all that they would have in common.

// instance is what becomes of one that is built.
type instance int8

const (
	none instance = iota
	unfilled
	full
	broken // it could not be filled
	cold   // with empty caches, as it is meant to be
)

func (i instance) String() string {
	return [...]string{"none", "unfilled", "full", "broken", "cold"}[i]
}

// filled is the answer to a Fill that nobody has read.
type filled int8

const (
	unanswered filled = iota
	succeeded
	failed
)

// world is a state of one shard's run and of what is around it.
type world struct {
	state State
	// ahead is the instance of the preparation, hand that of the work, and judged reports whether
	// the latter has seen the last writes.
	ahead, hand instance
	judged      bool
	// present and late are answers to the filling of the present preparation and of an earlier one.
	present, late filled
	// got is set once a slot was got, slot while the run has one.
	got, slot bool
	// discarding, discarded: the lane waits for the end of a Discard, or has its answer.
	discarding, discarded bool
	ending, ended         bool
	// claimed: there is a claim. stopped: its work is to stop.
	claimed, stopped bool
	// doing is the work's action under way, and looked is set once it has looked.
	doing  Action
	looked bool
}

const (
	presentNumber = 2
	lateNumber    = 1
	theTerm       = 7
)

var (
	early = time.Unix(1_000_000, 0)
	due   = early.Add(time.Hour)
	over  = due.Add(time.Hour)
)

// rules are the two step functions, or ones with a mistake.
type rules struct {
	prepare, work func(Input) Output
}

var ours = rules{PrepareStep, WorkStep}

// explorer walks through all worlds.
type explorer struct {
	rules
	from  map[world]step
	queue []world
	// broken is what the first world breaks that is not as promised, and how it came about.
	broken, how string
}

// step is how a world came about.
type step struct {
	before world
	what   string
}

// at returns the state with its times replaced by whether they are to come.
func at(s State) State {
	for _, t := range []*time.Time{&s.Preparation.Until, &s.Work.Until} {
		if !t.IsZero() {
			*t = due
		}
	}
	return s
}

func explore(r rules) *explorer {
	e := &explorer{rules: r, from: map[world]step{}}
	start := world{}
	start.state.Preparation.Number = presentNumber
	e.from[start] = step{}
	e.queue = []world{start}
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

func (e *explorer) fail(w world, why string) {
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

// add records what follows a world.
func (e *explorer) add(before, after world, what string) {
	if _, known := e.from[after]; known || e.broken != "" {
		return
	}
	e.from[after] = step{before, what}
	e.queue = append(e.queue, after)
}

// expand finds out all that may happen next.
func (e *explorer) expand(w world) {
	try := func(what string, change func(*world)) {
		next := w
		change(&next)
		e.add(w, next, what)
	}
	for _, g := range []Goal{{}, {Owned: true}, {Owned: true, Wanted: true}, {Standby: true}} {
		try(fmt.Sprintf("goal %+v", g), func(n *world) { n.state.Goal = g })
	}
	try("is to end", func(n *world) { n.ending = true })
	if !w.claimed {
		try("acquires", func(n *world) { n.claimed, n.stopped = true, false })
	} else {
		try("is to stop", func(n *world) { n.stopped = true })
		if w.doing == Wait && w.state.Work.Stage == Idle {
			try("claim ends", func(n *world) { n.claimed = false })
		}
	}
	if w.state.Work.Stage == Running {
		try("runs", func(n *world) { n.state = n.state.Raised(theTerm) })
	}
	if w.state.Preparation.Stage == Queued && !w.got && !w.ended {
		try("gets a slot", func(n *world) { n.got, n.slot = true, true })
	}
	if w.ahead == unfilled {
		try("is filled", func(n *world) { n.ahead, n.present = full, succeeded })
		try("is not filled", func(n *world) { n.ahead, n.present = broken, failed })
	}
	if w.discarding {
		try("has discarded", func(n *world) { n.discarding, n.discarded, n.ahead = false, true, none })
	}
	if !w.ended && !w.discarding {
		for _, now := range []time.Time{early, over} {
			for _, answer := range w.answers() {
				// The claim may have begun, or ended, since the lane asked whether there is one.
				for _, claimed := range []bool{false, true} {
					next := w
					what := e.stepPrepare(&next, now, answer, claimed)
					e.add(w, next, what)
				}
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

// answers are what the preparation's lane may find answered.
func (w world) answers() []Answer {
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

// stepPrepare has the preparation's lane step, and begins what it is to do.
func (e *explorer) stepPrepare(w *world, now time.Time, answer Answer, claimed bool) string {
	before := *w
	in := Input{
		Now: now, State: w.state, Answer: answer, Ending: w.ending, Claimed: claimed, Slot: w.got,
		Retry: time.Second, Patience: time.Second,
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
		require(!p.Asking || asks, "asks for what it has not prepared")
	case Fill:
		require(w.slot && p.Slot, "fills without a slot")
		require(w.ahead == none, "fills a second one")
		require(!claimed && w.state.Work.Stage == Idle && !w.ending, "prepares for what it has, or although it is to end")
		w.ahead = unfilled
		if w.present != unanswered {
			w.late = w.present
		}
		w.present, w.state.Preparation.Number = unanswered, presentNumber
	case Cancel:
		require(p.Hold == Rejected, "calls off what is wanted")
	case Ask:
		require(w.ahead == full, "asks before it has prepared")
	case Unask:
	case Yield:
		require(w.slot && !p.Slot, "gives back a slot that it does not have")
		w.slot = false
	case Discard:
		require(w.ahead == full || w.ahead == broken, fmt.Sprintf("discards what is %v", w.ahead))
		require(before.doing != Judge, "discards what the work may take")
		w.discarding = true
	case End:
		require(w.ending && w.ahead == none && !w.slot && !p.Asking, "ends and leaves something behind")
		w.ended = true
	default:
		e.fail(before, "prepares by "+out.Action.String())
	}
	return "prepares: " + out.Action.String()
}

// outcomes are the answers that the work's action may have; none if there is nothing to step for.
func (w world) outcomes() []Answer {
	yes, no := Answer{To: w.doing}, Answer{To: w.doing, Failed: true, Pause: time.Second}
	rivals := Answer{To: w.doing, Rivals: true}
	switch w.doing {
	case Look, Await:
		return []Answer{yes, no, rivals}
	case Judge:
		if w.ahead == full {
			return []Answer{yes, no}
		}
		return []Answer{no}
	case Prepare:
		if !w.stopped {
			return []Answer{yes}
		}
		return []Answer{yes, no}
	case Join, Build, Run:
		return []Answer{yes, no}
	case Drop:
		return []Answer{yes}
	}
	if w.state.Work.Stage == Pausing || w.claimed && w.state.Work.Stage == Idle && !w.ended {
		return []Answer{{}}
	}
	return nil
}

// stepWork has the work read the answer to its action, step, and begin the next one.
func (e *explorer) stepWork(w *world, now time.Time, answer Answer) string {
	before := *w
	require := func(ok bool, why string) {
		if !ok {
			e.fail(before, why)
		}
	}
	switch answer.To {
	case Look:
		w.looked = !answer.Failed
	case Judge:
		if !answer.Failed {
			require(w.hand == none, "takes a second one")
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
		in.Begun = theTerm
	}
	out := e.work(in)
	w.state, w.doing = at(out.State), out.Action
	switch out.Action {
	case Wait:
		require(w.state.Work.Stage == Pausing, "waits for nothing")
	case Look:
	case Judge:
		require(w.ahead != none && !w.discarding, "judges what is not there")
	case Prepare, Build:
		require(w.looked, "begins before it has looked")
		require(w.hand == none, out.Action.String()+"s a second one")
	case Await:
		require(w.hand == full && w.state.Work.Ready() == theTerm, "waits for others and is not prepared")
	case Join:
		require(w.hand == full, "joins with nothing in hand")
	case Run:
		require(w.claimed && w.looked, "runs unclaimed, or before it has looked")
		require(w.hand == cold || w.hand == full && w.judged, "runs what is "+w.hand.String()+" or unfit")
		require(!w.stopped, "runs although it is to stop")
	case Drop:
		require(w.hand != none, "drops nothing")
	case Return:
		require(w.hand == none && w.state.Work.Stage == Idle, "returns with something in hand")
		w.doing, w.looked, w.claimed, w.stopped = Wait, false, false, false
	default:
		e.fail(before, "works by "+out.Action.String())
	}
	require(!w.state.Work.Up || w.state.Work.Stage == Running, "is up and does not run")
	require(w.state.Work.Ready() == 0 || w.hand == full, "says ready and is not prepared")
	return fmt.Sprintf("works: %v", out.Action)
}

// settle has everything answered, the work's actions by answer, until done or nothing happens.
func (e *explorer) settle(w world, answer func(world) Answer, done func(world) bool) bool {
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

// judgeEnd holds that a run that is to end does.
func (e *explorer) judgeEnd(w world) {
	start := w
	w.ending, w.stopped = true, true
	ends := e.settle(w,
		func(w world) Answer { return Answer{To: w.doing, Failed: w.doing == Judge || w.doing == Await} },
		func(w world) bool { return w.ended && w.state.Work.Stage == Idle && w.hand == none && !w.slot })
	if !ends {
		e.fail(start, "does not end")
	}
}

// judgeProgress holds that a shard that is to be this member's is asked for, and runs once it is
// claimed.
func (e *explorer) judgeProgress(w world) {
	if w.ending {
		return
	}
	start := w
	works := func(w world) Answer {
		return Answer{To: w.doing, Failed: w.doing == Judge && w.ahead != full}
	}
	if w.claimed {
		if work := w.state.Work; w.stopped || work.Stage == Dropping && !work.Again {
			return // It is given back.
		}
		if !e.settle(w, works, func(w world) bool { return w.state.Work.Stage == Running }) {
			e.fail(start, "does not come to run")
		}
		return
	}
	w.state.Goal = Goal{Owned: true, Wanted: true}
	if !e.settle(w, works, func(w world) bool { return w.state.Preparation.Asking }) {
		e.fail(start, "does not come to ask")
	}
}

func TestExplore(t *testing.T) {
	e := explore(ours)
	if e.broken != "" {
		t.Fatalf("%s after\n%s", e.broken, e.how)
	}
	t.Logf("%d states", len(e.from))
	if len(e.from) < 5_000 {
		t.Errorf("only %d states: most of what may happen was not tried", len(e.from))
	}
}

// TestExploreConvicts plants a mistake at a time.
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
		{"run without a preparation", "runs what is none or unfit",
			work(func(_ Input, out Output) Output {
				if out.Action == Judge || out.Action == Build {
					out.Action, out.State.Work.Stage = Run, Running
				}
				return out
			})},
		{"run before it has looked", "runs unclaimed, or before it has looked",
			work(func(_ Input, out Output) Output {
				if out.Action == Look {
					out.Action, out.State.Work.Stage = Run, Running
				}
				return out
			})},
		{"an unfit preparation is run", "runs what is none or unfit",
			rules{PrepareStep, func(in Input) Output {
				if in.State.Work.Stage == Judging {
					in.Answer.Failed = false
				}
				return WorkStep(in)
			}}},
		{"what could not catch up is run", "runs what is full or unfit",
			rules{PrepareStep, func(in Input) Output {
				if in.State.Work.Stage == Joining {
					in.Answer.Failed = false
				}
				return WorkStep(in)
			}}},
		{"run although it is to stop", "runs although it is to stop",
			rules{PrepareStep, func(in Input) Output {
				if in.State.Work.Stage != Pausing {
					in.Stopped = false
				}
				return WorkStep(in)
			}}},
		{"ready before it is prepared", "waits for others and is not prepared",
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
		{"discarded while it is judged", "discards what the work may take",
			prepare(func(in Input) Input {
				if in.State.Preparation.Hold == Judged {
					in.State.Preparation.Hold = Free
				}
				return in
			})},
		{"what was taken stays with the preparation", "asks before it has prepared",
			work(func(in Input, out Output) Output {
				if in.State.Work.Stage == Judging && !in.Answer.Failed {
					out.State.Preparation = in.State.Preparation
					out.State.Preparation.Hold = Free
				}
				return out
			})},
		{"what was rejected is kept", "does not end", prepare(func(in Input) Input {
			if in.State.Preparation.Hold == Rejected {
				in.State.Preparation.Hold = Judged
			}
			return in
		})},
		{"prepared for a shard that is claimed", "prepares for what it has, or although it is to end",
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
		{"the answer to a discard is lost", "does not end", prepare(func(in Input) Input {
			if in.Answer.To == Discard {
				in.Answer = Answer{}
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
				t.Errorf("it is convicted by %q, want %q; %d states\n%s", e.broken, c.why, len(e.from), e.how)
			}
		})
	}
}

package shardrun

import "time"

// Goal is what the member wants of the shard.
type Goal struct {
	// Owned: this member should own the shard. Wanted: another member holds it meanwhile. Standby:
	// this member would own it if its holder failed.
	Owned, Wanted, Standby bool
}

// prepares reports whether there is something to prepare for.
func (g Goal) prepares() bool { return g.Wanted || g.Standby }

// keeps reports whether a preparation is still of use.
func (g Goal) keeps() bool { return g.Owned || g.Standby }

// State is where a shard stands on one member. In the zero value, nothing is wanted of the shard.
// It is a value, so callers may keep it.
type State struct {
	Goal        Goal
	Preparation Preparation
	Work        Work
}

// PrepareStage is where a preparation stands.
type PrepareStage int

const (
	// Resting: nothing is prepared.
	Resting PrepareStage = iota
	// Queued: the preparation waits for one of the member's few slots.
	Queued
	// Filling: the instance is being built and its caches filled.
	Filling
	// Warm: the caches are full, and the shard can be taken over.
	Warm
	// Discarding: the instance is being discarded.
	Discarding
)

func (s PrepareStage) String() string {
	return [...]string{"Resting", "Queued", "Filling", "Warm", "Discarding"}[s]
}

// Hold is the work's decision about a preparation.
type Hold int

const (
	// Free: the work has not asked for it.
	Free Hold = iota
	// Judged: the work is finding out whether it is fit. Until then it belongs to the work.
	Judged
	// Rejected: the work does not want it.
	Rejected
)

func (h Hold) String() string { return [...]string{"Free", "Judged", "Rejected"}[h] }

// Preparation is an instance built ahead of the claim.
type Preparation struct {
	Stage PrepareStage
	Hold  Hold
	// Number counts preparations, to tell answers to an earlier one apart.
	Number int
	// Slot reports whether the preparation has a slot.
	Slot bool
	// Asking reports whether the holder is asked for the shard.
	Asking bool
	// Cancelled is set once its filling has been cancelled.
	Cancelled bool
	// Until is the end of the pause in Resting, of the time for Filling, and of the holder's time in
	// Warm; zero if there is none.
	Until time.Time
}

// Exists reports whether there is something for the work to take or reject.
func (p Preparation) Exists() bool { return p.Stage == Filling || p.Stage == Warm }

// offered reports whether the work may have the preparation.
func (p Preparation) offered() bool { return p.Exists() && p.Hold == Free }

// rejected returns the preparation, marked as rejected if there is one.
func (p Preparation) rejected() Preparation {
	if p.Exists() {
		p.Hold = Rejected
	}
	return p
}

// WorkStage is where the work of a claim stands.
type WorkStage int

const (
	// Idle: there is no work. The claim, if there is one, may be released.
	Idle WorkStage = iota
	// Checking: the work reads plan and Leases as they were at the claim or later, and fences the
	// dead.
	Checking
	// Judging: the work checks whether the prepared instance has seen the last write.
	Judging
	// Succeeding: the work prepares the shard while shards of an older plan run some of it.
	Succeeding
	// Waiting: the shard is prepared, and the Lease says so, so that those shards are released.
	Waiting
	// Joining: they are released, and the work checks whether the prepared instance has seen their
	// last writes.
	Joining
	// Building: the work builds an instance with empty caches.
	Building
	// Running: the work opens the fence and runs the controllers.
	Running
	// Pausing: the work could not be started, and pauses before the next attempt.
	Pausing
	// Dropping: the work discards the instance in hand.
	Dropping
)

func (s WorkStage) String() string {
	return [...]string{
		"Idle", "Checking", "Judging", "Succeeding", "Waiting", "Joining", "Building", "Running",
		"Pausing", "Dropping",
	}[s]
}

// Work is the state of the work under a claim.
type Work struct {
	Stage WorkStage
	// Term is that of the claim, or in Idle that of the last one.
	Term int32
	// Up is set while all controllers run.
	Up bool
	// Again is set in Dropping if the work should build again afterwards.
	Again bool
	// Until is the end of the pause in Pausing.
	Until time.Time
}

// Ready returns the term in which everything is prepared and the shard waits for its predecessors;
// 0 otherwise.
func (w Work) Ready() int32 {
	if w.Stage == Waiting || w.Stage == Joining {
		return w.Term
	}
	return 0
}

// Waits reports whether predecessors must be released first.
func (w Work) Waits() bool { return w.Stage == Succeeding || w.Stage == Waiting }

// IsRunning reports whether the controllers are about to start, or have not all returned.
func (w Work) IsRunning() bool { return w.Stage == Running }

// Running returns the term in which the controllers are about to start, or have not all returned; 0
// if there is none.
func (w Work) Running() int32 {
	if w.IsRunning() {
		return w.Term
	}
	return 0
}

// Raised returns the state once all controllers of a term run.
func (s State) Raised(term int32) State {
	if s.Work.Running() == term && term != 0 {
		s.Work.Up = true
	}
	return s
}

// Action is the one thing that a step requests.
type Action int

const (
	// Wait does nothing until something changes or Output.Wake has come.
	Wait Action = iota

	// Fill builds an instance and fills its caches. Its answer has the preparation's Number.
	Fill
	// Cancel cancels the filling, which still gets its answer.
	Cancel
	// Ask asks the holder for the shard.
	Ask
	// Unask withdraws the request.
	Unask
	// Yield gives the slot back.
	Yield
	// Discard stops asking for the shard and discards the preparation, for Output.Why. Its answer
	// has the Pause that follows.
	Discard
	// End ends the run: nothing is prepared.
	End

	// Preflight reads plan and Leases and fences the dead. It fails if the shard may not run. Its answer
	// has Rivals if predecessors are not released.
	Preflight
	// Judge checks whether the prepared instance is fit, and fails if not.
	Judge
	// Prepare builds and fills an instance for a successor, in a slot. It fails if the work should
	// stop, or if predecessors have been released for long: they no longer do the work meanwhile.
	Prepare
	// Await publishes that the shard is ready, and waits until predecessors are released. It fails
	// if the shard may not run, or the work should stop. Its answer has Rivals if there are others.
	Await
	// Join fences holders who died, and fails unless the prepared instance has seen the last
	// writes.
	Join
	// Build builds an instance with empty caches. If it fails, its answer has the Pause that
	// follows.
	Build
	// Run opens the fence, runs the instance in hand, and is answered when all of it has ended. It
	// fails if the instance could not be started; its answer then has the Pause that follows.
	Run
	// Drop discards the instance in hand.
	Drop
	// Return ends the work.
	Return
)

func (a Action) String() string {
	return [...]string{
		"Wait", "Fill", "Cancel", "Ask", "Unask", "Yield", "Discard", "End",
		"Preflight", "Judge", "Prepare", "Await", "Join", "Build", "Run", "Drop", "Return",
	}[a]
}

// Why is the reason for discarding a preparation.
type Why int

const (
	// Unwanted: the member does not want it.
	Unwanted Why = iota
	// Unfit: the work has rejected it.
	Unfit
	// Unfilled: it could not be built or filled.
	Unfilled
	// Ungiven: the holder was asked for the shard and has not given it up in time. Others get the
	// slot.
	Ungiven
)

func (w Why) String() string { return [...]string{"Unwanted", "Unfit", "Unfilled", "Ungiven"}[w] }

// Answer is the outcome of an action. The zero value means no answer.
type Answer struct {
	// To is the answered action.
	To Action
	// Number is the preparation's, for Fill.
	Number int
	// Failed and Rivals are as documented at the action.
	Failed, Rivals bool
	// Pause is how long to wait before the next attempt.
	Pause time.Duration
}

// Input is everything that a step depends on.
type Input struct {
	// Now is the clock's reading for this step.
	Now time.Time
	// State is as the last step of either lane left it.
	State State
	// Answer is to the lane's last action, if it has come.
	Answer Answer

	// Ending is set once the run should end; for PrepareStep.
	Ending bool
	// Claimed is set if the member has a claim on the shard; for PrepareStep.
	Claimed bool
	// Slot is set when a Queued preparation has received a slot.
	Slot bool
	// Retry is the pause after a preparation. Longest is how long one may take to be filled: one
	// that is never filled would keep its slot for good. Patience is how long an asked holder has to
	// give the shard up.
	Retry, Longest, Patience time.Duration

	// Begun is the term of a claim whose work begins; 0 if none does.
	Begun int32
	// Stopped is set once the work should stop, as planned or because its claim has ended.
	Stopped bool
}

// Output is the result of a step.
type Output struct {
	Action Action
	State  State
	// Why is set for Discard.
	Why Why
	// Wake is when to step again if nothing changes before; if zero, only a change matters.
	Wake time.Time
}

package shardrun

import "time"

// Goal is what the member wants of the shard.
type Goal struct {
	// Owned: this member is to own the shard. Wanted: another one holds it meanwhile. Standby: this
	// member would own it if its holder failed.
	Owned, Wanted, Standby bool
}

// prepares reports whether there is something to prepare for.
func (g Goal) prepares() bool { return g.Wanted || g.Standby }

// keeps reports whether what is prepared is still of use.
func (g Goal) keeps() bool { return g.Owned || g.Standby }

// State is where a shard stands on one member. The zero value is that of a shard of which nothing
// is wanted. It is a value: whoever has one may keep it.
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
	// Queued: it waits for one of the member's few slots.
	Queued
	// Filling: the instance is built and its caches are filled.
	Filling
	// Warm: the caches are full, and the shard can be taken over.
	Warm
	// Discarding: the instance is given up.
	Discarding
)

func (s PrepareStage) String() string {
	return [...]string{"Resting", "Queued", "Filling", "Warm", "Discarding"}[s]
}

// Hold is what the work has decided about a preparation.
type Hold int

const (
	// Free: the work has not asked for it.
	Free Hold = iota
	// Judged: the work finds out whether it is fit. It is the work's until then.
	Judged
	// Rejected: the work does not want it.
	Rejected
)

func (h Hold) String() string { return [...]string{"Free", "Judged", "Rejected"}[h] }

// Preparation is an instance that is built ahead of the claim.
type Preparation struct {
	Stage PrepareStage
	Hold  Hold
	// Number counts preparations, so that answers to an earlier one are told apart.
	Number int
	// Slot reports whether it has a slot.
	Slot bool
	// Asking reports whether the holder is asked for the shard.
	Asking bool
	// Cancelled is set once its filling has been called off.
	Cancelled bool
	// Until is the end of a pause in Resting, and of the holder's time in Warm; zero if there is
	// none.
	Until time.Time
}

// Exists reports whether there is something that the work may take, or reject.
func (p Preparation) Exists() bool { return p.Stage == Filling || p.Stage == Warm }

// offered reports whether the work may have the preparation.
func (p Preparation) offered() bool { return p.Exists() && p.Hold == Free }

// rejected returns the preparation once the work does not want it; it is the same if there is none.
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
	// Looking: plan and Leases are read as they were at the claim or later, and the dead are
	// fenced.
	Looking
	// Judging: it is found out whether what is prepared has seen the last write.
	Judging
	// Succeeding: the shard is prepared while shards of an older plan run some of it.
	Succeeding
	// Waiting: it is prepared, and the Lease says so, so that those shards are released.
	Waiting
	// Joining: they are released, and it is found out whether what is prepared has seen their last
	// writes.
	Joining
	// Building: an instance with empty caches is built.
	Building
	// Running: the fence is opened and the controllers are run.
	Running
	// Pausing: the work could not be started, and is tried again after a while.
	Pausing
	// Dropping: what the work has in hand is given up.
	Dropping
)

func (s WorkStage) String() string {
	return [...]string{
		"Idle", "Looking", "Judging", "Succeeding", "Waiting", "Joining", "Building", "Running",
		"Pausing", "Dropping",
	}[s]
}

// Work is what is done under a claim.
type Work struct {
	Stage WorkStage
	// Term of the claim; that of the last one in Idle.
	Term int32
	// Up is set while all controllers run.
	Up bool
	// Again is set in Dropping if the work is to be built afterwards.
	Again bool
	// Until is the end of a pause in Pausing.
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

// IsRunning reports whether the controllers are about to be started, or have not all returned.
func (w Work) IsRunning() bool { return w.Stage == Running }

// Running returns the term in which the controllers are about to be started, or have not all
// returned; 0 if there is none.
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

// Action is the one thing that a step asks for.
type Action int

const (
	// Wait: nothing, until something changes or Output.Wake has come.
	Wait Action = iota

	// Fill builds an instance and fills its caches. Its answer has the preparation's Number.
	Fill
	// Cancel calls the filling off. It is answered all the same.
	Cancel
	// Ask asks the holder for the shard.
	Ask
	// Unask takes that back.
	Unask
	// Yield gives the slot back.
	Yield
	// Discard stops asking for the shard and gives up what was prepared, for Output.Why. The answer
	// has the Pause after that.
	Discard
	// End: nothing is prepared, and the run is to end.
	End

	// Look reads plan and Leases and fences the dead. It fails if the shard may not run. Its answer
	// has Rivals where predecessors are not released.
	Look
	// Judge finds out whether what is prepared is fit, and fails if it is not.
	Judge
	// Prepare builds and fills an instance for a successor, in a slot. It fails only if the work is
	// to stop.
	Prepare
	// Await says that the shard is ready, and waits until predecessors are released. It fails if
	// the shard may not run, or the work is to stop. Its answer has Rivals where there are others.
	Await
	// Join fences those who died, and fails unless what is prepared has seen the last writes.
	Join
	// Build builds an instance with empty caches. Where it fails, the answer has the Pause after
	// that.
	Build
	// Run opens the fence, runs what is in hand, and is answered when all of it has ended. Where it
	// could not be started, it fails, and the answer has the Pause after that.
	Run
	// Drop gives up what the work has in hand.
	Drop
	// Return ends the work.
	Return
)

func (a Action) String() string {
	return [...]string{
		"Wait", "Fill", "Cancel", "Ask", "Unask", "Yield", "Discard", "End",
		"Look", "Judge", "Prepare", "Await", "Join", "Build", "Run", "Drop", "Return",
	}[a]
}

// Why says what a preparation is discarded for.
type Why int

const (
	// Unwanted: the member does not want it any more.
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

// Answer is the outcome of an action. The zero value is none.
type Answer struct {
	// To is the action that is answered.
	To Action
	// Number is that of the preparation, for Fill.
	Number int
	// Failed and Rivals are as the action says.
	Failed, Rivals bool
	// Pause is how long to wait before the next attempt.
	Pause time.Duration
}

// Input is everything that a step depends on.
type Input struct {
	// Now is the clock's reading for this step.
	Now time.Time
	// State as the last step of either lane left it.
	State State
	// Answer to the lane's last action, if it has come.
	Answer Answer

	// Ending is set once the run is to end; for PrepareStep.
	Ending bool
	// Claimed is set while the member has a claim on the shard, as it was shortly before the step;
	// for PrepareStep.
	Claimed bool
	// Slot is set when a slot has been got for a preparation that is Queued.
	Slot bool
	// Retry is the pause after a preparation, and Patience how long a holder that is asked has to
	// give the shard up.
	Retry, Patience time.Duration

	// Begun is the term of a claim whose work begins; 0 if none does.
	Begun int32
	// Stopped is set once the work is to stop, as planned or because its claim has ended.
	Stopped bool
}

// Output is what a step asks for.
type Output struct {
	Action Action
	State  State
	// Why, for Discard.
	Why Why
	// Wake is when to look again if nothing changes before; zero means only then.
	Wake time.Time
}

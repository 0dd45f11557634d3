package fleet

import (
	"slices"
	"sync"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
)

// How says how a shard has come to its holder. The values are stable and few enough for a metric
// label.
type How string

const (
	// HowHandoff: as planned, from a holder that had been asked for it, or from those of its
	// predecessors.
	HowHandoff How = "handoff"
	// HowTakeover: after the claim of the last holder had expired, or this member's own had been
	// lost.
	HowTakeover How = "takeover"
	// HowVacant: nobody held it, and it was not handed over.
	HowVacant How = "vacant"
)

// Reason says what an acquisition or a release came of. The values are stable and few enough for a
// metric label.
type Reason string

const (
	// ReasonRebalance: the rings give the shard to another member, which asked for it.
	ReasonRebalance Reason = "rebalance"
	// ReasonLeaving: its holder leaves the fleet.
	ReasonLeaving Reason = "leaving"
	// ReasonPlan: the plan has changed, and other shards succeed this one.
	ReasonPlan Reason = "plan"
	// ReasonOverdue: nothing was heard of its holder for its Lease's duration, and its work had not
	// returned before although it was asked to stop: its process has ended for that, or was killed.
	ReasonOverdue Reason = "overdue"
	// ReasonExpired: nothing was heard of its holder for its Lease's duration.
	ReasonExpired Reason = "expired"
	// ReasonNew: its Lease did not exist.
	ReasonNew Reason = "new"
	// ReasonReleased: its last holder had released it unasked.
	ReasonReleased Reason = "released"
	// ReasonUnwanted: it was given up before it ran, or without a reason that can be told.
	ReasonUnwanted Reason = "unwanted"
)

// HandoffPhase is a part of a handoff. The values are stable and few enough for a metric label.
type HandoffPhase string

const (
	// PhaseAsk: from when the holder was asked, or everything was prepared to succeed its
	// predecessors, until the release was seen.
	PhaseAsk HandoffPhase = "ask"
	// PhaseAcquire: the request that acquired the Lease.
	PhaseAcquire HandoffPhase = "acquire"
	// PhaseCatchUp: until the prepared caches had seen what the last holder wrote last.
	PhaseCatchUp HandoffPhase = "catch_up"
	// PhaseStart: from when the Lease was acquired, or the last predecessor was seen released,
	// until the controllers ran.
	PhaseStart HandoffPhase = "start"
	// PhaseDrain: from when the work was asked to stop until all of it had returned.
	PhaseDrain HandoffPhase = "drain"
)

// Acquisition is how a shard came to this member in one term. It is a value that nobody changes any
// more.
type Acquisition struct {
	How    How
	Reason Reason
	// From is the incarnation that held the shard before; empty if nobody did or nobody can tell.
	From string
	// Cold is why its work began with empty caches; nil if they had been prepared.
	Cold error
	// Unowned is for how long nobody could write on some part of the shard, as far as this member
	// knows, until its controllers ran: from when the fence of the last holder closed, as that has
	// said on its Lease; or from the last heartbeat of a holder that was listed as ended; or from
	// when there was a shard that nobody had. It is 0 if they never ran.
	Unowned time.Duration
	// Phases are how long the phases have taken that there were.
	Phases map[HandoffPhase]time.Duration
	// Forgot are the shard's controllers that have begun again without what they had in memory
	// (Config.Forgets), sorted; none where the shard is new, or they did not run.
	Forgot []string
}

// Handover is how this member gave a shard away.
type Handover struct {
	Reason Reason
	// To is the incarnation that had asked for the shard; empty if none had.
	To string
	// Drain is how long the work took to return; 0 if there was none.
	Drain time.Duration
	// Overdue is for how much of that, its last part, the work could not write any more; 0 if it
	// returned within HandoffTimeout.
	Overdue time.Duration
}

// termRecord follows one term, from the request for a shard to its release, and then the next one.
// Its methods are safe for concurrent use.
type termRecord struct {
	mu sync.Mutex
	// asked is since when this member asks for the shard, and holder who it asks; zero if it has
	// not since it held it last.
	asked  time.Time
	holder string
	// open is the acquisition of a claim that neither runs nor has ended; nil if there is none.
	open *Acquisition
	term int32
	// since is from when on nobody ran the shard, ready when its work could be started.
	since, ready time.Time
	// started is set once the claim has work.
	started bool
	// draining is when the work was asked to stop, drain how long it took, and late for how much of
	// that it could not write.
	draining    time.Time
	drain, late time.Duration
	// planned is set if somebody ran the shard until it was handed over to this member.
	planned bool
	// ran is set once the controllers have run, and stopped is when their fence closed; zero while
	// it is open. overran is set if it closed because they had not returned in time.
	ran, overran bool
	stopped      time.Time
}

// ask records that the holder is asked from now on.
func (t *termRecord) ask(holder string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked, t.holder = now, holder
}

// askedOf records that a holder was asked: another one than before, if it has changed.
func (t *termRecord) askedOf(holder string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder != holder {
		t.asked, t.holder = at, holder
	}
}

// acquire records a new claim: by a request that took so long, on a Lease that was as before, in a
// runner that there is since born. leaving tells of an incarnation whether it leaves, or has left.
func (t *termRecord) acquire(self string, claim *election.Claim, took time.Duration, born, now time.Time, leaving func(string) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := claim.Before()
	a := &Acquisition{Phases: map[HandoffPhase]time.Duration{PhaseAcquire: took}}
	t.since = before.LastSign().Add(-before.Stopped())
	switch {
	case !before.Exists:
		a.How, a.Reason = HowVacant, ReasonNew
		if born.After(t.since) {
			t.since = born // there was no such shard before
		}
	case before.Holder != "":
		a.How, a.Reason, a.From = HowTakeover, expiry(before), before.Holder
	case before.NextHolder() == self:
		a.How, a.Reason, a.From = HowHandoff, ReasonRebalance, t.holder
		if leaving(t.holder) {
			a.Reason = ReasonLeaving
		}
		if !t.asked.IsZero() {
			a.Phases[PhaseAsk] = max(0, before.Seen.Sub(t.asked))
		}
	default:
		a.How, a.Reason = HowVacant, ReasonReleased
	}
	t.asked, t.holder = time.Time{}, ""
	t.open, t.term, t.ready = a, claim.Term(), now
	t.started, t.draining, t.drain, t.late = false, time.Time{}, 0, 0
	t.ran, t.overran, t.stopped = false, false, time.Time{}
	t.planned = a.How == HowHandoff
}

// expiry returns why a Lease was taken over.
func expiry(o election.Observation) Reason {
	if o.Stopped() > 0 {
		return ReasonOverdue
	}
	return ReasonExpired
}

// succeedDead records that the shard is new, and that those died who held its predecessors.
func (t *termRecord) succeedDead(dead []election.Observation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	dead = slices.DeleteFunc(slices.Clone(dead), func(o election.Observation) bool { return o.Holder == "" })
	if t.open == nil || t.open.Reason != ReasonNew || len(dead) == 0 {
		return
	}
	// Leases of long ago are among them: the last sign of life is that of who ran it last.
	last := dead[0]
	for _, o := range dead[1:] {
		if o.LastSign().After(last.LastSign()) {
			last = o
		}
	}
	t.open.How, t.open.Reason, t.open.From = HowTakeover, expiry(last), last.Holder
	t.since = last.LastSign().Add(-last.Stopped())
}

// succeed records that the predecessors, for which the shard has waited since waited, are gone.
func (t *termRecord) succeed(predecessors []election.Observation, waited, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil || len(predecessors) == 0 {
		return
	}
	t.open.How, t.open.Reason, t.open.From = HowHandoff, ReasonPlan, ""
	t.planned = true
	t.open.Phases[PhaseAsk] = now.Sub(waited)
	t.since, t.ready = now, now
	for _, o := range predecessors {
		if stopped := o.Seen.Add(-o.Stopped()); stopped.Before(t.since) {
			t.since = stopped
		}
	}
}

// warm records that prepared caches were fit for use after so long, or why none were.
func (t *termRecord) warm(took time.Duration, cold error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		return
	}
	if t.open.Cold = cold; cold == nil {
		t.open.Phases[PhaseCatchUp] = took
	}
}

// start records that the claim has work.
func (t *termRecord) start() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.started = true
}

// run records that the controllers run, and returns what has come to its end by that; nil if it had
// before.
func (t *termRecord) run(term int32, now time.Time) *Acquisition {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil || t.term != term {
		return nil
	}
	t.ran = true
	t.open.Unowned = max(0, now.Sub(t.since))
	t.open.Phases[PhaseStart] = max(0, now.Sub(t.ready))
	return t.closeLocked()
}

// abandon returns the acquisition of a claim that never ran; nil if it did. A claim that has work
// is open until that returns.
func (t *termRecord) abandon(term int32, returned bool) *Acquisition {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil || t.term != term || t.started && !returned {
		return nil
	}
	return t.closeLocked()
}

func (t *termRecord) closeLocked() *Acquisition {
	a := t.open
	t.open = nil
	return a
}

// askedToStop records that the work was asked to stop.
func (t *termRecord) askedToStop(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.draining = now
}

// end records that the claim has ended.
func (t *termRecord) end(reason election.Reason, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drain, t.late = 0, 0
	if reason == election.ReasonDrained && !t.draining.IsZero() {
		t.drain = now.Sub(t.draining)
		if t.overran {
			t.late = now.Sub(t.stopped)
		}
	}
}

// drained returns how long the work of the last claim took to return, and for how much of that it
// could not write.
func (t *termRecord) drained() (drain, late time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.drain, t.late
}

// resume records that the fence of the work is about to open.
func (t *termRecord) resume(term int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.term == term {
		t.stopped = time.Time{}
	}
}

// overrun records that the fence of the work is about to close: the work has not returned in time.
func (t *termRecord) overrun(term int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.overran = t.overran || t.term == term
}

// stop records that the fence of the work has closed.
func (t *termRecord) stop(term int32, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.term == term {
		t.stopped = now
	}
}

// overdue returns for how long work that does not return has not been able to write; false if there
// is none.
func (t *termRecord) overdue(term int32, now time.Time) (time.Duration, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.term != term || !t.overran || t.stopped.IsZero() {
		return 0, false
	}
	return max(0, now.Sub(t.stopped)), true
}

// unrun returns for how long nobody has run a shard that this member does not run any more, or
// gives back before it ran; false if that is not the time of planned moves alone.
func (t *termRecord) unrun(term int32, now time.Time) (time.Duration, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.term != term || t.ran && t.stopped.IsZero():
		return 0, false
	case t.ran:
		return max(0, now.Sub(t.stopped)), true
	default:
		return max(0, now.Sub(t.since)), t.planned
	}
}

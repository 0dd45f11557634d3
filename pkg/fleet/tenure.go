package fleet

import (
	"slices"
	"sync"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
)

// How says how a shard has come to its holder. The values are stable and few enough for a metric label.
type How string

const (
	// HowHandoff: as planned, from a holder that had been asked for it, or from those of the shards of an older plan that it
	// inherits from.
	HowHandoff How = "handoff"
	// HowTakeover: after the claim of the last holder had expired, or this member's own had been lost.
	HowTakeover How = "takeover"
	// HowVacant: nobody held it, and it was not handed over.
	HowVacant How = "vacant"
)

// Why says what an acquisition or a release came of. The values are stable and few enough for a metric label.
type Why string

const (
	// WhyRebalance: the rings give the shard to another member, which asked for it.
	WhyRebalance Why = "rebalance"
	// WhyLeaving: its holder leaves the fleet.
	WhyLeaving Why = "leaving"
	// WhyPlan: the plan has changed, and other shards inherit from this one.
	WhyPlan Why = "plan"
	// WhyOverdue: nothing was heard of its holder for its Lease's duration, and its work had not
	// returned before although it was asked to stop: its process has ended for that, or was killed.
	WhyOverdue Why = "overdue"
	// WhyExpired: nothing was heard of its holder for its Lease's duration.
	WhyExpired Why = "expired"
	// WhyNew: its Lease did not exist.
	WhyNew Why = "new"
	// WhyReleased: its last holder had released it unasked.
	WhyReleased Why = "released"
	// WhyUnwanted: it was given up before it ran, or without a reason that can be told.
	WhyUnwanted Why = "unwanted"
)

// Phase is a part of a handoff. The values are stable and few enough for a metric label.
type Phase string

const (
	// PhaseAsk: from when the holder was asked, or everything was prepared to inherit, until the release was seen.
	PhaseAsk Phase = "ask"
	// PhaseAcquire: the request that acquired the Lease.
	PhaseAcquire Phase = "acquire"
	// PhaseCatchUp: until the prepared caches had seen what the last holder wrote last.
	PhaseCatchUp Phase = "catch_up"
	// PhaseStart: from when the Lease was acquired, or the last shard that this one inherits from was seen released, until the
	// controllers ran.
	PhaseStart Phase = "start"
	// PhaseDrain: from when the work was asked to stop until all of it had returned.
	PhaseDrain Phase = "drain"
)

// Acquisition is how a shard came to this member in one term. It is a value that nobody changes any more.
type Acquisition struct {
	How How
	Why Why
	// From is the incarnation that held the shard before; empty if nobody did or nobody can tell.
	From string
	// Cold is why its work began with empty caches; nil if they had been prepared.
	Cold error
	// Unowned is for how long nobody could write on some part of the shard, as far as this member
	// knows, until its controllers ran: from when the fence of the last holder closed, as that has
	// said on its Lease; or from the last heartbeat of a holder that was listed as ended; or from when
	// there was a shard that nobody had. It is 0 if they never ran.
	Unowned time.Duration
	// Phases are how long the phases have taken that there were.
	Phases map[Phase]time.Duration
	// Forgot are the shard's controllers that have begun again without what they had in memory
	// (Config.Forgets), sorted; none where the shard is new, or they did not run.
	Forgot []string
}

// Handover is how this member gave a shard away.
type Handover struct {
	Why Why
	// To is the incarnation that had asked for the shard; empty if none had.
	To string
	// Drain is how long the work took to return; 0 if there was none.
	Drain time.Duration
	// Overdue is for how much of that, its last part, the work could not write any more; 0 if it
	// returned within HandoffTimeout.
	Overdue time.Duration
}

// tenure follows one holder's way from the request for a shard to its release. Its methods are safe for concurrent use.
type tenure struct {
	mu sync.Mutex
	// asked is since when this member asks for the shard, and holder who it asks; zero if it has not since it held it last.
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
func (t *tenure) ask(holder string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked, t.holder = now, holder
}

// askedOf records that a holder was asked: another one than before, if it has changed.
func (t *tenure) askedOf(holder string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder != holder {
		t.asked, t.holder = at, holder
	}
}

// acquire takes in a new claim: by a request that took so long, on a Lease that was as before, in a runner that there is since
// born. leaving tells of an incarnation whether it leaves, or has left.
func (t *tenure) acquire(self string, claim *election.Claim, took time.Duration, born, now time.Time, leaving func(string) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := claim.Before()
	a := &Acquisition{Phases: map[Phase]time.Duration{PhaseAcquire: took}}
	t.since = before.LastSign().Add(-before.Stopped())
	switch {
	case !before.Exists:
		a.How, a.Why = HowVacant, WhyNew
		if born.After(t.since) {
			t.since = born // there was no such shard before
		}
	case before.Holder != "":
		a.How, a.Why, a.From = HowTakeover, expiry(before), before.Holder
	case before.NextHolder() == self:
		a.How, a.Why, a.From = HowHandoff, WhyRebalance, t.holder
		if leaving(t.holder) {
			a.Why = WhyLeaving
		}
		if !t.asked.IsZero() {
			a.Phases[PhaseAsk] = max(0, before.Seen.Sub(t.asked))
		}
	default:
		a.How, a.Why = HowVacant, WhyReleased
	}
	t.asked, t.holder = time.Time{}, ""
	t.open, t.term, t.ready = a, claim.Term(), now
	t.started, t.draining, t.drain, t.late = false, time.Time{}, 0, 0
	t.ran, t.overran, t.stopped = false, false, time.Time{}
	t.planned = a.How == HowHandoff
}

// expiry returns why a Lease was taken over.
func expiry(o election.Observation) Why {
	if o.Stopped() > 0 {
		return WhyOverdue
	}
	return WhyExpired
}

// bereave records that the shard is new, and that those died who held what it inherits from.
func (t *tenure) bereave(dead []election.Observation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	dead = slices.DeleteFunc(slices.Clone(dead), func(o election.Observation) bool { return o.Holder == "" })
	if t.open == nil || t.open.Why != WhyNew || len(dead) == 0 {
		return
	}
	// Leases of long ago are among them: the last sign of life is that of who ran it last.
	last := dead[0]
	for _, o := range dead[1:] {
		if o.LastSign().After(last.LastSign()) {
			last = o
		}
	}
	t.open.How, t.open.Why, t.open.From = HowTakeover, expiry(last), last.Holder
	t.since = last.LastSign().Add(-last.Stopped())
}

// inherit records that the ancestors, for which the shard has waited since waited, are gone.
func (t *tenure) inherit(ancestors []election.Observation, waited, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil || len(ancestors) == 0 {
		return
	}
	t.open.How, t.open.Why, t.open.From = HowHandoff, WhyPlan, ""
	t.planned = true
	t.open.Phases[PhaseAsk] = now.Sub(waited)
	t.since, t.ready = now, now
	for _, o := range ancestors {
		if stopped := o.Seen.Add(-o.Stopped()); stopped.Before(t.since) {
			t.since = stopped
		}
	}
}

// warm records that prepared caches were fit for use after so long, or why none were.
func (t *tenure) warm(took time.Duration, cold error) {
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
func (t *tenure) start() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.started = true
}

// run records that the controllers run, and returns what has come to its end by that; nil if it had
// before.
func (t *tenure) run(term int32, now time.Time) *Acquisition {
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

// abandon returns the acquisition of a claim that never ran; nil if it did. A claim that has work is open until that returns.
func (t *tenure) abandon(term int32, returned bool) *Acquisition {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil || t.term != term || t.started && !returned {
		return nil
	}
	return t.closeLocked()
}

func (t *tenure) closeLocked() *Acquisition {
	a := t.open
	t.open = nil
	return a
}

// askedToStop records that the work was asked to stop.
func (t *tenure) askedToStop(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.draining = now
}

// end records that the claim has ended.
func (t *tenure) end(reason election.Reason, now time.Time) {
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
func (t *tenure) drained() (drain, late time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.drain, t.late
}

// resume records that the fence of the work is about to open.
func (t *tenure) resume(term int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.term == term {
		t.stopped = time.Time{}
	}
}

// overrun records that the fence of the work is about to close: the work has not returned in time.
func (t *tenure) overrun(term int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.overran = t.overran || t.term == term
}

// stop records that the fence of the work has closed.
func (t *tenure) stop(term int32, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.term == term {
		t.stopped = now
	}
}

// overdue returns for how long work that does not return has not been able to write; false if there
// is none.
func (t *tenure) overdue(term int32, now time.Time) (time.Duration, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.term != term || !t.overran || t.stopped.IsZero() {
		return 0, false
	}
	return max(0, now.Sub(t.stopped)), true
}

// unrun returns for how long nobody has run a shard that this member does not run any more, or
// gives back before it ran; false if that is not the time of planned moves alone.
func (t *tenure) unrun(term int32, now time.Time) (time.Duration, bool) {
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

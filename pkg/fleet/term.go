package fleet

import (
	"slices"
	"sync"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
)

// How is the way in which a shard came to its holder. The values are stable and few enough for a
// metric label.
type How string

const (
	// HowHandoff: as planned, from a holder that was asked for it, from one that left while this
	// member prepared, or from the holders of its predecessors.
	HowHandoff How = "handoff"
	// HowTakeover: after the last holder's claim expired, or that of the holder of a predecessor,
	// or this member lost its own.
	HowTakeover How = "takeover"
	// HowVacant: nobody held it, and nobody handed it over.
	HowVacant How = "vacant"
)

// Reason is what led to an acquisition or a release. The values are stable and few enough for a
// metric label.
type Reason string

const (
	// ReasonRebalance: the rings give the shard to another member, which asked for it.
	ReasonRebalance Reason = "rebalance"
	// ReasonLeaving: its holder leaves the fleet.
	ReasonLeaving Reason = "leaving"
	// ReasonPlan: the plan has changed, and other shards succeed this one.
	ReasonPlan Reason = "plan"
	// ReasonOverdue: the holder's member did not renew its own Lease for that Lease's duration, and
	// its work had not returned when asked to stop. Its process ended because of that, or was
	// killed.
	ReasonOverdue Reason = "overdue"
	// ReasonExpired: the holder's member did not renew its own Lease for that Lease's duration.
	ReasonExpired Reason = "expired"
	// ReasonNew: its Lease did not exist.
	ReasonNew Reason = "new"
	// ReasonReleased: its last holder released it unasked, and this member was not waiting for it.
	ReasonReleased Reason = "released"
	// ReasonUnwanted: it was given up before it ran, or for no known reason.
	ReasonUnwanted Reason = "unwanted"
)

// HandoffPhase is a part of a handoff. The values are stable and few enough for a metric label.
type HandoffPhase string

const (
	// PhaseAsk: from the request to the holder, or from when everything was prepared to succeed the
	// predecessors, until the release was seen.
	PhaseAsk HandoffPhase = "ask"
	// PhaseAcquire: the request that acquired the Lease.
	PhaseAcquire HandoffPhase = "acquire"
	// PhaseCatchUp: until the prepared caches were filled, if they had not been, and had seen the
	// last holder's last write.
	PhaseCatchUp HandoffPhase = "catch_up"
	// PhaseStart: from when the Lease was acquired, or the last predecessor was seen released,
	// until the controllers ran.
	PhaseStart HandoffPhase = "start"
	// PhaseDrain: from when the work was asked to stop until all of it had returned.
	PhaseDrain HandoffPhase = "drain"
)

// Acquisition says how a shard came to this member in one term. It is an immutable value.
type Acquisition struct {
	How    How
	Reason Reason
	// From is the incarnation that held the shard before; empty if nobody did or it is unknown.
	From string
	// Cold is why the work began with empty caches; nil if they were prepared.
	Cold error
	// Unowned is how long, as far as this member knows, nobody could write to some part of the
	// shard until its controllers ran. It begins when the last holder's fence closed, as that
	// holder recorded on its Lease; or at the last heartbeat of a holder that was listed as ended;
	// or when an unowned shard came into being. It is 0 if the controllers never ran.
	Unowned time.Duration
	// Phases has the duration of each phase that took place.
	Phases map[HandoffPhase]time.Duration
	// Forgot are the controllers that began again without what they had kept in memory
	// (Config.Forgets), sorted. It is empty if the shard is new or its controllers did not run.
	Forgot []string
}

// Handover says how this member gave a shard away.
type Handover struct {
	Reason Reason
	// To is the incarnation that had asked for the shard; empty if none had.
	To string
	// Drain is how long the work took to return; 0 if there was none.
	Drain time.Duration
	// Overdue is the last part of Drain, in which the work could not write; 0 if it returned within
	// HandoffTimeout.
	Overdue time.Duration
}

// termRecord follows one term, from the request for a shard to its release, and then the next. Its
// methods are safe for concurrent use.
type termRecord struct {
	mu sync.Mutex
	// asked is when this member asked for the shard, holder is whom it asked. Both are zero if it
	// has not asked since it last held the shard.
	asked  time.Time
	holder string
	// wanted is the last incarnation that held the shard while this member should own it, and
	// wantedTerm is its term. Both are zero if nobody has held it since this member became its
	// owner.
	wanted     string
	wantedTerm int32
	// open is the acquisition of a claim that neither runs nor has ended; nil if there is none.
	open *Acquisition
	term int32
	// since is from when nobody ran the shard, ready is when its work could be started.
	since, ready time.Time
	// started is set once the claim has work.
	started bool
	// draining is when the work was asked to stop, drain how long it took, and late the part of
	// drain in which it could not write.
	draining    time.Time
	drain, late time.Duration
	// planned is set if somebody ran the shard until it was handed over to this member.
	planned bool
	// ran is set once the controllers have run. stopped is when their fence closed; zero while it
	// is open. overran is set if it closed because they had not returned in time.
	ran, overran bool
	stopped      time.Time
}

// ask records that the member asked the holder at now.
func (t *termRecord) ask(holder string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked, t.holder = now, holder
}

// askedOf records when the member asked holder, unless it already asks that holder.
func (t *termRecord) askedOf(holder string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder != holder {
		t.asked, t.holder = at, holder
	}
}

// want records that this member should own the shard while holder holds it for a term. An empty
// holder means that it should not.
func (t *termRecord) want(holder string, term int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wanted, t.wantedTerm = holder, term
}

// acquire records the claim of a new term. before is the Lease as it was, took is the duration of
// the request, born is when the runner was made. leaving reports whether an incarnation is leaving
// or has left.
func (t *termRecord) acquire(
	self string, before election.Observation, term int32, took time.Duration, born, now time.Time, leaving func(string) bool,
) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := &Acquisition{Phases: map[HandoffPhase]time.Duration{PhaseAcquire: took}}
	t.since = stoppedAt(before)
	switch {
	case !before.Exists:
		a.How, a.Reason = HowVacant, ReasonNew
		if born.After(t.since) {
			t.since = born // the shard did not exist before
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
	case before.IsReleased() && before.Transitions == t.wantedTerm && leaving(t.wanted):
		a.How, a.Reason, a.From = HowHandoff, ReasonLeaving, t.wanted
	default:
		a.How, a.Reason = HowVacant, ReasonReleased
	}
	t.asked, t.holder = time.Time{}, ""
	t.open, t.term, t.ready = a, term, now
	t.started, t.draining, t.drain, t.late = false, time.Time{}, 0, 0
	t.ran, t.overran, t.stopped = false, false, time.Time{}
	t.planned = a.How == HowHandoff
}

// expiry returns the reason for taking over a Lease.
func expiry(o election.Observation) Reason {
	if o.Stopped() > 0 {
		return ReasonOverdue
	}
	return ReasonExpired
}

// succeedDead records that the shard is new, and that the holders of its predecessors died.
func (t *termRecord) succeedDead(dead []election.Observation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	dead = slices.DeleteFunc(slices.Clone(dead), func(o election.Observation) bool { return o.Holder == "" })
	if t.open == nil || t.open.Reason != ReasonNew || len(dead) == 0 {
		return
	}
	// dead may include very old Leases. The holder with the latest sign of life ran the shard last.
	t.since = stoppedAt(t.takeOverLocked(dead))
}

// takeOverLocked records that the shard comes from holders who died, and returns the Lease of the
// one with the latest sign of life.
func (t *termRecord) takeOverLocked(dead []election.Observation) election.Observation {
	last := slices.MaxFunc(dead, func(a, b election.Observation) int { return a.LastSign().Compare(b.LastSign()) })
	t.open.How, t.open.Reason, t.open.From = HowTakeover, expiry(last), last.Holder
	return last
}

// stoppedAt returns when a Lease's last holder could no longer write, as far as that can be seen.
// The Lease of a dead holder has not changed since it was acquired, so the holder's last sign of
// life counts.
func stoppedAt(o election.Observation) time.Time { return o.LastSign().Add(-o.Stopped()) }

// succeed records that the predecessors, for which the shard has waited since waited, are gone. It
// is a takeover if the holder of one of them died.
func (t *termRecord) succeed(predecessors []election.Observation, waited, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil || len(predecessors) == 0 {
		return
	}
	released := func(o election.Observation) bool { return o.Holder == "" }
	if dead := slices.DeleteFunc(slices.Clone(predecessors), released); len(dead) > 0 {
		t.takeOverLocked(dead)
	} else {
		t.open.How, t.open.Reason, t.open.From = HowHandoff, ReasonPlan, ""
		t.open.Phases[PhaseAsk] = now.Sub(waited)
	}
	t.planned = t.open.How == HowHandoff
	t.since, t.ready = now, now
	for _, o := range predecessors {
		if stopped := stoppedAt(o); stopped.Before(t.since) {
			t.since = stopped
		}
	}
}

// warm records that prepared caches were fit for use after took, or, in cold, why none were.
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

// run records that the controllers run. It returns the acquisition that this completes; nil if it
// was complete before.
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
// stays open until the work returns.
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

// drained returns how long the work of the last claim took to return, and the part of that in which
// it could not write.
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

// overrun records that the fence is about to close because the work has not returned in time.
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

// overdue returns how long work that has not returned has been unable to write; false if there is
// no such work.
func (t *termRecord) overdue(term int32, now time.Time) (time.Duration, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.term != term || !t.overran || t.stopped.IsZero() {
		return 0, false
	}
	return max(0, now.Sub(t.stopped)), true
}

// unrun returns how long nobody has run a shard that this member has stopped running, or gives back
// before it ran. It returns false unless all of that time is due to planned moves.
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

package fleet

import (
	"errors"
	"slices"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
)

// observe records the events of the shard's claim, and passes them on. The claimant's goroutine
// calls it.
func (r *shardRunner) observe(e election.Event) {
	m, now := r.member, r.member.config.Clock.Now()
	event := Event{Event: e, ID: r.shard.ID}
	switch e.Type {
	case election.EventAsked:
		r.term.askedOf(e.Holder, now.Add(-e.Duration))
	case election.EventAcquired:
		if claim := r.claimant.Claim(); claim != nil {
			r.term.acquire(m.incarnation, claim.Before(), claim.Term(), e.Duration, r.born, now, m.leaves)
		}
	case election.EventStarted:
		r.term.start()
	case election.EventDraining:
		r.term.askedToStop(now)
	case election.EventEnded:
		r.term.end(e.Reason, now)
		if a := r.term.abandon(e.Term, false); a != nil {
			defer r.conclude(EventAbandoned, e.Term, a, nil)
		}
	case election.EventReleased:
		event.Handover = r.handover()
	}
	m.config.Observe(event)
}

// leaves reports whether an incarnation is leaving the fleet or has left.
func (m *Member) leaves(incarnation string) bool {
	if incarnation == "" {
		return false
	}
	lease := m.observer.Get(leaserecord.MemberLease(m.config.Fleet, leaserecord.MemberOf(incarnation)))
	return lease.Holder != incarnation || lease.Annotations[leaserecord.StateAnnotation] == string(membership.Leaving)
}

// handover returns how the shard that was just released was given away.
func (r *shardRunner) handover() *Handover {
	m := r.member
	h := &Handover{Reason: ReasonUnwanted, To: m.observer.Get(r.lease).NextHolder()}
	h.Drain, h.Overdue = r.term.drained()
	switch plan := m.inForce.Load(); {
	case !plan.Has(r.shard.ID, r.extent):
		h.Reason, h.To = ReasonPlan, ""
	case m.membership.State() == membership.Leaving:
		h.Reason = ReasonLeaving
	case h.To != "":
		h.Reason = ReasonRebalance
	}
	return h
}

// ran reports that the shard's controllers run, once a term.
func (r *shardRunner) ran(term int32) {
	if a := r.term.run(term, r.member.config.Clock.Now()); a != nil {
		r.conclude(EventRunning, term, a, nil)
	}
}

// conclude reports the outcome of an acquisition.
func (r *shardRunner) conclude(kind election.EventType, term int32, a *Acquisition, err error) {
	m := r.member
	if m.config.Forgets != nil && kind == EventRunning && a.Reason != ReasonNew {
		for _, name := range slices.Sorted(slices.Values(r.extent.Controllers)) {
			if m.config.Forgets(name) {
				a.Forgot = append(a.Forgot, name)
			}
		}
	}
	e := election.Event{Type: kind, Name: r.lease, Term: term, Holder: m.incarnation, Duration: a.Unowned, Err: err}
	m.config.Observe(Event{Event: e, ID: r.shard.ID, Acquisition: a})
}

// refuse reports that the claim is given back before anything ran, because of err. If the plan does
// not have the shard, the member does not claim it again until the plan changes.
func (r *shardRunner) refuse(term int32, err error) {
	if errors.Is(err, errNotInPlan) {
		r.shun()
	}
	if a := r.term.abandon(term, true); a != nil {
		r.conclude(EventRefused, term, a, err)
	}
}

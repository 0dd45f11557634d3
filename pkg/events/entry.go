package events

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaderlock"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// entry is what to say of an event. The zero value says nothing.
type entry struct {
	// message is the log line's, at verbosity level; with err, or if failed is set, it is an error.
	message string
	level   int
	failed  bool
	err     error
	values  []any
	// reason is that of the Kubernetes event, empty for none, and note what it says.
	reason, note string
	warning      bool
}

func line(message string, values ...any) entry { return entry{message: message, values: values} }

func (e entry) at(level int) entry { e.level = level; return e }

func (e entry) failure(err error) entry { e.failed, e.err = true, err; return e }

func (e entry) event(reason, format string, args ...any) entry {
	e.reason, e.note = reason, fmt.Sprintf(format, args...)
	return e
}

func (e entry) warn(reason, format string, args ...any) entry {
	e = e.event(reason, format, args...)
	e.warning = true
	return e
}

func (e entry) kind() string {
	if e.warning {
		return v1.EventTypeWarning
	}
	return v1.EventTypeNormal
}

// entryOf returns what to say of an event in a fleet.
func entryOf(of string, e fleet.Event) entry {
	if rest, lock := strings.CutPrefix(string(e.Type), string(fleet.EventLeaderLock)); lock {
		return ofLeaderLock(election.EventType(rest), e)
	}
	if e.ID != (shard.ID{}) {
		if said := ofShard(e); said.message != "" {
			return said
		}
	}
	if e.Type == election.EventWaiting && e.Reason == election.ReasonHeld && e.Name != leaseapi.PlanLease(of) && e.ID == (shard.ID{}) {
		// Another process of this name: nothing goes on here until it has gone.
		return line("Waiting for the member's Lease", "reason", e.Reason, "holder", e.Holder)
	}
	return ofLease(e)
}

// ofShard is about what happens to shards alone.
func ofShard(e fleet.Event) entry {
	switch e.Type {
	case fleet.EventRunning:
		return acquired(e)
	case fleet.EventRefused:
		return line("Gave shard back before it ran", origin(e.Acquisition)...).failure(e.Err).
			warn("Refused", "term %d was given back before anything ran: %v", e.Term, e.Err)
	case fleet.EventAbandoned:
		return line("Claim ended before the shard ran", origin(e.Acquisition)...).at(1)
	case election.EventReleased:
		return released(e)
	case election.EventEnded:
		if e.Reason.Planned() {
			return line("Ended claim", "reason", e.Reason, "duration", e.Duration).at(2)
		}
		return line("Lost shard", "reason", e.Reason, "holder", e.Holder, "duration", e.Duration).failure(nil).
			warn("Lost", "lost term %d: %s (holder %q)", e.Term, e.Reason, e.Holder)
	case election.EventAcquired:
		return line("Acquired Lease of the shard, which does not run yet", "duration", e.Duration).at(1)
	case election.EventAsked:
		return line("Asked for shard", "holder", e.Holder, "duration", e.Duration).at(1)
	case fleet.EventPrepared:
		return line("Prepared for shard", "duration", e.Duration).at(1)
	case fleet.EventReady:
		return line("Prepared the shard, which waits for its predecessors").at(1)
	case fleet.EventBegun:
		return line("Began with "+caches(e.Err)+" caches", "duration", e.Duration, "err", e.Err).at(1)
	case fleet.EventOverdue:
		return line("Controllers have not stopped in time: their writes are refused", "end", e.Duration).
			warn("DrainOverdue", "the controllers of term %d were asked to stop and have not returned: their writes are refused, and the process ends in %v unless they return", e.Term, e.Duration)
	case election.EventReturned:
		return line("Work of the lost claim returned", "duration", e.Duration)
	}
	return entry{}
}

func caches(cold error) string {
	if cold != nil {
		return "cold"
	}
	return "warm"
}

// origin says how a shard came here.
func origin(a *fleet.Acquisition) []any {
	values := []any{"how", a.How, "reason", a.Reason}
	if a.From != "" {
		values = append(values, "from", a.From)
	}
	return values
}

func acquired(e fleet.Event) entry {
	a := e.Acquisition
	values := append(origin(a), "unowned", a.Unowned, "caches", caches(a.Cold))
	if a.Cold != nil {
		values = append(values, "cold", a.Cold.Error())
	}
	phases := make([]fleet.HandoffPhase, 0, len(a.Phases))
	for phase := range a.Phases {
		phases = append(phases, phase)
	}
	slices.Sort(phases)
	for _, phase := range phases {
		if phase == fleet.PhaseStart {
			values = append(values, "duration", a.Phases[phase]) // from the acquisition on
		} else {
			values = append(values, string(phase), a.Phases[phase])
		}
	}
	by := "by " + string(a.How)
	if a.How == fleet.HowVacant {
		by = "while vacant"
	}
	if a.From != "" {
		by += " from " + a.From
	}
	said := line("Acquired shard", values...).
		event("Acquired", "acquired for term %d %s (%s); nobody could write on it for %v", e.Term, by, a.Reason, a.Unowned)
	if len(a.Forgot) > 0 {
		said.values = append(said.values, "forgot", a.Forgot)
		said.note += "; without what they had in memory begin again: " + strings.Join(a.Forgot, ", ")
	}
	return said
}

func released(e fleet.Event) entry {
	h := e.Handover
	if h == nil {
		return entry{}
	}
	values := []any{"reason", h.Reason}
	if h.To != "" {
		values = append(values, "to", h.To)
	}
	values = append(values, "drain", h.Drain)
	late := ""
	if h.Overdue > 0 {
		values = append(values, "overdue", h.Overdue)
		late = fmt.Sprintf(", the last %v of it without the right to write", h.Overdue)
	}
	values = append(values, "duration", e.Duration)
	switch {
	case h.To != "":
		return line("Handed over shard", values...).
			event("HandedOver", "handed over to %s after term %d (%s); draining took %v%s", h.To, e.Term, h.Reason, h.Drain, late)
	case h.Reason == fleet.ReasonPlan:
		return line("Handed over shard", values...).
			event("HandedOver", "handed over to its successors after term %d (%s); draining took %v%s", e.Term, h.Reason, h.Drain, late)
	default:
		return line("Released shard", values...).event("Released", "released after term %d (%s)", e.Term, h.Reason)
	}
}

// ofLease is about the Leases of the member and of the plan, and about what may happen to any.
func ofLease(e fleet.Event) entry {
	switch e.Type {
	case election.EventAcquired:
		return line("Acquired Lease", "duration", e.Duration).event("Acquired", "acquired for term %d", e.Term)
	case election.EventReleased:
		return line("Released Lease", "duration", e.Duration).event("Released", "released after term %d", e.Term)
	case election.EventEnded:
		if e.Reason.Planned() {
			return line("Ended claim", "reason", e.Reason, "duration", e.Duration).at(2)
		}
		return line("Lost Lease", "reason", e.Reason, "holder", e.Holder, "duration", e.Duration).failure(nil).
			warn("Lost", "lost term %d: %s (holder %q)", e.Term, e.Reason, e.Holder)
	case election.EventWaiting:
		if e.Err != nil {
			return line("Waiting to join the fleet", "reason", e.Reason, "holder", e.Holder).failure(e.Err).warn("CannotJoin", "%v", e.Err)
		}
		return line("Waiting for the Lease", "reason", e.Reason, "holder", e.Holder).at(2)
	case election.EventFailed:
		return line("Request for the Lease failed", "action", e.Action.String()).failure(e.Err)
	case election.EventConflict:
		return line("Lost a race for the Lease", "action", e.Action.String(), "err", e.Err).at(2)
	case fleet.EventPlanRestored:
		return line("Put the last good plan back", "reason", e.Err.Error()).warn("PlanRestored", "put the last good plan back: %v", e.Err)
	case fleet.EventPlanRefused: // logged where it is refused, with the plan
		if errors.Is(e.Err, fleet.ErrWithoutPlan) {
			return entry{}.warn("PlanRefused", "%.1000s", e.Err.Error())
		}
		return entry{}.warn("PlanRefused", "%.900s; the last good plan stays in force", e.Err.Error())
	case fleet.EventPlanAdapted: // logged where it is written
		return entry{}.event("PlanAdapted", "the members' versions have changed: %.900s", e.Err.Error())
	case fleet.EventLacking: // logged where the plan is adopted
		return entry{}.event("ControllersLacking", "this member's version does not have, and its shards run without, %.900s", e.Err.Error())
	case election.EventStruck:
		return line("Found a member dead", "incarnation", e.Holder, "duration", e.Duration).
			warn("MemberEnded", "%s has not renewed its Lease and is listed as ended: its shards are free", e.Holder)
	case fleet.EventFenced:
		return line("Fenced a dead member", "incarnation", e.Holder, "duration", e.Duration).
			event("Fenced", "%s did not release its shards and is fenced", e.Holder)
	case fleet.EventFenceRefused:
		return line("Could not fence a dead member, its Leases have expired all the same", "incarnation", e.Holder).failure(e.Err).
			warn("NotFenced", "%s could not be fenced: %v", e.Holder, e.Err)
	}
	return entry{}
}

func ofLeaderLock(what election.EventType, e fleet.Event) entry {
	switch what {
	case election.EventAcquired:
		return line("Leader lock is held by the fleet", "duration", e.Duration).event("LeaderLockHeld", "%s holds it from now on", e.Holder)
	case leaderlock.EventSuspended:
		return line("Leader lock was cleared or deleted, taking it back", "reason", e.Reason).failure(nil)
	case election.EventEnded:
		return line("Leader lock lost: all claims end", "reason", e.Reason, "holder", e.Holder, "duration", e.Duration).failure(nil).
			warn("LeaderLockLost", "lost: %s (holder %q)", e.Reason, e.Holder)
	case election.EventWaiting:
		return line("Waiting for the leader lock", "reason", e.Reason, "holder", e.Holder)
	case election.EventFailed:
		return line("Request for the leader lock failed", "action", e.Action.String()).failure(e.Err)
	}
	return entry{}
}

package fleet

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// maxTransitions is how many transitions a member remembers.
const maxTransitions = 200

// maxTold is how much of a text from a Lease a transition keeps, in bytes.
const maxTold = 256

// TransitionKind says what has happened. The values are stable.
type TransitionKind string

const (
	// TransitionAcquired: a shard that nobody held, or that the same member had released, is held by To.
	TransitionAcquired TransitionKind = "acquired"
	// TransitionReleased: From has released a shard, and nobody has acquired it since.
	TransitionReleased TransitionKind = "released"
	// TransitionHandedOver: a shard went from From to To after From had released it. Gap is how long nobody held it.
	TransitionHandedOver TransitionKind = "handed-over"
	// TransitionTakenOver: a shard went from From to To without a release, after From had been silent.
	TransitionTakenOver TransitionKind = "taken-over"
	// TransitionLeaseDeleted: somebody has deleted a Lease, which nobody of the fleet does.
	TransitionLeaseDeleted TransitionKind = "lease-deleted"
	// TransitionPlanChanged: the plan's Lease has another plan. From and To are plan generations.
	TransitionPlanChanged TransitionKind = "plan-changed"
	// TransitionJoined: an incarnation of Member has acquired the member's Lease.
	TransitionJoined TransitionKind = "joined"
	// TransitionActive: Member counts for the rings.
	TransitionActive TransitionKind = "active"
	// TransitionLeaving: Member hands over its shards and gets no others.
	TransitionLeaving TransitionKind = "leaving"
	// TransitionLeft: Member has released its Lease.
	TransitionLeft TransitionKind = "left"
	// TransitionSilent: Member has not renewed its Lease for the Lease's duration.
	TransitionSilent TransitionKind = "silent"
	// TransitionReturned: the same incarnation of a silent Member has renewed its Lease.
	TransitionReturned TransitionKind = "returned"
	// TransitionDrained: an operator has asked that Member gets no shards.
	TransitionDrained TransitionKind = "drained"
	// TransitionUndrained: that is no longer asked.
	TransitionUndrained TransitionKind = "undrained"
)

// Transition is one thing that a member has observed to happen to a shard, a member or the plan of its fleet.
type Transition struct {
	// Seen is when, by the member's clock; At is the wall clock's time then, for people.
	Seen, At time.Time
	Kind     TransitionKind
	// Shard is set where it happened to a shard, Member where it happened to a member.
	Shard  shard.ID
	Member string
	// From and To are members, or what a Lease names instead of one; of a plan they are generations.
	From, To string
	// Term is the shard's term that has begun or, if it was released, ended.
	Term int32
	// Gap is how long From had been unable to write on the shard when To held it, as far as is
	// known. In a handoff it counts from when From's fence closed; in a takeover from that or,
	// usually, from when From was last heard of. For a shard that was released it ends with the
	// release.
	Gap time.Duration
}

// Journal returns the last 200 transitions that this member has observed on the fleet's Leases since it was started, the
// oldest first. What happened while it could not watch the Leases is told as it looks afterwards: what went from one member
// to the next and on to a third as one step, and a takeover as a handover if the holder was heard of until shortly before.
func (m *Member) Journal() []Transition { return m.journal.list() }

// Observed returns what this member has observed of the fleet's Leases and leader locks, sorted by
// name, and the time by its clock: the moment that the observations' own times are to be compared
// with. The slice must not be changed.
func (m *Member) Observed() ([]election.Observation, time.Time) {
	return m.observer.List(), m.config.Clock.Now()
}

// journal is what a member remembers of what it has observed. Its methods are safe for concurrent use.
type journal struct {
	fleet string
	clock election.Clock

	mu      sync.Mutex
	entries []Transition
	// silent has the incarnation of each member that was silent when it was looked at last.
	silent map[string]string
	last   election.Roster
}

func newJournal(fleet string, clock election.Clock) *journal {
	return &journal{fleet: fleet, clock: clock, silent: map[string]string{}}
}

// follow notes what the observer sees until stop is called. It looks at every change while the observer takes it in, since
// changes that are told of later may have become one by then.
func (j *journal) follow(observer *election.Observer) (stop func()) {
	if faults.Bare {
		return func() {}
	}
	_, stop = observer.SubscribeChanges(func(before, after election.Observation) bool {
		if happened := transitions(j.fleet, before, after, j.clock.Now()); len(happened) > 0 {
			j.add(happened...)
		}
		return false
	})
	return stop
}

// look notes who has become silent since the last call: of that no Lease tells.
func (j *journal) look(roster election.Roster, get func(lease string) election.Observation) {
	if faults.Bare {
		return
	}
	j.mu.Lock()
	last := j.last
	j.last = roster
	j.mu.Unlock()
	for _, m := range last.Members() {
		if _, live := roster.Get(m.Name); !live && get(election.MemberLease(j.fleet, m.Name)).Holder == m.Incarnation {
			j.mu.Lock()
			j.silent[m.Name] = m.Incarnation
			j.mu.Unlock()
			j.add(Transition{Kind: TransitionSilent, Member: m.Name})
		}
	}
	for _, m := range roster.Members() {
		j.mu.Lock()
		before, silent := j.silent[m.Name]
		delete(j.silent, m.Name)
		j.mu.Unlock()
		if silent && before == m.Incarnation {
			j.add(Transition{Kind: TransitionReturned, Member: m.Name})
		}
	}
}

// add stamps the transitions and notes them. A release and the acquisition that follows it become one.
func (j *journal) add(happened ...Transition) {
	seen, at := j.clock.Now(), time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, t := range happened {
		if t.Kind == TransitionSilent && j.isSilent(t.Member) {
			continue
		}
		t.Seen, t.At = seen, at
		if t.Kind == TransitionAcquired {
			t = j.joinRelease(t)
		}
		if len(j.entries) == maxTransitions {
			j.entries = slices.Delete(j.entries, 0, 1)
		}
		j.entries = append(j.entries, t)
	}
}

// isSilent reports whether the last that was noted of a member is that it is silent.
func (j *journal) isSilent(member string) bool {
	for _, t := range slices.Backward(j.entries) {
		if t.Member == member {
			return t.Kind == TransitionSilent
		}
	}
	return false
}

// joinRelease returns the acquisition as a handover if another member's release of the term before is in the journal, and
// takes that out.
func (j *journal) joinRelease(t Transition) Transition {
	for i, r := range slices.Backward(j.entries) {
		if r.Shard != t.Shard {
			continue
		}
		if r.Kind == TransitionReleased && r.Term == t.Term-1 {
			j.entries = slices.Delete(j.entries, i, i+1)
			t.From, t.Gap = r.From, r.Gap+t.Seen.Sub(r.Seen)
			if t.From != t.To {
				t.Kind = TransitionHandedOver
			}
		}
		break
	}
	return t
}

func (j *journal) list() []Transition {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries)
}

// transitions returns what has happened between two observations of one Lease, of which the later one was made at now: nothing
// for a renewal, and nothing for what was seen for the first time. It is a pure function.
func transitions(fleet string, before, after election.Observation, now time.Time) []Transition {
	if !before.Known() {
		return nil
	}
	if name, ok := strings.CutPrefix(after.Name, election.MemberLease(fleet, "")); ok {
		return memberTransitions(told(name), before, after)
	}
	if after.Name == leaseapi.PlanLease(fleet) {
		return planTransitions(before, after)
	}
	if before.Exists == after.Exists && before.Holder == after.Holder && before.Transitions == after.Transitions {
		return nil // the many: before anything is computed
	}
	id, ok := leaseapi.ShardOn(fleet, after)
	if !ok {
		id, ok = leaseapi.ShardOn(fleet, before)
	}
	if !ok {
		return nil
	}
	from, to := holderName(before), holderName(after)
	switch t := (Transition{Shard: id, From: from, To: to, Term: after.Transitions}); {
	case before.Exists && !after.Exists:
		t.Kind, t.Term = TransitionLeaseDeleted, before.Transitions
		return []Transition{t}
	case after.Holder == "" && before.Holder == "":
		return nil
	case after.Holder == "":
		t.Kind, t.Gap = TransitionReleased, after.Stopped()
		return []Transition{t}
	case before.Holder == "" || before.Holder == after.Holder:
		t.Kind = TransitionAcquired
		return []Transition{t}
	// Its release was not seen, if it was heard of shortly before. Halfway is as far from a renewal as from a takeover.
	case before.Heartbeat == nil && before.NextHolder() == after.Holder && now.Sub(before.Seen) < before.Duration/2,
		before.Heartbeat != nil && before.NextHolder() == after.Holder && !before.HolderEnded():
		t.Kind = TransitionHandedOver
		return []Transition{t}
	default:
		t.Kind, t.Gap = TransitionTakenOver, before.Stopped()+now.Sub(before.LastSign())
		return []Transition{t}
	}
}

func memberTransitions(name string, before, after election.Observation) []Transition {
	var happened []Transition
	note := func(kind TransitionKind, is bool) {
		if is {
			happened = append(happened, Transition{Kind: kind, Member: name})
		}
	}
	if before.Exists && !after.Exists {
		note(TransitionLeaseDeleted, true)
		return happened
	}
	fresh := after.Holder != before.Holder
	state, last := election.MemberState(after.Annotations[election.StateAnnotation]), election.MemberState(before.Annotations[election.StateAnnotation])
	note(TransitionJoined, fresh && after.Holder != "")
	note(TransitionActive, after.Holder != "" && state == election.MemberActive && (fresh || state != last))
	note(TransitionLeaving, after.Holder != "" && state == election.MemberLeaving && (fresh || state != last))
	// A strike is by others, and no sign of life.
	struck := fresh && after.Holder == "" && after.HasEnded(before.Holder) && after.RenewTime.Equal(before.RenewTime)
	note(TransitionSilent, struck)
	note(TransitionLeft, fresh && after.Holder == "" && !struck)
	drained, was := after.Annotations[leaseapi.DrainAnnotation] != "", before.Annotations[leaseapi.DrainAnnotation] != ""
	note(TransitionDrained, drained && !was)
	note(TransitionUndrained, was && !drained)
	return happened
}

func planTransitions(before, after election.Observation) []Transition {
	switch {
	case before.Exists && !after.Exists:
		return []Transition{{Kind: TransitionLeaseDeleted, From: told(before.Annotations[leaseapi.GenerationAnnotation])}}
	case before.Annotations[leaseapi.DocumentAnnotation] == after.Annotations[leaseapi.DocumentAnnotation]:
		return nil
	default:
		return []Transition{{
			Kind: TransitionPlanChanged,
			From: told(before.Annotations[leaseapi.GenerationAnnotation]), To: told(after.Annotations[leaseapi.GenerationAnnotation]),
		}}
	}
}

// holderName returns the member that holds a Lease, or whatever else it names; empty if nobody does.
func holderName(o election.Observation) string {
	if name := election.MemberOf(o.Holder); name != "" {
		return told(name)
	}
	return told(o.Holder)
}

// told bounds a text that anybody may have written.
func told(text string) string { return leaseapi.Shorten(text, maxTold) }

package history

import (
	"strconv"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// maxText is how much of a Lease's text a transition keeps, in bytes.
const maxText = 256

// Transition is one thing that happened to a shard, a member or the plan of a fleet.
type Transition struct {
	Kind Kind
	// Lease is the name of the Lease that shows it.
	Lease string
	// Shard is set if the Lease is a shard's, by labels and name. Member is set if it is a
	// member's.
	Shard  shard.ID
	Member string
	// From and To are members, or whatever else the Lease names; for a plan they are generations.
	From, To string
	// Term is the Lease's term that began or ended; 0 if none did.
	Term int32
	// Gap is how long From had been unable to write when To acquired the Lease, or when From
	// released it, as far as the observations show. In a release it begins when From's fence
	// closed. In a takeover it begins then or, usually, at From's last sign of life.
	Gap time.Duration
	// Stamp is when it happened, for people, by the clock of whoever wrote it on the Lease; zero if
	// nobody did.
	Stamp time.Time
}

// about returns a transition of a kind, with the shard or member of the Lease. If somebody has
// removed the Lease's labels, those of before count.
func about(fleet string, kind Kind, o, before election.Observation) Transition {
	t := Transition{Kind: kind, Lease: o.Name}
	if name, ok := leaseapi.MemberOn(fleet, o); ok {
		t.Member = name
	}
	for _, o := range []election.Observation{before, o} {
		if id, ok := leaseapi.ShardOn(fleet, o); ok {
			t.Shard = id
		}
	}
	return t
}

// About returns a transition of no kind, with the shard or the member of a Lease.
func About(fleet string, o election.Observation) Transition { return about(fleet, "", o, o) }

// Lapsed returns the transition of a Lease whose holder has been silent for the Lease's duration.
func Lapsed(fleet string, o election.Observation) Transition {
	t := about(fleet, Expired, o, o)
	t.From, t.Term = holderName(o), o.Transitions
	if t.Member != "" {
		t.Kind, t.From = Silent, ""
	}
	return t
}

// Resumed returns the transition of a member's Lease whose holder renews it again.
func Resumed(fleet string, o election.Observation) Transition {
	return about(fleet, Returned, o, o)
}

// Last returns what one observation shows of the past: the last transition of each kind for which
// the Lease has a stamp. lapsed says that its holder has been silent for the Lease's duration.
func Last(fleet string, o election.Observation, lapsed bool) []Transition {
	_, member := leaseapi.MemberOn(fleet, o)
	if !o.Exists || member && o.IsRetired() {
		return nil
	}
	p := pair{fleet: fleet, after: o}
	acquired, released := Acquired, Released
	if member {
		acquired, released = Joined, Left
	}
	switch {
	case member && o.IsStruck():
		p.found = append(p.found, Lapsed(fleet, o))
		p.found[0].Stamp = o.RenewTime.Add(o.Duration)
	case o.Holder == "" && o.Transitions > 0:
		t := p.note(released)
		t.Term, t.Gap, t.Stamp = o.Transitions, o.Stopped(), o.RenewTime
	case o.Holder != "":
		t := p.note(acquired)
		t.Term, t.Stamp = o.Transitions, o.AcquireTime
		if !member {
			t.To = holderName(o)
		}
		if lapsed {
			t := Lapsed(fleet, o)
			t.Stamp = o.LastStamp().Add(o.Duration)
			p.found = append(p.found, t)
		}
	}
	if member {
		p.drain()
	} else if o.Name == leaseapi.PlanLease(fleet) {
		p.stop()
	}
	return p.found
}

// Between returns what happened between two observations of one Lease, in reading order: who holds
// the Lease, then what they say.
func Between(fleet string, before, after election.Observation) []Transition {
	p := pair{fleet: fleet, before: before, after: after}
	switch _, member := leaseapi.MemberOn(fleet, after); {
	case !before.Known():
	case before.Exists && !after.Exists:
		if !before.IsRetired() { // otherwise it is collected, as the planner has asked for
			p.deleted()
		}
	case member:
		p.member()
		p.drain()
	case after.Name == leaseapi.PlanLease(fleet):
		p.holder()
		p.stop()
		p.plan()
	default:
		p.holder()
		p.steps()
	}
	return p.found
}

// pair has two observations of a Lease, and what was found between them. The first may be missing.
type pair struct {
	fleet         string
	before, after election.Observation
	found         []Transition
}

// note adds a transition of a kind, for the caller to complete.
func (p *pair) note(kind Kind) *Transition {
	p.found = append(p.found, about(p.fleet, kind, p.after, p.before))
	return &p.found[len(p.found)-1]
}

// changed returns the present value of an annotation, and whether it differs from before.
func (p *pair) changed(annotation string) (value string, is bool) {
	value = p.after.Annotations[annotation]
	return value, value != p.before.Annotations[annotation]
}

func (p *pair) deleted() {
	t := p.note(LeaseDeleted)
	switch {
	case p.after.Name == leaseapi.PlanLease(p.fleet):
		t.From = generationOn(p.before)
	case t.Member == "":
		t.From, t.Term = holderName(p.before), p.before.Transitions
	}
}

// holder finds changes of the holder of a shard's or the plan's Lease.
func (p *pair) holder() {
	before, after := p.before, p.after
	sameTerm := before.Transitions == after.Transitions || after.Holder == ""
	if before.Holder == after.Holder && sameTerm {
		return // most changes are renewals
	}
	var kind Kind
	var gap time.Duration
	stamp := after.AcquireTime
	switch {
	case after.Holder == "":
		kind, gap, stamp = Released, after.Stopped(), after.RenewTime
	case before.Holder == "" || before.Holder == after.Holder:
		kind = Acquired
	case p.releaseUnseen():
		kind = HandedOver
	default:
		kind, gap = TakenOver, max(0, before.Stopped()+after.Seen.Sub(before.LastSign()))
	}
	t := p.note(kind)
	t.From, t.To, t.Term = holderName(before), holderName(after), after.Transitions
	t.Gap, t.Stamp = gap, stamp
}

// releaseUnseen reports whether the holder most likely released the Lease to the member that had
// asked for it, between the observations: the holder was still alive. If the holder renewed the
// Lease itself, the limit is half the duration, as far from a renewal as from a takeover.
func (p *pair) releaseUnseen() bool {
	switch {
	case p.before.NextHolder() != p.after.Holder:
		return false
	case p.before.Heartbeat == nil:
		return p.after.Seen.Sub(p.before.Seen) < p.before.Duration/2
	default:
		return !p.before.HolderEnded()
	}
}

// steps finds what the holder of a shard, and its next holder, publish.
func (p *pair) steps() {
	if asks, changed := p.changed(leaserecord.NextHolderAnnotation); changed && asks != "" {
		t := p.note(Asked)
		t.From, t.To = holderName(p.after), nameOf(asks)
	}
	if p.after.Holder == "" {
		return
	}
	if _, changed := p.changed(leaseapi.ReadyAnnotation); changed && leaseapi.SaysReady(p.after) {
		p.note(Ready).To = holderName(p.after)
	}
	if _, changed := p.changed(leaseapi.RunningAnnotation); changed && leaseapi.SaysRunning(p.after) {
		p.note(Running).To = holderName(p.after)
	}
}

func (p *pair) member() {
	if p.after.IsRetired() {
		return // its holder, if it has any, died long ago and did not release it
	}
	held, fresh := p.after.Holder != "", p.before.Holder != p.after.Holder
	var kind Kind
	var stamp time.Time
	switch {
	case held:
		kind, stamp = Joined, p.after.AcquireTime
	case p.after.IsStruck(): // others list it as ended, and leave its stamps
		kind = Silent
	default:
		kind, stamp = Left, p.after.RenewTime
	}
	if fresh {
		t := p.note(kind)
		t.Term, t.Stamp = p.after.Transitions, stamp
	}
	if state, changed := p.changed(leaserecord.StateAnnotation); held && (fresh || changed) {
		switch membership.State(state) {
		case membership.Active:
			p.note(Active)
		case membership.Leaving:
			p.note(Leaving)
		}
	}
	if text, changed := p.changed(leaseapi.RefusedAnnotation); changed && text != "" {
		generation, _, _ := strings.Cut(text, ":")
		p.note(PlanRefused).To = bounded(generation)
	}
}

func (p *pair) drain() {
	switch drain, changed := p.changed(leaseapi.DrainAnnotation); {
	case !changed:
	case drain == "":
		p.note(Undrained)
	case p.before.Annotations[leaseapi.DrainAnnotation] == "":
		t := p.note(Drained)
		t.Stamp, _ = time.Parse(time.RFC3339, drain) // any other text drains too
	}
}

func (p *pair) stop() {
	text, changed := p.changed(leaseapi.StopAnnotation)
	if !changed {
		return
	}
	if text == "" {
		p.note(FleetStarted)
	} else if stop, err := leaseapi.ParseStop(text); err == nil {
		p.note(FleetStopped).Stamp = stop.Since
	}
}

func (p *pair) plan() {
	if _, changed := p.changed(leaseapi.DocumentAnnotation); !changed {
		return
	}
	if to := generationOn(p.after); to == "" {
		p.note(PlanUnreadable)
	} else {
		t := p.note(PlanChanged)
		t.From, t.To = generationOn(p.before), to
	}
}

// generationOn returns the generation of the plan on its Lease; empty if it cannot be read.
func generationOn(o election.Observation) string {
	plan, err := leaseapi.PlanOn(o.Lease)
	if err != nil {
		return ""
	}
	return strconv.FormatInt(plan.Generation, 10)
}

// holderName returns the member that holds a Lease, or whatever else it names; empty if nobody
// holds it.
func holderName(o election.Observation) string { return nameOf(o.Holder) }

func nameOf(incarnation string) string {
	if name := leaserecord.MemberOf(incarnation); name != "" {
		return bounded(name)
	}
	return bounded(incarnation)
}

func bounded(text string) string { return leaseapi.Shorten(text, maxText) }

package status

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/history"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Sources of events.
const (
	FromLease = "lease"
	FromEvent = "event"
)

// Event is something that has happened in a fleet.
type Event struct {
	// Time is when, by the clock of whoever did it; to the microsecond where a Lease tells.
	Time time.Time `json:"time"`
	// Severity is Warning or Note.
	Severity Severity `json:"severity"`
	// Kind says what has happened: a history.Kind if Source is FromLease, or the reason of a
	// Kubernetes event.
	Kind history.Kind `json:"kind"`
	// About and Object are as in Finding.
	About  string `json:"about"`
	Object string `json:"object"`
	Lease  string `json:"lease"`
	// Term is the one that began or ended; 0 if none did.
	Term    int32  `json:"term,omitempty"`
	Message string `json:"message"`
	// Source is where it was read: from a Lease, or from a Kubernetes event.
	Source string `json:"source"`
	// Count is how many times it has happened, if more than once.
	Count int `json:"count,omitempty"`
}

// SortEvents sorts by time, and else by Lease and what happened.
func SortEvents(events []Event) {
	slices.SortStableFunc(events, func(a, b Event) int {
		return cmp.Or(
			a.Time.Compare(b.Time), cmp.Compare(a.Term, b.Term),
			CompareNatural(a.Lease, b.Lease), cmp.Compare(a.Kind, b.Kind),
		)
	})
}

// Object returns what a Lease of the fleet is about.
func (r *Reading) Object(lease string) (about, object string) {
	o := r.Lease(lease)
	o.Name = lease
	return r.objectOf(history.About(r.Fleet, o))
}

func (r *Reading) objectOf(t history.Transition) (about, object string) {
	switch {
	case t.Member != "":
		return AboutMember, t.Member
	case t.Lease == leaseapi.PlanLease(r.Fleet):
		return AboutPlan, t.Lease
	case t.Shard != (shard.ID{}):
		return AboutShard, Plain(t.Shard.String())
	default:
		return AboutLease, Plain(t.Lease)
	}
}

// alarming are the kinds that warn an operator.
var alarming = []history.Kind{
	history.TakenOver, history.Expired, history.Silent,
	history.PlanRefused, history.PlanUnreadable, history.LeaseDeleted,
}

// event returns a transition as an event, at the Lease's stamp, or at the given time if there is
// none.
func (r *Reading) event(t history.Transition, at time.Time, message string) Event {
	e := Event{
		Time: at.UTC(), Severity: Note, Kind: t.Kind, Lease: t.Lease, Term: t.Term,
		Message: Plain(message), Source: FromLease,
	}
	if Stamp(t.Stamp) != nil {
		e.Time = t.Stamp.UTC()
	}
	if slices.Contains(alarming, t.Kind) {
		e.Severity = Warning
	}
	e.About, e.Object = r.objectOf(t)
	return e
}

// Past returns what the Leases tell of what has happened, sorted: the last of each. What has no
// sane stamp is left out.
func Past(r *Reading) []Event {
	var found []Event
	for _, o := range r.sorted {
		_, ago := r.endOf(o)
		for _, t := range history.Last(r.Fleet, o, !r.IsHeld(o) && ago > 0) {
			found = append(found, r.event(t, time.Time{}, tellPast(t, o)))
		}
	}
	if at, by := planWritten(r); !at.IsZero() {
		t := history.Transition{Kind: history.PlanChanged, Lease: r.PlanLease.Name}
		text := fmt.Sprintf("plan generation %d written by %s", r.Plan.Generation, Plain(by))
		found = append(found, r.event(t, at, text))
	}
	latest := r.Now.Add(maxAhead)
	found = slices.DeleteFunc(found, func(e Event) bool {
		return Stamp(e.Time) == nil || e.Time.After(latest)
	})
	SortEvents(found)
	return found
}

// tellPast says in words what one observation of a Lease tells.
func tellPast(t history.Transition, o election.Observation) string {
	switch t.Kind {
	case history.Released, history.Left:
		return fmt.Sprintf("released after term %d", t.Term)
	case history.Silent, history.Expired:
		since := o.LastStamp().UTC().Format(time.RFC3339)
		if o.Holder == "" {
			return fmt.Sprintf("silent since %s, in term %d", since, t.Term)
		}
		return fmt.Sprintf("%s has not renewed since %s", Plain(o.Holder), since)
	default:
		return tell(t, election.Observation{}, o)
	}
}

// planWritten returns when the plan on the Lease was written, if a client wrote it that writes
// nothing else there. The planner's renewals hide when the planner wrote it.
func planWritten(r *Reading) (at time.Time, by string) {
	if r.PlanLease == nil || r.Fault != nil {
		return at, by
	}
	for _, entry := range r.PlanLease.ManagedFields {
		if entry.Time == nil || entry.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Metadata struct {
				Annotations map[string]any `json:"f:annotations"`
			} `json:"f:metadata"`
			Spec map[string]any `json:"f:spec"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, plan := fields.Metadata.Annotations["f:"+leaseapi.DocumentAnnotation]; plan && fields.Spec["f:renewTime"] == nil {
			return entry.Time.Time, entry.Manager
		}
	}
	return at, by
}

// Changes returns what two observations of one Lease, one right after the other, tell of what has
// happened between them, as of now. r is any reading of the fleet.
func Changes(r *Reading, before, after election.Observation, now time.Time) []Event {
	var found []Event
	for _, t := range history.Between(r.Fleet, before, after) {
		found = append(found, r.event(t, now, tell(t, before, after)))
	}
	return found
}

// tell says in words what has happened between two observations of a Lease, of which the first may
// be missing.
func tell(t history.Transition, before, after election.Observation) string {
	was, is := Plain(before.Holder), Plain(after.Holder)
	switch t.Kind {
	case history.Acquired, history.Joined:
		text := fmt.Sprintf("%s by %s", t.Kind, is)
		if was != "" {
			text += " after " + was
		}
		return fmt.Sprintf("%s, term %d", text, t.Term)
	case history.HandedOver:
		return fmt.Sprintf("handed over by %s to %s, term %d", was, is, t.Term)
	case history.TakenOver:
		return fmt.Sprintf("taken over by %s from %s, which had not renewed for %s, term %d",
			is, was, Short(t.Gap), t.Term)
	case history.Released, history.Left:
		return fmt.Sprintf("released by %s after term %d", was, t.Term)
	case history.Silent: // listed as ended by others
		return fmt.Sprintf("%s has not renewed its Lease, and was found dead by another member", was)
	case history.Asked:
		return fmt.Sprintf("asked for by %s, held by %s", Plain(after.NextHolder()), is)
	case history.Ready:
		return fmt.Sprintf("ready at %s, waits for older shards", is)
	case history.Running:
		return fmt.Sprintf("run by %s, term %d", is, after.Transitions)
	case history.PlanRefused:
		return "refuses plan generation " + Plain(after.Annotations[leaseapi.RefusedAnnotation])
	case history.PlanChanged:
		text := "plan generation " + t.To
		if t.From != "" {
			text += " after " + t.From
		}
		if plan, err := leaseapi.PlanOn(after.Lease); err == nil {
			text += ", digest " + plan.Digest()
		}
		return text
	case history.PlanUnreadable:
		_, err := leaseapi.PlanOn(after.Lease)
		return fmt.Sprintf("the plan cannot be used any more: %v", err)
	case history.FleetStopped:
		stop, _ := leaseapi.ParseStop(after.Annotations[leaseapi.StopAnnotation])
		return fmt.Sprintf("the fleet is stopped%s", stop)
	case history.FleetStarted:
		return "the fleet is started"
	case history.LeaseDeleted:
		return fmt.Sprintf("Lease deleted, which was held by %q", was)
	default: // the word says it
		return string(t.Kind)
	}
}

// Silences returns which members, and holders of shards, have fallen silent between two readings
// that follow each other, and which members have returned.
func Silences(before, after *Reading) []Event {
	var found []Event
	for _, o := range after.sorted {
		was := before.Lease(o.Name)
		if o.Holder == "" || o.Holder != was.Holder || o.Transitions != was.Transitions {
			continue
		}
		_, member := leaseapi.MemberOn(after.Fleet, o)
		switch held, holds := before.IsHeld(was), after.IsHeld(o); {
		case held && !holds:
			silence := Short(after.AsOf.Sub(o.LastStamp()))
			text := fmt.Sprintf("%s has not renewed for %s", Plain(o.Holder), silence)
			found = append(found, after.event(history.Lapsed(after.Fleet, o), after.Now, text))
		case member && !held && holds:
			text := Plain(o.Holder) + " renews its Lease again"
			found = append(found, after.event(history.Resumed(after.Fleet, o), after.Now, text))
		}
	}
	return found
}

package status

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// What has happened to a Lease, as Event.What says. The values are stable.
const (
	Acquired    = "Acquired"
	TakenOver   = "TakenOver"
	Released    = "Released"
	Expired     = "Expired"
	Running     = "Running"
	Asked       = "Asked"
	Prepared    = "Prepared"
	Joined      = "Joined"
	Became      = "Became"
	Left        = "Left"
	Silent      = "Silent"
	Drained     = "Drained"
	Undrained   = "Undrained"
	FleetStops  = "FleetStops"
	FleetStarts = "FleetStarts"
	Refuses     = "Refuses"
	PlanWritten = "PlanWritten"
	PlanSpoilt  = "PlanSpoilt"
	Deleted     = "Deleted"
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
	// What has happened: a constant of this package, or the reason of a Kubernetes event.
	What string `json:"what"`
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
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Term, b.Term), CompareNatural(a.Lease, b.Lease), strings.Compare(a.What, b.What))
	})
}

// Object returns what a Lease of the fleet is about.
func (r *Reading) Object(lease string) (about, object string) {
	if name, is := strings.CutPrefix(lease, election.MemberLease(r.Fleet, "")); is && name != "" {
		return AboutMember, name
	}
	if lease == leaseapi.PlanLease(r.Fleet) {
		return AboutPlan, lease
	}
	o := r.Lease(lease)
	// What a Lease calls itself, it is if it has the name for it.
	if id := (shard.ID{Ring: o.Labels[leaseapi.RingLabel], Name: o.Labels[leaseapi.ShardLabel]}); id.Ring != "" && lease == leaseapi.ShardLease(r.Fleet, id) {
		return AboutShard, Plain(id.String())
	}
	return AboutLease, Plain(lease)
}

// event returns one about a Lease.
func (r *Reading) event(o election.Observation, at time.Time, severity Severity, what string, term int32, format string, args ...any) Event {
	e := Event{Time: at.UTC(), Severity: severity, What: what, Lease: o.Name, Term: term, Message: Plain(fmt.Sprintf(format, args...)), Source: FromLease}
	e.About, e.Object = r.Object(o.Name)
	return e
}

// Past returns what the Leases tell of what has happened, sorted: the last of each. What has no sane stamp is left out.
func Past(r *Reading) []Event {
	var found []Event
	for _, o := range r.sorted {
		_, member := leaseapi.MemberOn(r.Fleet, o)
		acquired, released, silent := Acquired, Released, Expired
		if member {
			acquired, released, silent = Joined, Left, Silent
		}
		switch end, ago := r.endOf(o); {
		case member && o.IsStruck():
			found = append(found, r.event(o, o.RenewTime.Add(o.Duration), Warning, silent, o.Transitions, "silent since %s, in term %d", o.RenewTime.UTC().Format(time.RFC3339), o.Transitions))
		case o.Holder == "" && o.Transitions > 0:
			found = append(found, r.event(o, o.RenewTime, Note, released, o.Transitions, "released after term %d", o.Transitions))
		case o.Holder == "":
		default:
			found = append(found, r.event(o, o.AcquireTime, Note, acquired, o.Transitions, "%s by %s, term %d", strings.ToLower(acquired), Plain(o.Holder), o.Transitions))
			if !r.IsHeld(o) && end != nil && ago > 0 {
				found = append(found, r.event(o, o.LastStamp().Add(o.Duration), Warning, silent, o.Transitions, "%s has not renewed since %s", Plain(o.Holder), o.LastStamp().UTC().Format(time.RFC3339)))
			}
		}
		if at := parseStamp(o.Annotations[leaseapi.DrainAnnotation]); member && at != nil {
			found = append(found, r.event(o, *at, Note, Drained, 0, "drained"))
		}
	}
	if at, by := planWritten(r); !at.IsZero() {
		found = append(found, r.event(r.Lease(leaseapi.PlanLease(r.Fleet)), at, Note, PlanWritten, 0, "plan generation %d written by %s", r.Plan.Generation, Plain(by)))
	}
	found = slices.DeleteFunc(found, func(e Event) bool { return Stamp(e.Time) == nil || e.Time.After(r.Now.Add(maxAhead)) })
	SortEvents(found)
	return found
}

// planWritten returns when the plan on the Lease was written, if that can be told: by a client that writes nothing else there.
// What the planner writes, its renewals hide.
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

// Changes returns what two observations of one Lease, one right after the other, tell of what has happened between them, as of
// now. r is any reading of the fleet.
func Changes(r *Reading, before, after election.Observation, now time.Time) []Event {
	with := *r // knows the Lease as it is
	with.leases = map[string]election.Observation{after.Name: after}
	c := &changes{r: &with, before: before, after: after, now: now}
	if !after.Exists {
		if !before.Exists {
			return nil
		}
		with.leases[after.Name] = before
		c.add(now, Warning, Deleted, 0, "Lease deleted, which was held by %q", Plain(before.Holder))
		return c.found
	}
	_, member := leaseapi.MemberOn(r.Fleet, after)
	c.holder(member)
	switch {
	case member:
		c.member()
	case after.Name == leaseapi.PlanLease(r.Fleet):
		c.plan()
	default:
		c.shard()
	}
	return c.found
}

type changes struct {
	r             *Reading
	before, after election.Observation
	now           time.Time
	found         []Event
}

func (c *changes) add(at time.Time, severity Severity, what string, term int32, format string, args ...any) {
	if Stamp(at) == nil {
		at = c.now
	}
	c.found = append(c.found, c.r.event(c.after, at, severity, what, term, format, args...))
}

// changed returns what an annotation has become, if it has changed.
func (c *changes) changed(annotation string) (value string, is bool) {
	value = c.after.Annotations[annotation]
	return value, value != c.before.Annotations[annotation]
}

func (c *changes) holder(member bool) {
	was, is := c.before, c.after
	if was.Holder == is.Holder && was.Transitions == is.Transitions {
		return
	}
	acquired, released := Acquired, Released
	if member {
		acquired, released = Joined, Left
	}
	silence := is.AcquireTime.Sub(was.LastStamp())
	switch by := Plain(is.Holder); {
	case member && was.Holder != "" && is.IsStruck():
		c.add(c.now, Warning, Silent, is.Transitions, "%s has not renewed for %s, and was found dead by another member", Plain(was.Holder), Short(c.now.Sub(was.RenewTime)))
	case is.Holder == "" && was.Holder != "":
		c.add(is.RenewTime, Note, released, is.Transitions, "released by %s after term %d", Plain(was.Holder), is.Transitions)
	case is.Holder == "":
	case was.Holder == "":
		c.add(is.AcquireTime, Note, acquired, is.Transitions, "%s by %s, term %d", strings.ToLower(acquired), by, is.Transitions)
	case was.Holder != is.Holder && silence >= was.Duration && member:
		c.add(is.AcquireTime, Note, Joined, is.Transitions, "joined by %s after %s, which had not renewed for %s, term %d", by, Plain(was.Holder), Short(silence), is.Transitions)
	case was.Holder != is.Holder && silence >= was.Duration:
		c.add(is.AcquireTime, Warning, TakenOver, is.Transitions, "taken over by %s from %s, which had not renewed for %s, term %d", by, Plain(was.Holder), Short(silence), is.Transitions)
	default:
		c.add(is.AcquireTime, Note, acquired, is.Transitions, "%s by %s after %s, term %d", strings.ToLower(acquired), by, Plain(was.Holder), is.Transitions)
	}
}

func (c *changes) shard() {
	term := strconv.Itoa(int(c.after.Transitions))
	if asks, changed := c.changed(election.NextHolderAnnotation); changed && asks != "" {
		c.add(c.now, Note, Asked, 0, "asked for by %s, held by %s", Plain(asks), Plain(c.after.Holder))
	}
	if ready, changed := c.changed(leaseapi.ReadyAnnotation); changed && ready == term {
		c.add(c.now, Note, Prepared, 0, "prepared by %s, waits for older shards", Plain(c.after.Holder))
	}
	if runs, changed := c.changed(leaseapi.RunningAnnotation); changed && runs == term && c.after.Holder != "" {
		c.add(c.now, Note, Running, 0, "run by %s, term %s", Plain(c.after.Holder), term)
	}
}

func (c *changes) member() {
	if state, changed := c.changed(election.StateAnnotation); changed && c.before.Exists && c.after.Holder != "" {
		c.add(c.now, Note, Became, 0, "became %s", Plain(state))
	}
	drain, changed := c.changed(leaseapi.DrainAnnotation)
	switch {
	case changed && drain == "":
		c.add(c.now, Note, Undrained, 0, "undrained")
	case changed && c.before.Annotations[leaseapi.DrainAnnotation] == "":
		c.add(c.now, Note, Drained, 0, "drained")
	}
	if text, changed := c.changed(leaseapi.RefusedAnnotation); changed && text != "" {
		c.add(c.now, Warning, Refuses, 0, "refuses plan generation %s", Plain(text))
	}
}

func (c *changes) plan() {
	if text, changed := c.changed(leaseapi.StopAnnotation); changed {
		switch stop, err := leaseapi.ParseStop(text); {
		case text == "":
			c.add(c.now, Note, FleetStarts, 0, "the fleet is started")
		case err == nil:
			c.add(stop.Since, Note, FleetStops, 0, "the fleet is stopped%s", stop)
		}
	}
	if _, changed := c.changed(leaseapi.DocumentAnnotation); !changed {
		return
	}
	plan, err := leaseapi.PlanOn(c.after.Lease)
	was, wasErr := leaseapi.PlanOn(c.before.Lease)
	switch {
	case err != nil:
		c.add(c.now, Warning, PlanSpoilt, 0, "the plan cannot be used any more: %v", err)
	case wasErr != nil:
		c.add(c.now, Note, PlanWritten, 0, "plan generation %d, digest %s", plan.Generation, plan.Digest())
	default:
		c.add(c.now, Note, PlanWritten, 0, "plan generation %d after %d, digest %s", plan.Generation, was.Generation, plan.Digest())
	}
}

// Silences returns who has become silent between two readings that follow each other: members, and holders of shards.
func Silences(before, after *Reading) []Event {
	var found []Event
	for _, o := range after.sorted {
		was := before.Lease(o.Name)
		if !before.IsHeld(was) || o.Holder == "" || o.Holder != was.Holder || o.Transitions != was.Transitions || after.IsHeld(o) {
			continue
		}
		what := Expired
		if _, member := leaseapi.MemberOn(after.Fleet, o); member {
			what = Silent
		}
		found = append(found, after.event(o, after.Now, Warning, what, o.Transitions, "%s has not renewed for %s", Plain(o.Holder), Short(after.AsOf.Sub(o.LastStamp()))))
	}
	return found
}

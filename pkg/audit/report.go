package audit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Violation is one breach of a rule.
type Violation struct {
	Kind Kind `json:"kind"`
	// Log and Line are the numbers of the log and of the line in it, both from 1. File is the log's
	// name, if it has one. AuditID is the audit ID on the line.
	File    string `json:"file,omitempty"`
	Log     int    `json:"log"`
	Line    int    `json:"line"`
	AuditID string `json:"auditID"`
	// Verb and URI of the request.
	Verb string `json:"verb"`
	URI  string `json:"uri"`
	// Time is when the request was answered.
	Time time.Time `json:"time"`
	// Detail says in words what was expected and what was found.
	Detail string `json:"detail"`
}

// String returns all of it on one line.
func (v Violation) String() string {
	return fmt.Sprintf("%s: %s; %s, audit ID %s, %s %s at %s", v.Kind, v.Detail, where(v.File, v.Log, v.Line), v.AuditID, v.Verb, v.URI, stamp(v.Time))
}

// where names a line.
func where(file string, log, line int) string {
	switch {
	case file != "":
		return fmt.Sprintf("%s line %d", file, line)
	case log > 1:
		return fmt.Sprintf("log %d line %d", log, line)
	default:
		return fmt.Sprintf("line %d", line)
	}
}

func (e event) violation(kind Kind, format string, args ...any) Violation {
	return Violation{
		Kind: kind, File: e.file, Log: e.log, Line: e.line, AuditID: e.AuditID, Verb: e.Verb, URI: e.RequestURI, Time: e.Answered.Time,
		Detail: fmt.Sprintf(format, args...),
	}
}

// Term is one holder's continuous hold of a Lease.
type Term struct {
	// Holder is the incarnation, Term the number.
	Holder string
	Term   int32
	// Began and Ended are when the Lease writes that began and ended it were answered. Ended is
	// zero for a term whose end the log does not show. If the holder has one heartbeat for all, a
	// write of its member's Lease may have ended it.
	Began, Ended time.Time
	// Released is set if the holder gave back the Lease, or its member's Lease, instead of losing
	// it.
	Released bool

	first, last state // its first and last write
	// earlier is set if the term had begun before the log.
	earlier bool
	end     state // the write that ended it
	// beating is set if the holder has one heartbeat for all that it holds: beat is its last one in
	// the term or before, if beats is set. struck is set if the term ended with the write that
	// listed the holder as ended, and taken is the write after which the shard's Lease no longer
	// named it.
	beating, beats, struck bool
	beat, taken            state
	// cover is what the Lease said in the term, nil if it named no controllers. waited is set once
	// it said that the holder was ready and waited for others, ran is when it stopped saying so.
	cover  *cover
	waited bool
	ran    time.Time
}

// couldCover reports whether the request may have taken effect within the term.
func (t Term) couldCover(e event) bool {
	return (t.earlier || !e.Answered.Time.Before(t.first.received)) && (t.Ended.IsZero() || !e.Received.After(t.Ended))
}

// TermWrites are the writes of one holder of a shard, in one term, to one namespace.
type TermWrites struct {
	Identity
	// Writes counts them; First and Last are when the first and the last one was answered.
	Writes      int
	First, Last time.Time
}

// Counts says what the log had.
type Counts struct {
	// Lines is the number of lines of the log.
	Lines int `json:"lines"`
	// Torn are lines that begin with a part of another one, because their server was killed while
	// it wrote that. The event of the part is lost.
	Torn int `json:"torn"`
	// ByVersion and ByTime are the writes that carry the fence's part, by how they were matched
	// with their Lease.
	ByVersion int `json:"byVersion"`
	ByTime    int `json:"byTime"`
	// Late are those whose Lease, or whose member's Lease, had run out but had not been taken by
	// anybody.
	Late int `json:"late"`
	// Flying are the writes in flight, FlyingReleased those of them whose term ended by a release.
	Flying         int `json:"inFlight"`
	FlyingReleased int `json:"inFlightAfterRelease"`
	// Partial are the shards' Leases that are older than the log.
	Partial int `json:"partial"`
	// Refused, Events and StoreNothing carry the fence's part too but are not judged by the Lease.
	// Refused are all refused requests, late or not.
	Refused      int `json:"refused"`
	Events       int `json:"events"`
	StoreNothing int `json:"storeNothing"`
	// FleetOwn are the fleet's own requests, which do not carry the fence's part.
	FleetOwn int `json:"fleetOwn"`
	// Unnamed are requests without the fence's part that may come from the fleet or from a stock
	// controller manager of the same build, as neither sent them with a token of its own.
	Unnamed int `json:"unnamed"`
	// Volumes are requests for PersistentVolumes, compared with the range by the volume's claim;
	// VolumesUnknown those for which the log does not show the volume's claim.
	Volumes        int `json:"volumes"`
	VolumesUnknown int `json:"volumesUnknown"`
	// ByController are requests whose controller was compared with those that the Lease named.
	ByController int `json:"byController"`
	// AgainstLeaderLock are comparisons of a write with a leader lock, one for each leader lock.
	AgainstLeaderLock int `json:"againstLeaderLock"`
	// PlansRefused are plans that somebody outside the fleet wrote and that could not follow the
	// one in force.
	PlansRefused int `json:"plansRefused"`
	// Ended are incarnations that were listed as ended, each compared with its heartbeats. Taken
	// are the times that somebody took a shard from a holder without a release, each compared with
	// the end of that holder. Both are for fleets with one heartbeat for each member.
	Ended int `json:"ended"`
	Taken int `json:"taken"`
	// LeaseUnknown are writes of shards' Leases that ended with a server's error, so that it is
	// unknown whether they took effect. They are left out, except those that a later write was made
	// on: look at them before you believe a nearby violation.
	LeaseUnknown int `json:"leaseUnknown"`
	// Lost are writes of objects that arrived and never ended, for example because their server was
	// killed. The log shows them only if its policy keeps the stage RequestReceived.
	Lost int `json:"lost"`
}

// Report is what a log shows about a fleet.
type Report struct {
	Counts
	// Cut is set if the log's last line was incomplete and so left out.
	Cut bool
	// Plans is how many plans were in force, one after the other, including the one given up front.
	Plans int
	// Writes counts writes by shard and incarnation.
	Writes map[shard.ID]map[string]int
	// Namespaces lists for each namespace who wrote in it for namespaced shards, in order of the
	// first write.
	Namespaces map[string][]TermWrites
	// Terms are the terms of each shard, in order.
	Terms map[shard.ID][]Term
	// Overlaps are pairs of terms of one shard that were in force at the same time, and of two
	// shards with overlapping extents that worked at the same time, in order. Each is also a
	// violation.
	Overlaps []Overlap
	// InFlight are writes that were already on the wire when their term ended, in the logs' order.
	// They are not violations.
	InFlight []Flight
	// DeniedLate counts requests that came after their term had ended and were refused, by the code
	// of the answer. A fence in the API server answers 403.
	DeniedLate map[int32]int
	// Objects says how much the rules about objects had to judge.
	Objects Judged
	// Violations are in the logs' order.
	Violations []Violation
	// Undecided is what the log can neither prove nor rule out as a violation, in the logs' order.
	Undecided []Violation

	times map[string][]time.Time // of each incarnation's writes, sorted
	tale  tale                   // of the shards
}

// Unwritten returns the namespaces in which no namespaced shard has written anything, sorted.
func (r Report) Unwritten(namespaces []string) []string {
	var none []string
	for _, namespace := range namespaces {
		if len(r.Namespaces[namespace]) == 0 {
			none = append(none, namespace)
		}
	}
	slices.Sort(none)
	return none
}

// Gaps returns how long shards were without a holder between two terms, by whether the first was
// released or ran out, each sorted. A gap goes from the answer to the first term's last write to
// the answer to the next term's first. If the Lease ran out, it counts from its last renewal, or
// from the member's last heartbeat.
func (r Report) Gaps() (released, expired []time.Duration) {
	for _, terms := range r.Terms {
		for i, next := range terms[min(1, len(terms)):] {
			if last := terms[i]; last.Released {
				released = append(released, next.Began.Sub(last.Ended))
			} else {
				expired = append(expired, next.Began.Sub(last.stopped()))
			}
		}
	}
	slices.Sort(released)
	slices.Sort(expired)
	return released, expired
}

// stamp is a time in the log's format.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "the end of the log"
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// Err returns nil if there is no violation, else an error that names the first few.
func (r Report) Err() error {
	if len(r.Violations) == 0 {
		return nil
	}
	return fmt.Errorf("the audit log has %d violations:\n%s", len(r.Violations), some(texts(r.Violations), "\n"))
}

// Undisturbed returns nil if nothing in the log needs a fault of servers, network or clocks to
// explain it: no write came after its Lease had run out, none was in progress when its term ended,
// and nothing is undecided.
func (r Report) Undisturbed() error {
	var errs []error
	if r.Late > 0 {
		errs = append(errs, fmt.Errorf("%d writes came after their Lease had run out", r.Late))
	}
	if len(r.InFlight) > 0 {
		errs = append(errs, fmt.Errorf("%d writes were in flight when their term ended, %d of them after a release:\n%s",
			r.Flying, r.FlyingReleased, some(texts(r.InFlight), "\n")))
	}
	if len(r.Undecided) > 0 {
		errs = append(errs, fmt.Errorf("%d things are undecided:\n%s", len(r.Undecided), some(texts(r.Undecided), "\n")))
	}
	return errors.Join(errs...)
}

func texts[T fmt.Stringer](all []T) []string {
	var lines []string
	for _, each := range all {
		lines = append(lines, each.String())
	}
	return lines
}

// some joins the first few of a list.
func some(list []string, separator string) string {
	const shown = 10
	if more := len(list) - shown; more > 0 {
		list = append(list[:shown:shown], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, separator)
}

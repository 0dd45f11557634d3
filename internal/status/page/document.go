package page

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/fleet/history"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// maxFindings is the maximum number of findings in a document: a fleet with spoilt Leases may have
// one for each pair of them.
const maxFindings = 100

// Document is everything that the page shows. Parts that the operator's commands print too have the
// same names there.
type Document struct {
	Fleet string `json:"fleet"`
	// Now is when the document was made, by the wall clock of the member that made it, which is
	// Self.
	Now  time.Time `json:"now"`
	Self Self      `json:"self"`
	// Note says why there is nothing to show, or not everything; empty if there is.
	Note string `json:"note,omitempty"`
	// Plan is nil while the member has none.
	Plan *Plan `json:"plan,omitempty"`
	// Findings are the worst ones, FindingsLeftOut is the number of the others.
	Findings        []status.Finding `json:"findings"`
	FindingsLeftOut int              `json:"findingsLeftOut,omitempty"`
	Members         []Member         `json:"members"`
	// Canary is set if the plan has one. Versions are what members of each version have and do, if
	// the plan has a canary or members are of several versions.
	Canary   *status.CanaryView   `json:"canary,omitempty"`
	Versions []status.VersionView `json:"versions,omitempty"`
	Rings    []Ring               `json:"rings"`
	// Older are the held Leases of shards that are not in the plan.
	Older []status.OlderView `json:"older"`
	// Transitions are the events that the member has observed, the latest first.
	Transitions []Transition `json:"transitions"`
}

// Self is the member that made the document.
type Self struct {
	// Member is empty if the document was made from the Leases, outside of any member.
	Member      string `json:"member"`
	Incarnation string `json:"incarnation,omitempty"`
	Version     string `json:"version"`
	// NotReady says why the member is not ready; empty if it is.
	NotReady    string       `json:"notReady,omitempty"`
	LeaderLocks []LeaderLock `json:"leaderLocks"`
}

// LeaderLock is a foreign Lease that the fleet holds while it runs.
type LeaderLock struct {
	Lease  string `json:"lease"`
	Holder string `json:"holder,omitempty"`
	// Held reports whether the holder is the fleet.
	Held bool `json:"held"`
}

// Plan is the plan that the member works by, and the pending parts of a change.
type Plan struct {
	Generation int64  `json:"generation"`
	Digest     string `json:"digest"`
	// OnLease is the generation of the plan on the plan's Lease, if that is another one.
	OnLease int64 `json:"onLease,omitempty"`
	// Unreadable says why the plan on the Lease cannot be read, Refused why the member does not
	// work by it.
	Unreadable string `json:"unreadable,omitempty"`
	Refused    string `json:"refused,omitempty"`
	// Waiting are the shards that are kept waiting by shards of an older plan generation.
	Waiting []string `json:"waiting"`
	// Behind are the live members that work by another generation.
	Behind []string `json:"behind"`
}

// Ring is a ring of the plan.
type Ring struct {
	status.RingView
	// Hash is the digest of the ring's placement as this member computes it; members that agree
	// have the same.
	Hash   string  `json:"hash,omitempty"`
	Shards []Shard `json:"shards"`
}

// Shard is a shard of the plan.
type Shard struct {
	status.ShardView
	// MovingTo is the member that should hold the shard while another one does; Asked reports
	// whether it has asked for it.
	MovingTo string `json:"movingTo,omitempty"`
	Asked    bool   `json:"asked,omitempty"`
	// HeldSeconds is how long ago the term began, by the holder's timestamp; nil if nobody holds
	// the shard.
	HeldSeconds *float64 `json:"heldSeconds,omitempty"`
}

// Member is a member that has, or has had, a Lease.
type Member struct {
	status.MemberView
	// Tag is the letter that the member has in the picture.
	Tag string `json:"tag"`
	// HeartbeatSeconds is how long ago this member last saw it renew its Lease, by the clock here.
	HeartbeatSeconds float64 `json:"heartbeatSeconds"`
	// Self is set for the member that made the document.
	Self bool `json:"self,omitempty"`
}

// Transition is something that has happened to a shard or a member, or else to the plan.
type Transition struct {
	At         time.Time    `json:"at"`
	AgoSeconds float64      `json:"agoSeconds"`
	Kind       history.Kind `json:"kind"`
	Shard      string       `json:"shard,omitempty"`
	Member     string       `json:"member,omitempty"`
	From       string       `json:"from,omitempty"`
	To         string       `json:"to,omitempty"`
	Term       int32        `json:"term,omitempty"`
	// GapSeconds of a handoff is how long the old holder had been unable to write when the new one
	// held the shard. Of a takeover it is how long the old holder had been silent.
	GapSeconds *float64 `json:"gapSeconds,omitempty"`
}

// Source is what the page reads from a member; *fleet.Member is one. All methods must be safe for
// concurrent use.
type Source interface {
	Incarnation() string
	Observed() (leases []election.Observation, now time.Time)
	Plan() (shard.Plan, bool)
	Refused() error
	Ready() error
	Assignment() assignment.Assignment
	Journal() []fleet.JournalEntry
}

// empty is a document that has no null in place of a list.
func empty(fleetName string, self Self, now time.Time) Document {
	if self.LeaderLocks == nil {
		self.LeaderLocks = []LeaderLock{}
	}
	return Document{
		Fleet: fleetName, Now: now.UTC().Truncate(time.Millisecond), Self: self,
		Findings: []status.Finding{}, Members: []Member{}, Rings: []Ring{}, Older: []status.OlderView{}, Transitions: []Transition{},
	}
}

// newDocument makes the document of a member. before is the last reading, nil if it is too old to
// follow; wall is the time for people.
func newDocument(c Config, leaderLocks []string, source Source, before *status.Reading, wall time.Time) (Document, *status.Reading) {
	observations, now := source.Observed()
	r := status.Observed(c.Fleet, observations, now).Following(before)
	self := Self{Member: c.Member, Version: c.Version, Incarnation: source.Incarnation()}
	if err := source.Ready(); err != nil {
		self.NotReady = err.Error()
	}
	for _, name := range leaderLocks {
		self.LeaderLocks = append(self.LeaderLocks, leaderLockOf(c.Fleet, name, observations, now))
	}
	d := empty(c.Fleet, self, wall)
	plan, inForce := source.Plan()
	shown, fault := *r, r.Fault
	if fault != nil && inForce {
		shown.Plan, shown.Fault = plan, nil // members work by the last good one
	}
	v := status.Of(&shown)
	if fault != nil {
		// The findings are about the Lease as it is.
		v.Findings = status.Findings(r)
	}
	d.FindingsLeftOut = max(0, len(v.Findings)-maxFindings)
	d.Findings = append(d.Findings, v.Findings[:len(v.Findings)-d.FindingsLeftOut]...)
	d.Older = append(d.Older, v.Older...)
	d.Canary, d.Versions = v.Canary, v.Versions
	for _, m := range v.Members {
		d.Members = append(d.Members, Member{
			MemberView: m, Self: c.Member != "" && m.Name == c.Member && m.Incarnation == self.Incarnation,
			HeartbeatSeconds: seconds(now.Sub(r.Lease(leaserecord.MemberLease(c.Fleet, m.Name)).Seen)),
		})
	}
	wanted := source.Assignment()
	for _, ring := range v.Rings {
		d.Rings = append(d.Rings, newRing(ring, wanted, inForce, wall))
	}
	if inForce {
		d.Plan = newPlan(plan, r, source.Refused(), d)
	} else {
		d.Note = noPlan
		if c.Member == "" {
			d.Note = noPlanOnLease
		}
	}
	journal := source.Journal()
	for _, t := range slices.Backward(journal) {
		d.Transitions = append(d.Transitions, newTransition(t, now))
	}
	palette := newPalette(d)
	for i := range d.Members {
		d.Members[i].Tag = palette.tag(d.Members[i].Name)
	}
	return d, r
}

const (
	noPlan        = "This member has no plan yet: it has not joined the fleet, or has not read the plan."
	noPlanOnLease = "There is no plan that can be read on the plan's Lease."
)

func newRing(v status.RingView, wanted assignment.Assignment, inForce bool, wall time.Time) Ring {
	ring := Ring{RingView: v, Shards: make([]Shard, 0, len(v.Shards))}
	if inForce {
		ring.Hash = wanted.Digest(v.Name)
	}
	for _, s := range v.Shards {
		one := Shard{ShardView: s}
		if id, err := shard.ParseID(s.Shard); err == nil && inForce {
			one.Wanted = wanted.Owner(id) // what this member goes by, and not what it would be by the Leases alone
		}
		held := s.Holder != "" && !s.Silent
		if held && one.Wanted != "" && one.Wanted != s.Holder {
			one.MovingTo = one.Wanted
			one.Asked = leaserecord.MemberOf(s.NextHolder) == one.MovingTo
		}
		if held && s.Since != nil {
			held := seconds(wall.Sub(*s.Since))
			one.HeldSeconds = &held
		}
		ring.Shards = append(ring.Shards, one)
	}
	ring.RingView.Shards = nil
	return ring
}

func newPlan(inForce shard.Plan, r *status.Reading, refused error, d Document) *Plan {
	p := &Plan{Generation: inForce.Generation, Digest: inForce.Digest(), Waiting: []string{}, Behind: []string{}}
	switch {
	case r.Fault != nil:
		p.Unreadable = r.Fault.Error()
	case r.Plan.Generation != inForce.Generation:
		p.OnLease = r.Plan.Generation
	}
	if refused != nil {
		p.Refused = refused.Error()
	}
	for _, ring := range d.Rings {
		for _, s := range ring.Shards {
			if s.State == status.StateWaiting || s.State == status.StateOlder {
				p.Waiting = append(p.Waiting, s.Shard)
			}
		}
	}
	for _, m := range d.Members {
		if isLive(m) && m.Generation != "" && m.Digest != p.Digest {
			p.Behind = append(p.Behind, m.Name)
		}
	}
	return p
}

// isLive reports whether a member is neither silent nor gone.
func isLive(m Member) bool { return m.State != "silent" && m.State != "gone" }

func leaderLockOf(fleetName, lease string, observations []election.Observation, now time.Time) LeaderLock {
	l := LeaderLock{Lease: lease}
	i := slices.IndexFunc(observations, func(o election.Observation) bool { return o.Name == lease })
	if i >= 0 && !observations[i].Expired(now, 0) {
		l.Holder = observations[i].Holder
		l.Held = l.Holder == leaseapi.LeaderLockIdentity(fleetName)
	}
	return l
}

func newTransition(t fleet.JournalEntry, now time.Time) Transition {
	out := Transition{
		At: t.At.UTC().Truncate(time.Millisecond), AgoSeconds: seconds(now.Sub(t.Seen)), Kind: t.Kind,
		Member: t.Member, From: t.From, To: t.To, Term: t.Term,
	}
	if t.Shard != (shard.ID{}) {
		out.Shard = t.Shard.String()
	}
	if t.Kind == history.HandedOver || t.Kind == history.TakenOver {
		gap := max(0, math.Round(t.Gap.Seconds()*1000)/1000)
		out.GapSeconds = &gap
	}
	return out
}

// seconds returns a duration with one digit after the point, never below zero: clocks of different
// machines may differ.
func seconds(d time.Duration) float64 { return max(0, math.Round(d.Seconds()*10)/10) }

// nameOf returns the part of a shard's name behind its ring.
func nameOf(id string) string {
	_, name, _ := strings.Cut(id, "/")
	return name
}

package status

import (
	"fmt"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const (
	// StandsAfter is how long something must have been seen to last to be more than a moment of a
	// handoff: these take milliseconds, and a member that has asked without an answer starts again
	// after twice --handoff-timeout, 10 s by default.
	StandsAfter = 10 * time.Second
	// aheadAtMost is how far a member's clock may be ahead of the one here before a renewal has to
	// be seen.
	aheadAtMost = 2 * time.Second
	// stuckAfter is how long filling caches, and so a step of a handoff, may take in a large
	// cluster.
	stuckAfter = time.Minute
	// flapWindow is the time within which flapTerms terms of one shard are too many, including
	// those of a rolling restart.
	flapWindow = 5 * time.Minute
	flapTerms  = 6
)

// standing is what has been seen to last over several readings. It never changes.
type standing struct {
	// since is when each condition was first seen, by the clock here, without a break until now.
	since map[condition]time.Time
	// terms has the term of each shard's Lease at the beginning of a window.
	terms map[string]firstTerm
	// still is the time since which no renewal of any member has been seen; moved reports whether
	// one ever has.
	still time.Time
	moved bool
}

type firstTerm struct {
	term int32
	at   time.Time
}

// condition is something that no timestamp on a Lease dates.
type condition struct {
	what conditionKind
	// object is the Lease, term its term; detail is what else must stay the same.
	object string
	term   int32
	detail string
}

type conditionKind string

const (
	asked     conditionKind = "asked"     // another member, the owner, has asked for the Lease
	idle      conditionKind = "idle"      // a shard is held, and its holder does not say that it runs
	unowned   conditionKind = "unowned"   // a shard is unowned
	ownerless conditionKind = "ownerless" // the plan's Lease has no holder
	disagrees conditionKind = "disagrees" // a live member works by another plan
	misplaced conditionKind = "misplaced" // a shard is held by another member than its owner
	leaving   conditionKind = "leaving"   // a member leaves
	unclaimed conditionKind = "unclaimed" // an older shard runs what nobody has claimed yet
)

// isQuick reports whether the condition is over within seconds if all is well.
func (c condition) isQuick() bool {
	return c.what != misplaced && c.what != unclaimed && c.what != leaving
}

// Following returns the reading, completed by an earlier one of the same fleet made in the same
// way: since when conditions in both have lasted, and how long nobody has renewed, by the clock
// here. It changes neither, and before may be nil. A chain of readings at short intervals shows
// what a single one cannot, such as how long a request has been unanswered.
func (r *Reading) Following(before *Reading) *Reading {
	if before == nil {
		return r
	}
	next := *r
	next.stands = standing{since: map[condition]time.Time{}, terms: map[string]firstTerm{}, still: r.Now, moved: true}
	if r.lastRenewal.Equal(before.lastRenewal) {
		next.stands.still, next.stands.moved = before.stands.still, before.stands.moved
		if next.judgedByStamps {
			next.AsOf = r.lastRenewal.Add(r.Now.Sub(next.stands.still))
			next.complete()
		}
	}
	for _, c := range next.conditions() {
		next.stands.since[c] = r.Now
		if at, stood := before.stands.since[c]; stood {
			next.stands.since[c] = at
		}
	}
	for name, first := range next.firstTerms() {
		if was, there := before.stands.terms[name]; there && r.Now.Sub(was.at) < flapWindow && was.term <= first.term {
			first = was
		}
		next.stands.terms[name] = first
	}
	return &next
}

// begin makes all conditions start now.
func (r *Reading) begin() {
	r.stands = standing{since: map[condition]time.Time{}, terms: r.firstTerms(), still: r.Now}
	for _, c := range r.conditions() {
		r.stands.since[c] = r.Now
	}
}

func (r *Reading) firstTerms() map[string]firstTerm {
	terms := map[string]firstTerm{}
	for _, o := range r.sorted {
		if r.isShard(o) {
			terms[o.Name] = firstTerm{term: o.Transitions, at: r.Now}
		}
	}
	return terms
}

// Suspicious reports whether there is something that is either a moment of an ordinary change or a
// fault, which further readings within the next seconds would show.
func (r *Reading) Suspicious() bool {
	for c, since := range r.stands.since {
		if c.isQuick() && r.Now.Sub(since) < StandsAfter {
			return true
		}
	}
	// Clocks may differ: seeing a renewal decides it. One from the future does not show that
	// anybody runs either.
	age := r.Now.Sub(r.lastRenewal)
	return len(r.sorted) > 0 && !r.stands.moved && (age > StandsAfter/2 || age < -aheadAtMost) && r.Now.Sub(r.stands.still) < StandsAfter
}

// stood returns since when and how long a condition has lasted; nothing if it does not exist.
func (r *Reading) stood(c condition) (since *time.Time, d time.Duration) {
	at, stands := r.stands.since[c]
	if !stands {
		return nil, 0
	}
	return Stamp(at), r.Now.Sub(at)
}

// conditions returns all present conditions.
func (r *Reading) conditions() []condition {
	var found []condition
	if r.Fault != nil {
		return nil
	}
	older := r.Older()
	for _, s := range r.Plan.Shards() {
		o := r.ShardLease(s.ID)
		extent, _ := r.Plan.Extent(s.ID)
		covered := len(Covering(older, "", extent)) > 0
		switch state := StateOf(r, o, covered); {
		case state == StateUnowned:
			found = append(found, r.unownedBy(o, s.ID))
		case state == StateOlder:
			found = append(found, condition{what: unclaimed, object: s.ID.String(), term: o.Transitions})
		case state == StateStarting && !r.within(o.AcquireTime, StandsAfter):
			found = append(found, r.idleOf(o))
		}
		found = append(found, r.movesOf(o, s.ID)...)
	}
	if lease := r.Lease(leaseapi.PlanLease(r.Fleet)); lease.Exists && !r.IsHeld(lease) {
		found = append(found, condition{what: ownerless, object: lease.Name})
	}
	for _, m := range r.Roster.Members() {
		if m.State == membership.Leaving {
			found = append(found, condition{what: leaving, object: m.Incarnation})
		}
		if c, differs := r.disagreement(m); differs {
			found = append(found, c)
		}
	}
	return found
}

// within reports whether a timestamp is at most d ago.
func (r *Reading) within(t time.Time, d time.Duration) bool { return r.AsOf.Sub(t) <= d }

func (r *Reading) unownedBy(o election.Observation, id shard.ID) condition {
	return condition{what: unowned, object: id.String(), term: o.Transitions}
}

func (r *Reading) idleOf(o election.Observation) condition {
	return condition{what: idle, object: o.Name, term: o.Transitions}
}

// movesOf returns the conditions of a held shard's handoff.
func (r *Reading) movesOf(o election.Observation, id shard.ID) []condition {
	owner := r.owner(id)
	if !r.IsHeld(o) || owner == "" || owner == leaserecord.MemberOf(o.Holder) {
		return nil // only a request by the owner counts
	}
	found := []condition{{what: misplaced, object: o.Name, term: o.Transitions, detail: owner}}
	if member, live := r.Roster.Get(owner); live && o.NextHolder() == member.Incarnation {
		found = append(found, condition{what: asked, object: o.Name, term: o.Transitions, detail: o.NextHolder()})
	}
	return found
}

// disagreement reports whether a live member works by a plan other than the one on the Lease.
func (r *Reading) disagreement(m membership.Member) (condition, bool) {
	generation, digest := planOfMember(m)
	if generation == "" && m.State == membership.Joining || digest == r.digest {
		return condition{}, false
	}
	if digest == "" && generation == fmt.Sprint(r.Plan.Generation) {
		return condition{}, false
	}
	return condition{what: disagrees, object: m.Incarnation, detail: fmt.Sprintf("%s %s, not %d", generation, digest, r.Plan.Generation)}, true
}

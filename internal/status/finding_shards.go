package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// shards checks each shard of the plan.
func (f *finder) shards() {
	r := f.r
	for _, s := range r.Plan.Shards() {
		o := r.ShardLease(s.ID)
		extent, _ := r.Plan.Extent(s.ID)
		blocking := Covering(f.older, "", extent)
		switch state := StateOf(r, o, len(blocking) > 0); state {
		case StateUnowned:
			f.unowned(s.ID, o)
		case StateWaiting:
			f.waiting(s.ID, o, blocking)
		case StateOlder:
			if since, d := r.stood(condition{what: unclaimed, object: s.ID.String(), term: o.Transitions}); d >= stuckAfter {
				f.add(Error, HandoffStuck, AboutShard, s.ID.String(), since, "nobody has claimed shard %s of plan generation %d for at least %s; %s still runs it", s.ID, r.Plan.Generation, Short(d), leaseNames(blocking))
			}
		case StateStarting:
			if since, d := r.stood(r.idleOf(o)); d >= StandsAfter {
				f.add(severityFor(d), NotRunning, AboutShard, s.ID.String(), since, "shard %s is held by %s, who has not said for at least %s that it runs it", s.ID, holderText(o), Short(d))
			}
		case StateRunning:
			f.blockedBy(s.ID, o, blocking)
		}
		if state := StateOf(r, o, len(blocking) > 0); state != StateWaiting {
			f.moving(s.ID, o)
		}
	}
}

func severityFor(d time.Duration) Severity {
	if d >= stuckAfter {
		return Error
	}
	return Warning
}

// unowned reports a shard that nobody holds. A handoff leaves it unowned for milliseconds, a
// takeover for the time of a reaction.
func (f *finder) unowned(id shard.ID, o election.Observation) {
	r := f.r
	since, ago := r.endOf(o)
	seen, d := r.stood(r.unownedBy(o, id))
	if since == nil {
		since = seen
	}
	severity := Error
	if ago = max(ago, d); ago < StandsAfter {
		severity = Warning
	}
	why := "no member has ever held it"
	switch {
	case o.Exists && o.Holder != "":
		why = fmt.Sprintf("its holder %s has been silent for %s", holderText(o), Short(r.AsOf.Sub(o.LastStamp())))
		if o.LastStamp().IsZero() {
			why = fmt.Sprintf("its holder %s does not renew", holderText(o))
		}
	case o.Exists && o.Transitions > 0:
		why = fmt.Sprintf("it was released after term %d", o.Transitions)
	}
	if servers := leaseapi.ServersOf(r.Roster.Members(), id.Ring); len(servers) == 0 {
		why += ", and no live member serves ring " + id.Ring
	}
	is := "is unowned"
	if ago >= time.Second {
		is = "has been unowned for " + Short(ago)
	}
	f.add(severity, Unowned, AboutShard, id.String(), since, "shard %s %s: %s", id, is, why)
}

// waiting reports a shard that waits too long for older ones. Its holder acquired it when that
// began.
func (f *finder) waiting(id shard.ID, o election.Observation, blocking []election.Observation) {
	d := f.r.AsOf.Sub(o.AcquireTime)
	if o.AcquireTime.IsZero() || d < StandsAfter {
		return
	}
	severity, unprepared := severityFor(d), ""
	if !f.r.isPrepared(o) {
		if d < stuckAfter {
			return // It fills its caches.
		}
		unprepared = ", unprepared"
	}
	behind := "a shard that has gone"
	if len(blocking) > 0 {
		behind = leaseNames(blocking)
	}
	f.add(severity, HandoffStuck, AboutShard, id.String(), Stamp(o.AcquireTime), "shard %s has been waiting at %s for %s%s, behind %s", id, holderText(o), Short(d), unprepared, behind)
}

// moving reports a held shard that should go to another member.
func (f *finder) moving(id shard.ID, o election.Observation) {
	moves, owner := f.r.movesOf(o, id), f.r.owner(id)
	isAsked := slices.ContainsFunc(moves, func(c condition) bool { return c.what == asked })
	for _, c := range moves {
		since, d := f.r.stood(c)
		switch {
		case c.what == asked && d >= StandsAfter:
			f.add(severityFor(d), HandoffStuck, AboutShard, id.String(), since, "shard %s was asked for by %s at least %s ago, and %s has not given it up", id, owner, Short(d), holderText(o))
		case c.what == misplaced && d >= stuckAfter && !isAsked:
			f.add(Warning, HandoffStuck, AboutShard, id.String(), since, "shard %s is held by %s, and its owner %s has not asked for it for at least %s", id, holderText(o), owner, Short(d))
		}
	}
}

// blockedBy reports held Leases that cover what a shard of the plan runs.
func (f *finder) blockedBy(id shard.ID, o election.Observation, blocking []election.Observation) {
	for _, b := range blocking {
		if f.r.IsHeld(b) && leaseapi.SaysRunning(b) {
			continue // two holders
		}
		f.add(Warning, OlderClaim, AboutShard, id.String(), Stamp(b.AcquireTime), "shard %s runs at %s, and Lease %s, which is not in the plan and covers some of it, is held by %s: once shard %s changes hands, it waits for that", id, holderText(o), b.Name, holderText(b), id)
	}
}

// claims checks all held Leases of shards, in the plan or not.
func (f *finder) claims() {
	r := f.r
	var running []election.Observation
	var extents []covered // of running shards: read once, and compared with all others
	for _, o := range r.sorted {
		if !r.isShard(o) {
			continue
		}
		f.flapping(o)
		if !r.IsHeld(o) {
			continue
		}
		if o.Problem != "" {
			f.add(Warning, LeaseNonsense, AboutLease, o.Name, nil, "Lease %s, held by %s: %s", o.Name, holderText(o), o.Problem)
		}
		f.holder(o)
		if r.IsHeld(o) && leaseapi.SaysRunning(o) {
			running = append(running, o)
			e, legible := extentOf(o)
			extents = append(extents, covered{e, legible})
		}
	}
	for i, a := range running {
		for j, b := range running[i+1:] {
			x, y := extents[i], extents[i+1+j]
			if x.legible && y.legible && x.Overlaps(y.Extent) || !(x.legible && y.legible) && overlapping(a, b) {
				f.add(Error, TwoHolders, AboutLease, a.Name, later(a, b), "%s runs %s by Lease %s, and %s runs some of the same by Lease %s", holderText(a), coverText(a), a.Name, holderText(b), b.Name)
			}
		}
	}
}

// covered is the extent in a Lease, and whether it can be read.
type covered struct {
	shard.Extent
	legible bool
}

// overlapping reports whether two Leases' extents overlap. A Lease without an extent covers
// everything.
func overlapping(a, b election.Observation) bool {
	e, legible := extentOf(b)
	if !legible {
		if e, legible = extentOf(a); !legible {
			return true
		}
		a = b
	}
	overlaps := leaseapi.CoverOn(a).Overlaps(e)
	return overlaps
}

// extentOf reads the extent in a shard's Lease, and reports whether it can be read.
func extentOf(o election.Observation) (shard.Extent, bool) {
	e := shard.Extent{Controllers: strings.Split(o.Annotations[leaseapi.ControllersAnnotation], ",")}
	text, ranged := o.Annotations[leaseapi.RangeAnnotation]
	if ranged {
		var err error
		if e.Range, err = shard.ParseRange(text); err != nil {
			return e, false
		}
	}
	return e, o.Annotations[leaseapi.ControllersAnnotation] != ""
}

func coverText(o election.Observation) string {
	if text := o.Annotations[leaseapi.RangeAnnotation]; text != "" {
		return Plain(text)
	}
	return "all namespaces"
}

// later returns when the later of the two was acquired.
func later(a, b election.Observation) *time.Time {
	if a.AcquireTime.After(b.AcquireTime) {
		return Stamp(a.AcquireTime)
	}
	return Stamp(b.AcquireTime)
}

// holder checks the holder of a shard's Lease. The Lease names a holder that has died until it
// expires, a little after or before the member's Lease does.
func (f *finder) holder(o election.Observation) {
	name := leaserecord.MemberOf(o.Holder)
	member := f.r.Lease(leaserecord.MemberLease(f.r.Fleet, name))
	switch {
	case o.HolderEnded():
	case name == "" || !member.Exists || member.Holder == "" && o.Seen.Sub(member.Seen) > StandsAfter:
		f.add(Warning, UnknownHolder, AboutLease, o.Name, Stamp(o.AcquireTime), "Lease %s is held by %s, which is not a live member of the fleet", o.Name, holderText(o))
	case member.Holder != "" && member.Holder != o.Holder && o.Seen.Sub(member.HolderSeen) > StandsAfter/2:
		f.add(Error, TwoIncarnations, AboutMember, name, Stamp(member.AcquireTime), "%s renews Lease %s, although %s has been the member since: two processes have the same name", Plain(o.Holder), o.Name, Plain(member.Holder))
	}
}

// flapping reports a shard that keeps changing hands, within the time watched or since its Lease
// was created.
func (f *finder) flapping(o election.Observation) {
	r := f.r
	if first, watched := r.stands.terms[o.Name]; watched && o.Transitions-first.term >= flapTerms {
		f.add(Warning, Flapping, AboutLease, o.Name, Stamp(first.at), "Lease %s has changed hands %d times within %s", o.Name, o.Transitions-first.term, Short(r.Now.Sub(first.at)))
		return
	}
	if created := o.Lease.CreationTimestamp.Time; !created.IsZero() && o.Transitions >= flapTerms {
		// A new fleet has its first terms in quick succession.
		if age := r.AsOf.Sub(created); age > flapWindow && age/time.Duration(o.Transitions) < flapWindow/flapTerms {
			f.add(Warning, Flapping, AboutLease, o.Name, Stamp(created), "Lease %s has had %d terms in the %s since it was created", o.Name, o.Transitions, Short(age))
		}
	}
}

// holderText returns the member that holds a Lease, or what else it names.
func holderText(o election.Observation) string {
	if name := leaserecord.MemberOf(o.Holder); name != "" {
		return Plain(name)
	}
	return Plain(o.Holder)
}

func leaseNames(leases []election.Observation) string {
	var names []string
	for _, o := range leases {
		names = append(names, fmt.Sprintf("%s of %s", o.Name, holderText(o)))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

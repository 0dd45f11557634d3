package audit

import (
	"cmp"
	"slices"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
)

// heartbeats is the protocol in which a member renews its own Lease and no other.
const heartbeats = 2

// members are the Leases of members, by the member's name.
type members map[string]*memberLog

// memberLog is all writes of a member's Lease.
type memberLog struct {
	history
	name string
	// beats are the heartbeats of each incarnation, in order.
	beats map[string][]state
	// ends has the first write that listed an incarnation as ended, for each that was ever listed.
	ends map[string]end
	// follows is the protocol of each incarnation that the Lease named.
	follows map[string]int
	// unread are writes whose answers the log does not have.
	unread []event
}

// end is the write of a member's Lease that first listed an incarnation as ended.
type end struct {
	state
	// own is set if the incarnation listed itself: everything that it did had returned.
	own bool
	// still is the write since which the Lease had shown no sign of life, and named nobody else;
	// nil if the log begins later.
	still *state
}

// of returns the log of the Lease of an incarnation's member; nil if there is none.
func (m members) of(incarnation string) *memberLog { return m[leaserecord.MemberOf(incarnation)] }

// log returns the log of a member's Lease, for adding to it.
func (m members) log(name string) *memberLog {
	if m[name] == nil {
		m[name] = &memberLog{name: name}
	}
	return m[name]
}

// finish puts all Leases in order, and finds out what they say.
func (m members) finish(fleets func(event) bool) {
	for _, l := range m {
		l.finish(fleets)
	}
}

// beating reports whether the incarnation follows the protocol with one heartbeat for each member.
// An incarnation that no Lease in the log names follows the others', because a fleet has one
// protocol. If none of the members' Leases in the log can be read, all have one heartbeat: then
// nothing shows who had ended.
func (m members) beating(incarnation string) bool {
	if leaserecord.MemberOf(incarnation) == "" {
		return false
	}
	if l := m.of(incarnation); l != nil && l.follows[incarnation] != 0 {
		return l.follows[incarnation] == heartbeats
	}
	known, unread := false, false
	for _, l := range m {
		unread = unread || len(l.unread) > 0
		for _, protocol := range l.follows {
			if known = true; protocol == heartbeats {
				return true
			}
		}
	}
	return unread && !known
}

// end returns how an incarnation ended, if the log shows it.
func (m members) end(incarnation string) (end, bool) {
	l := m.of(incarnation)
	if l == nil {
		return end{}, false
	}
	e, ended := l.ends[incarnation]
	return e, ended
}

// lastBeat returns the last heartbeat of an incarnation before a version.
func (m members) lastBeat(incarnation string, version uint64) (state, bool) {
	l := m.of(incarnation)
	if l == nil {
		return state{}, false
	}
	return lastOf(l.beats[incarnation], func(s state) int { return cmp.Compare(s.version, version) })
}

// lastOf returns the last of the ordered states for which compare is negative.
func lastOf(states []state, compare func(state) int) (state, bool) {
	i, _ := slices.BinarySearchFunc(states, 0, func(s state, _ int) int { return compare(s) })
	if i == 0 {
		return state{}, false
	}
	return states[i-1], true
}

// ranOut reports whether an incarnation had sent no heartbeat for its Lease's duration when a
// request arrived, as far as the log shows.
func (m members) ranOut(incarnation string, arrived time.Time) bool {
	l := m.of(incarnation)
	if l == nil {
		return false
	}
	// Versions and answers have the same order: a member has one heartbeat in progress at a time.
	beat, known := lastOf(l.beats[incarnation], func(s state) int { return s.answered.Compare(arrived) })
	if !known || !beat.answered.Add(beat.lasts()).Before(arrived) {
		return false
	}
	// The log may lack others.
	return !slices.ContainsFunc(l.holes, func(g hole) bool {
		return g.before.version >= beat.version && g.before.received.Before(arrived) && !g.after.answered.Add(beat.lasts()).Before(arrived)
	})
}

// lives reports whether an incarnation had not ended at a version, and whether the log is enough to
// decide. That it had ended is known from the write that listed it. That it had not is known only
// if another write of its member's Lease follows without a gap: a server that is killed does not
// log what it has stored.
func (m members) lives(incarnation string, version uint64) (lives, known bool) {
	l := m.of(incarnation)
	if l == nil {
		return false, false
	}
	if e, ended := l.ends[incarnation]; ended && e.version < version {
		return false, true
	}
	next, _ := slices.BinarySearchFunc(l.states, version+1, func(s state, v uint64) int { return cmp.Compare(s.version, v) })
	if next == 0 || next == len(l.states) {
		return false, false
	}
	// Writes missing before it was named for the last time did not list it.
	var named uint64
	for _, s := range slices.Backward(l.states[:next]) {
		if s.holder == incarnation {
			named = s.version
			break
		}
	}
	return true, !slices.ContainsFunc(l.holes, func(g hole) bool { return g.before.version >= named && g.before.version < version })
}

// livesAt is lives for a moment that may have no version and is not after the incarnation's end.
func (m members) livesAt(incarnation string, at moment) (lives, known bool) {
	l := m.of(incarnation)
	if at.version > 0 || l == nil {
		return m.lives(incarnation, at.version)
	}
	next := slices.IndexFunc(l.states, func(s state) bool { return s.received.After(at.answered) })
	if next < 1 {
		return false, false
	}
	return m.lives(incarnation, l.states[next].version-1)
}

// lasts is the duration of the Lease within the bounds that members keep.
func (s state) lasts() time.Duration {
	return min(max(s.duration, leaserecord.MinDuration), leaserecord.MaxDuration)
}

// finish puts the writes in order, and finds out which of them are heartbeats, and which end an
// incarnation.
func (l *memberLog) finish(fleets func(event) bool) {
	l.sort()
	l.beats, l.ends, l.follows = map[string][]state{}, map[string]end{}, map[string]int{}
	for i := range l.states {
		s := &l.states[i]
		s.stranger = !fleets(s.event)
		if l.isBeat(i) {
			l.beats[s.holder] = append(l.beats[s.holder], *s)
		}
		// A client that creates a deleted Lease again knows nothing about its holder.
		if restored := s.event.Verb == "create" && s.sender != l.name; s.holder != "" && !restored {
			l.follows[s.holder] = max(l.follows[s.holder], s.protocol)
		}
		for _, incarnation := range s.ended {
			if _, known := l.ends[incarnation]; !known {
				l.ends[incarnation] = l.endAt(i, incarnation)
			}
		}
	}
}

// isBeat reports whether a write is a heartbeat of the holder that it names: the member itself
// acquired the Lease, or changed its renewTime. Writes of a rival or an operator are not
// heartbeats.
func (l *memberLog) isBeat(i int) bool {
	s := l.states[i]
	if s.stranger || leaserecord.MemberOf(s.holder) != l.name || s.sender != "" && s.sender != l.name {
		return false
	}
	if i == 0 || s.event.Verb == "create" {
		return s.event.Verb == "create" && s.sender != "" // anybody may create it again for the holder
	}
	before := l.states[i-1]
	return s.holder != before.holder || s.beat != before.beat
}

// endAt returns the end of an incarnation that write number i lists first. If no User-Agent names
// the member that sent it, the time since the Lease's last change distinguishes a release from a
// strike.
func (l *memberLog) endAt(i int, incarnation string) end {
	s := l.states[i]
	e := end{state: s, still: l.stillSince(i, incarnation)}
	switch {
	case s.stranger, i == 0 || l.states[i-1].holder != incarnation, s.holder != "":
	case s.sender == "":
		e.own = e.still == nil || e.stood() < e.still.lasts()
	default:
		e.own = s.sender == l.name
	}
	return e
}

// stood returns how long the Lease had been unchanged at the end of an incarnation.
func (e end) stood() time.Duration { return e.answered.Sub(e.still.received) }

// stillSince returns the last write before number i after which the Lease was unchanged, as seen by
// the member that lists the incarnation: it named another holder, was created, or was renewed by
// this one. Writes of strangers are not signs of life.
func (l *memberLog) stillSince(i int, incarnation string) *state {
	for j := i - 1; j >= 0; j-- {
		s := &l.states[j]
		switch {
		case s.stranger:
		case s.event.Verb == "create",
			j > 0 && s.holder != l.states[j-1].holder,
			j > 0 && s.holder == incarnation && s.beat != l.states[j-1].beat:
			return s
		}
	}
	return nil
}

// readMember keeps a write of a member's Lease. It skips one that cannot be read, which leaves a
// hole.
func (c *checker) readMember(e event) {
	name, ok := leaserecord.MemberOfLease(c.fleet, e.ObjectRef.Name)
	if !ok || e.ObjectRef.Namespace != c.namespace || e.refused() {
		return
	}
	l := c.members.log(name)
	switch {
	case e.failed():
		l.addUnknown(e)
	case e.Verb == "delete":
		l.deletions = append(l.deletions, e.moment(0))
	default:
		if l.add(e) != nil {
			l.unread = append(l.unread, e.lean())
		}
	}
}

// judgeMembers compares the writes of members' Leases with each other.
func (c *checker) judgeMembers() {
	c.members.finish(c.ours)
	for _, name := range sortedKeys(c.members) {
		l := c.members[name]
		for _, incarnation := range sortedKeys(l.ends) {
			c.judgeEnd(l, incarnation, l.ends[incarnation])
		}
		if len(l.states) == 0 && len(l.unread) > 0 {
			c.doubt(l.unread[0], EndUnknown, "Lease of member %s: the log does not have what it became, here and in all other writes", name)
		}
		c.judgeMemberHoles(l)
	}
}

// judgeEnd convicts a member that listed an incarnation whose Lease was still changing, and an
// incarnation that went on after its end.
func (c *checker) judgeEnd(l *memberLog, incarnation string, e end) {
	c.report.Ended++
	if e.still != nil && !e.own {
		switch {
		case e.stood() >= e.still.lasts():
		case l.holeBefore(e.version):
			c.doubt(e.event, EndUnknown, "%s is listed as ended; the log lacks the write before this one, which may have listed it", incarnation)
		default:
			c.convict(e.event, EndedEarly, "%s was listed as ended%s %v after the last sign of life on its Lease, which lasts %v",
				incarnation, e.bySomebody(), e.stood(), e.still.lasts())
		}
	}
	later := slices.Clone(l.beats[incarnation])
	later = slices.DeleteFunc(later, func(s state) bool { return s.version < e.version })
	if len(later) > 0 {
		c.convict(later[0].event, BeatAfterEnd, "%s was listed as ended at version %d%s, and renewed its Lease at version %d, and %d times after that",
			incarnation, e.version, e.bySomebody(), later[0].version, len(later)-1)
	}
}

// bySomebody says for people that the writer is not of the fleet; empty if it is.
func (s state) bySomebody() string {
	if s.stranger {
		return " by somebody outside the fleet"
	}
	return ""
}

// judgeMemberHoles reports where the log lacks writes of a member's Lease that may have ended the
// incarnation that it named, and where it lacks so many that a part of the log must be missing.
func (c *checker) judgeMemberHoles(l *memberLog) {
	for i, g := range l.holes {
		incarnation := g.before.holder
		e, ended := l.ends[incarnation]
		switch {
		case i == 0 && l.partial, incarnation == "", !c.members.beating(incarnation):
		case ended && e.version <= g.before.version:
		case g.after.holder == incarnation && !(ended && e.version <= g.after.version):
			// A server that is killed may not have logged its last write. Without more heartbeats than
			// that one the Lease would have run out.
			if silent := g.after.received.Sub(g.before.answered); silent > g.before.lasts() {
				c.world.gaps = append(c.world.gaps, moment{received: g.before.answered, answered: g.after.received})
				c.doubt(g.after.event, LogGap, "Lease of member %s: the log lacks its heartbeats of the %v before this one, and perhaps any other write of that time",
					l.name, silent.Round(time.Millisecond))
			}
		default:
			c.doubt(g.after.event, EndUnknown, "Lease of member %s: this was made on version %d, which no write in the log has made; the one before is version %d and names %s",
				l.name, g.after.based, g.before.version, incarnation)
		}
	}
	for _, e := range l.unasked {
		if slices.ContainsFunc(sortedKeys(l.follows), c.members.beating) {
			c.doubt(e, EndUnknown, "Lease of member %s: the log does not have what it asked for", l.name)
		}
	}
}

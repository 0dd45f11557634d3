package audit

import (
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// judgeTakings convicts those who took the shard's Lease before it was free, in a fleet with one
// heartbeat for each member: there a Lease that does not change still belongs to its holder. It
// returns the versions of such writes.
func (c *checker) judgeTakings(id shard.ID, h *history) map[uint64]bool {
	early := map[uint64]bool{}
	for i := 1; i < len(h.states); i++ {
		before, s := h.states[i-1], h.states[i]
		if s.holder == "" || s.holder == before.holder || h.holeBefore(s.version) || !c.beating(before.holder, s.holder) {
			continue
		}
		if before.holder != "" {
			c.report.Taken++
		}
		kind, format, args := c.fault(h, i)
		switch kind {
		case "":
		case EndUnknown, LeaseHole:
			c.doubt(s.event, kind, "Lease of %s: "+format, append([]any{id}, args...)...)
		default:
			early[s.version] = true
			c.convict(s.event, kind, "Lease of %s: "+format, append([]any{id}, args...)...)
		}
	}
	return early
}

// beating reports whether the Lease's old or new holder has one heartbeat for all: either makes the
// rules stricter.
func (c *checker) beating(before, after string) bool {
	return c.members.beating(after) || c.members.beating(before)
}

// fault returns what is wrong with write number i, by which another holder took a shard's Lease; no
// kind if nothing is wrong.
func (c *checker) fault(h *history, i int) (kind Kind, format string, args []any) {
	before, s := h.states[i-1], h.states[i]
	early := func(since time.Time, what string) (Kind, string, []any) {
		if still := s.answered.Sub(since); still < s.lasts() {
			return TakenEarly, "%s took it %v after %s, and must wait for %v", []any{s.holder, still, what, s.lasts()}
		}
		return "", "", nil
	}
	switch {
	case s.event.Verb == "create":
		gone, known := h.deletedSince(before, s)
		if !known {
			return LeaseHole, "%s created it, and the log lacks its deletion", []any{s.holder}
		}
		return early(gone.received, "it was deleted")
	case before.freed:
		if c.freedByAnother(before) {
			return HolderNotEnded, "%s took it from %s, which had not released it: member %s wrote that, at version %d", []any{s.holder, before.freedFrom, before.freer.sender, before.freer.version}
		}
		return "", "", nil
	case before.holder == "", leaserecord.MemberOf(before.holder) == "":
		alive, known := h.aliveSince(i - 1)
		if !known {
			return "", "", nil
		}
		if before.holder == "" {
			return early(alive, "somebody had emptied it")
		}
		return early(alive, before.holder+", which is no member's, had written it")
	}
	lives, known := c.members.lives(before.holder, s.version)
	switch {
	case !known:
		return EndUnknown, "%s took it from %s; the log does not tell whether that had ended", []any{s.holder, before.holder}
	case lives:
		return HolderNotEnded, "%s took it from %s, which had not released it and was not listed as ended", []any{s.holder, before.holder}
	default:
		return "", "", nil
	}
}

// freedByAnother reports whether another member released the Lease while its holder had surely not
// ended.
func (c *checker) freedByAnother(s state) bool {
	if s.freer == nil || s.freer.sender == "" || s.freer.stranger || !c.members.beating(s.freedFrom) || s.freer.sender == leaserecord.MemberOf(s.freedFrom) {
		return false
	}
	lives, known := c.members.lives(s.freedFrom, s.freer.version)
	return known && lives
}

// deletedSince returns the deletion of the Lease between two of its writes, if the log has it.
func (h *history) deletedSince(before, created state) (gone moment, known bool) {
	for _, d := range h.deletions {
		if d.answered.After(before.received) && d.received.Before(created.answered) {
			gone, known = d, true
		}
	}
	return gone, known
}

// aliveSince returns when the write arrived that gave the Lease its spec in state number i; false
// if that may have been before the log begins.
func (h *history) aliveSince(i int) (time.Time, bool) {
	first := h.states[0]
	begun := first.event.Verb == "create" || h.states[i].aliveReceived.After(first.received)
	return h.states[i].aliveReceived, begun
}

// settle finds out when the terms of a shard ended whose holders have one heartbeat for all: a term
// also ends with the write that lists its holder as ended.
func (m members) settle(terms []Term) {
	for i := range terms {
		if t := &terms[i]; m.beating(t.Holder) {
			m.settleTerm(t)
		}
	}
}

func (m members) settleTerm(t *Term) {
	t.beating, t.taken = true, t.end
	if t.end.version > 0 {
		t.Released = t.end.freed
	}
	if e, ended := m.end(t.Holder); ended && (t.Ended.IsZero() || e.version < t.end.version) {
		t.struck, t.end, t.Ended, t.Released = true, e.state, e.answered, e.own
		if e.version < t.first.version { // it began too late: the write was on its way
			t.Ended, t.Released = t.Began, false
		}
	}
	version := t.end.version
	if t.Ended.IsZero() {
		version = ^uint64(0)
	}
	t.beat, t.beats = m.lastBeat(t.Holder, version)
}

// over reports whether the term's holder was listed as ended at a version.
func (t Term) over(version uint64) bool {
	return t.struck && version >= t.end.version
}

// stopped returns when the holder of a term that was not released surely ran for the last time: at
// its last sign of life, or when it lost the Lease.
func (t Term) stopped() time.Time {
	at := t.beat.answered
	switch {
	case !t.beating:
		return t.last.aliveAnswered
	case t.Ended.IsZero(), t.beats && t.beat.received.Add(t.beat.lasts()).Before(t.Ended):
	case t.struck && !t.beats:
		at = t.Ended.Add(-t.end.lasts()) // the Lease had been unchanged for that long
	default:
		return t.Ended
	}
	if at.Before(t.Began) {
		return t.Began
	}
	return at
}

// expiry returns when a term that nobody has ended had run out, by the last sign of life; zero if
// the log does not show it.
func (t Term) expiry() time.Time {
	switch {
	case !t.beating:
		return t.last.aliveAnswered.Add(t.last.duration)
	case !t.beats:
		return time.Time{}
	default:
		return t.beat.answered.Add(t.beat.lasts())
	}
}

// overtook returns by how much a term began before the previous one, which was not released, had
// run out.
func (t Term) overtook(before Term) time.Duration {
	if before.beating {
		return before.beat.received.Add(before.beat.lasts()).Sub(t.first.answered)
	}
	return before.last.aliveReceived.Add(before.last.duration).Sub(t.first.answered)
}

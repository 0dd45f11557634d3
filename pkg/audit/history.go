package audit

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
)

// state is a shard's Lease after one write.
type state struct {
	version  uint64
	based    uint64 // the version that the write was made on; 0 if the log does not say
	holder   string
	term     int32
	duration time.Duration
	// The write took effect between these.
	received, answered time.Time
	// spec is the fingerprint of the Lease's spec. Only a change of it is a sign of life: a rival
	// may write its request on the Lease of a dead holder. aliveReceived and aliveAnswered are the
	// times of the last write that changed it.
	spec                         uint64
	aliveReceived, aliveAnswered time.Time
	cover                        cover
	// released is set if nobody holds the Lease and it says that the holder of the term gave it
	// back. freed is also set if it said so before: writes after a release do not undo it.
	released, freed bool
	// freer is the write of the release, if freed is set, and freedFrom the holder before it.
	freer     *state
	freedFrom string
	// retired is set if the Lease is retired, see leaserecord.RetiredAnnotation.
	retired bool
	// beat is the Lease's renewTime in microseconds; 0 if it has none.
	beat int64
	// ended are the incarnations that a member's Lease lists as ended. protocol is the protocol
	// that its holder follows.
	ended    []string
	protocol int
	// sender is the member that sent the write, empty if its User-Agent does not name one. stranger
	// is set if the sender is not of the fleet; see memberLog.finish.
	sender   string
	stranger bool
	// event is the write itself, for violations.
	event event
}

// history is all writes of one Lease.
type history struct {
	states []state // by version, once sorted
	// unknown are writes that ended with a server's error, such as a timeout, with what they asked
	// for. They have no version.
	unknown []state
	// unasked are such writes for which the log does not have what they asked for.
	unasked []event
	// holes are where the log lacks the write that the next one was made on. partial is set if the
	// first state follows a hole: the log begins later than the Lease.
	holes   []hole
	partial bool
	// deletions are deletions of the Lease, and deleted their events. Those in collected were of a
	// retired Lease.
	deletions []moment
	deleted   []event
	collected []time.Time
}

// hole lies between two writes of a Lease: the second was made on a version that no write in the
// log has made.
type hole struct {
	before, after state
}

// inHole reports whether a missing state may have been in force at a version.
func (h *history) inHole(version uint64) bool {
	return slices.ContainsFunc(h.holes, func(g hole) bool { return g.before.version < version && version < g.after.version })
}

// holeBefore reports whether something is missing between a state and the one before it.
func (h *history) holeBefore(version uint64) bool {
	return slices.ContainsFunc(h.holes, func(g hole) bool { return g.after.version == version })
}

// retiredAt reports whether the Lease was, or may have been, retired when a deletion took effect:
// the garbage collector may see a write, and delete the Lease, before the write is answered, or
// although its answer is a server's error.
func (h *history) retiredAt(deletion event) bool {
	var last state
	gone := deletion.moment(0)
	for _, s := range h.states {
		if !s.answered.After(gone.answered) && s.version > last.version {
			last = s
		}
	}
	retires := func(s state) bool { return s.retired && s.received.Before(gone.answered) }
	return last.retired ||
		slices.ContainsFunc(h.states, func(s state) bool { return retires(s) && s.version > last.version }) ||
		deletion.required() != last.version &&
			slices.ContainsFunc(h.unknown, func(s state) bool { return retires(s) && s.based >= last.version })
}

// collectedBetween reports whether the Lease was deleted between two writes after it was retired,
// perhaps by the first of them, which may not have been answered by then.
func (h *history) collectedBetween(before, after state) bool {
	from := before.answered
	if before.retired {
		from = before.received
	}
	return slices.ContainsFunc(h.collected, func(at time.Time) bool { return at.After(from) && at.Before(after.answered) })
}

func (h *history) add(e event) error {
	lease, err := e.lease()
	if err != nil {
		return err
	}
	version, err := strconv.ParseUint(lease.ResourceVersion, 10, 64)
	if err != nil {
		return err
	}
	s := madeBy(lease, e)
	s.version = version
	h.states = append(h.states, s)
	return nil
}

// addUnknown records a write that may or may not have taken effect. A request that the server has
// not read to its end, for example because its sender was cut off, has none.
func (h *history) addUnknown(e event) {
	unread := e.RequestObject == nil && e.Verb != "delete" && (e.level == auditv1.LevelRequest || e.level == auditv1.LevelRequestResponse)
	if lease := e.asked(); lease != nil {
		h.unknown = append(h.unknown, madeBy(lease, e))
	} else if !unread {
		h.unasked = append(h.unasked, e.lean())
	}
}

// madeBy returns the Lease after an event, or as the event would have left it, without its version.
func madeBy(lease *coordinationv1.Lease, e event) state {
	s := stateOf(lease, 0)
	s.received, s.answered, s.event, s.sender = e.Received.Time, e.Answered.Time, e.lean(), senderOf(e.UserAgent)
	if asked := e.asked(); asked != nil {
		s.based, _ = strconv.ParseUint(asked.ResourceVersion, 10, 64)
	}
	return s
}

// stateOf returns what a Lease says, without the time of its write.
func stateOf(lease *coordinationv1.Lease, version uint64) state {
	term := ptr.Deref(lease.Spec.LeaseTransitions, 0)
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	s := state{
		version:  version,
		holder:   holder,
		term:     term,
		duration: time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second,
		spec:     fingerprint(lease.Spec),
		cover:    coverOf(lease, term),
		released: holder == "" && lease.Annotations[leaserecord.ReleasedAnnotation] == strconv.Itoa(int(term)),
		protocol: 1,
		retired:  leaserecord.From(lease).IsRetired(),
	}
	if at := lease.Spec.RenewTime; at != nil {
		s.beat = at.UnixMicro()
	}
	if ended := lease.Annotations[leaserecord.EndedAnnotation]; ended != "" {
		s.ended = strings.Split(ended, ",")
	}
	if n, err := strconv.Atoi(lease.Annotations[leaserecord.ProtocolAnnotation]); err == nil {
		s.protocol = n
	}
	return s
}

// sort puts the states in order, and drops an update that changed nothing: its answer is the
// earlier state.
func (h *history) sort() {
	slices.SortStableFunc(h.states, func(a, b state) int {
		return cmp.Or(cmp.Compare(a.version, b.version), a.answered.Compare(b.answered))
	})
	h.states = slices.CompactFunc(h.states, func(a, b state) bool { return a.version == b.version })
	h.recover()
	for i := range h.states {
		s := &h.states[i]
		s.freed = s.released || i > 0 && s.holder == "" && h.states[i-1].freed
		switch {
		case !s.freed || i == 0:
		case h.states[i-1].freed:
			s.freer, s.freedFrom = h.states[i-1].freer, h.states[i-1].freedFrom
		default:
			s.freer, s.freedFrom = s, h.states[i-1].holder
		}
		s.aliveReceived, s.aliveAnswered = s.received, s.answered
		if i > 0 && h.states[i-1].spec == s.spec {
			s.aliveReceived, s.aliveAnswered = h.states[i-1].aliveReceived, h.states[i-1].aliveAnswered
		}
	}
}

// recover inserts writes that took effect although their sender got an error: a busy server ends a
// request that its storage carries out. The next write shows that there was one, by the version
// that it was made on. Without it a later time would count as the sign of life, or a release would
// look like a renewal.
func (h *history) recover() {
	var all []state
	var before state
	for i, after := range h.states {
		found, whole := h.between(before, after)
		if all = append(all, found...); !whole {
			if len(found) > 0 {
				before = found[len(found)-1]
			}
			h.holes = append(h.holes, hole{before, after})
			h.partial = h.partial || i == 0
		}
		all, before = append(all, after), after
	}
	h.states = all
}

// between returns what took effect between two writes, and whether that is everything.
func (h *history) between(before, after state) (hidden []state, whole bool) {
	for before.version < after.based && after.based < after.version {
		// The version that an unknown write was made on existed too.
		version := after.based
		for _, u := range h.unknown {
			if before.version < u.based && u.based < version {
				version = u.based
			}
		}
		s, ok := h.made(before, after, version == after.based)
		if !ok {
			return hidden, false
		}
		s.version = version
		hidden = append(hidden, s)
		before = s
	}
	return hidden, true
}

// made returns the unknown write that took effect next after a state and, with last, was the last
// one before another state. Only one of those made on the same version can have taken effect, and
// what follows shows which.
func (h *history) made(before, after state, last bool) (found state, ok bool) {
	for _, u := range h.unknown {
		if u.based != before.version || u.received.After(after.answered) {
			continue
		}
		switch {
		case !ok, last && u.spec == after.spec:
			found, ok = u, true
		case last && found.spec != after.spec && after.holder != before.holder && u.holder == "":
			found = u // a release, after which anybody may take it
		}
	}
	if found.answered.After(after.received) {
		found.answered = after.received
	}
	return found, ok
}

// at returns the state in force at a version.
func (h *history) at(version uint64) (state, bool) {
	i, found := slices.BinarySearchFunc(h.states, version, func(s state, v uint64) int { return cmp.Compare(s.version, v) })
	if !found {
		i--
	}
	if i < 0 {
		return state{}, false
	}
	return h.states[i], true
}

// ranOut reports whether the Lease had not changed for its duration when a request arrived.
func (h *history) ranOut(arrived time.Time) bool {
	// Versions and answers have the same order: a holder has one request in progress at a time.
	i, _ := slices.BinarySearchFunc(h.states, arrived, func(s state, t time.Time) int { return s.answered.Compare(t) })
	return i > 0 && h.states[i-1].aliveAnswered.Add(h.states[i-1].duration).Before(arrived)
}

// hides reports whether the log lacks writes of the Lease that may have been in force when a
// request took effect.
func (h *history) hides(m moment) bool {
	if m.version > 0 {
		return h.inHole(m.version)
	}
	return slices.ContainsFunc(h.holes, func(g hole) bool {
		return !m.received.After(g.after.answered) && !m.answered.Before(g.before.received)
	})
}

// terms returns the history's terms in order: runs of states with the same holder and term, without
// runs that have no holder.
func (h *history) terms() []Term {
	var terms []Term
	open := false
	for _, s := range h.states {
		last := len(terms) - 1
		if open && terms[last].Holder == s.holder && terms[last].Term == s.term {
			terms[last].last = s
			terms[last].note(s)
			continue
		}
		if open {
			terms[last].Ended, terms[last].Released, terms[last].end = s.answered, s.holder == "", s
		}
		if open = s.holder != ""; open {
			terms = append(terms, Term{Holder: s.holder, Term: s.term, Began: s.answered, first: s, last: s})
			terms[len(terms)-1].earlier = h.partial && len(terms) == 1 && s.version == h.states[0].version
			terms[len(terms)-1].note(s)
		}
	}
	return terms
}

// note records what a write of the Lease says about the term.
func (t *Term) note(s state) {
	if t.cover == nil && s.cover.named && s.cover.fault == "" {
		t.cover = &s.cover
	}
	switch {
	case s.cover.ready:
		t.waited, t.ran = true, time.Time{}
	case t.waited && t.ran.IsZero():
		t.ran = s.answered
	}
}

// faults returns what is wrong with the Lease's writes by themselves. For holders that do not renew
// the Lease itself, judgeTakings decides when it may change hands.
func (h *history) faults(beating func(before, after string) bool) []Violation {
	var faults []Violation
	high, held := int32(-1), state{}
	for i, s := range h.states {
		if i > 0 && h.collectedBetween(h.states[i-1], s) {
			high = -1 // the shard is another one of that name
		}
		switch {
		case s.holder == "":
			held = state{}
		case s.holder == held.holder && s.term == held.term:
			held = s
		default:
			if s.term <= high {
				faults = append(faults, s.event.violation(TermReused, "%s holds it for term %d, which is not above term %d before",
					s.holder, s.term, high))
			}
			if held.holder != "" && s.holder != held.holder && !h.holeBefore(s.version) && !beating(held.holder, s.holder) && s.answered.Before(held.aliveReceived.Add(held.duration)) {
				faults = append(faults, s.event.violation(TakenEarly, "%s took it %v after %s had renewed it for %v",
					s.holder, s.answered.Sub(held.aliveReceived), held.holder, held.duration))
			}
			held = s
		}
		high = max(high, s.term)
	}
	return faults
}

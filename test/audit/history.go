package audit

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
)

// state is what one write made of a shard's Lease.
type state struct {
	version  uint64
	based    uint64 // the version that the write was made on; 0 if the log does not say
	holder   string
	term     int32
	duration time.Duration
	// The write took effect between these.
	received, answered time.Time
	// spec is the fingerprint of the Lease's spec. Only its change is a sign of life: a rival may write its wish on the
	// Lease of a dead holder. aliveReceived and aliveAnswered are of the last write that changed it.
	spec                         uint64
	aliveReceived, aliveAnswered time.Time
	cover                        cover
	// event is the write itself, for violations.
	event event
}

// history is all writes of one Lease.
type history struct {
	states []state // by version, once sorted
	// unknown are writes that ended with a server's error, such as a timeout, by what they asked for. They have no version.
	unknown []state
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

// addUnknown takes in a write of which nobody knows whether it took effect.
func (h *history) addUnknown(e event) {
	if lease := e.asked(); lease != nil {
		h.unknown = append(h.unknown, madeBy(lease, e))
	}
}

// madeBy returns what an event made of the Lease, or would have, without its version.
func madeBy(lease *coordinationv1.Lease, e event) state {
	s := stateOf(lease, 0)
	s.received, s.answered, s.event = e.Received.Time, e.Answered.Time, e.lean()
	if asked := e.asked(); asked != nil {
		s.based, _ = strconv.ParseUint(asked.ResourceVersion, 10, 64)
	}
	return s
}

// stateOf returns what a Lease says, without when it was written.
func stateOf(lease *coordinationv1.Lease, version uint64) state {
	term := ptr.Deref(lease.Spec.LeaseTransitions, 0)
	return state{
		version:  version,
		holder:   ptr.Deref(lease.Spec.HolderIdentity, ""),
		term:     term,
		duration: time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second,
		spec:     fingerprint(lease.Spec),
		cover:    coverOf(lease, term),
	}
}

// sort puts the states in order; an update that changed nothing is answered with what was there, and is left out.
func (h *history) sort() {
	slices.SortStableFunc(h.states, func(a, b state) int {
		return cmp.Or(cmp.Compare(a.version, b.version), a.answered.Compare(b.answered))
	})
	h.states = slices.CompactFunc(h.states, func(a, b state) bool { return a.version == b.version })
	h.recover()
	for i := range h.states {
		s := &h.states[i]
		s.aliveReceived, s.aliveAnswered = s.received, s.answered
		if i > 0 && h.states[i-1].spec == s.spec {
			s.aliveReceived, s.aliveAnswered = h.states[i-1].aliveReceived, h.states[i-1].aliveAnswered
		}
	}
}

// recover puts in the writes that took effect though their sender was told of an error: a busy server ends a request that
// its storage carries out. The next write shows that there was one, by the version that it was made on. Without it the
// sign of life would be taken for a later one, or a release for a renewal.
func (h *history) recover() {
	var all []state
	for i, after := range h.states {
		if i > 0 {
			all = append(all, h.between(h.states[i-1], after)...)
		}
		all = append(all, after)
	}
	h.states = all
}

// between returns what took effect between two writes, as far as that is known.
func (h *history) between(before, after state) (hidden []state) {
	for before.version < after.based && after.based < after.version {
		// What an unknown write was made on has been there too.
		version := after.based
		for _, u := range h.unknown {
			if before.version < u.based && u.based < version {
				version = u.based
			}
		}
		s, ok := h.made(before, after, version == after.based)
		if !ok {
			break
		}
		s.version = version
		hidden = append(hidden, s)
		before = s
	}
	return hidden
}

// made returns which unknown write took effect next to a state, and was the last one before another if that is said. Only
// one of those that were made on the same version can have, and what comes after tells which.
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

// ranOut tells whether the Lease had stood still for its duration when a request arrived.
func (h *history) ranOut(arrived time.Time) bool {
	// The order of the versions is that of the answers too: a holder has one request under way at a time.
	i, _ := slices.BinarySearchFunc(h.states, arrived, func(s state, t time.Time) int { return s.answered.Compare(t) })
	return i > 0 && h.states[i-1].aliveAnswered.Add(h.states[i-1].duration).Before(arrived)
}

// terms returns the history's terms in order: runs of states with the same holder and term, without those that have no
// holder.
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
			terms[len(terms)-1].note(s)
		}
	}
	return terms
}

// note keeps what a write of the Lease says of the term.
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

// faults returns what is wrong with the Lease's writes by themselves.
func (h *history) faults() []Violation {
	var faults []Violation
	high, held := int32(-1), state{}
	for _, s := range h.states {
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
			if held.holder != "" && s.holder != held.holder && s.answered.Before(held.aliveReceived.Add(held.duration)) {
				faults = append(faults, s.event.violation(TakenEarly, "%s took it %v after %s had renewed it for %v",
					s.holder, s.answered.Sub(held.aliveReceived), held.holder, held.duration))
			}
			held = s
		}
		high = max(high, s.term)
	}
	return faults
}

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
	s := stateOf(lease, version)
	s.received, s.answered, s.event = e.Received.Time, e.Answered.Time, e.lean()
	h.states = append(h.states, s)
	return nil
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
	for i := range h.states {
		s := &h.states[i]
		s.aliveReceived, s.aliveAnswered = s.received, s.answered
		if i > 0 && h.states[i-1].spec == s.spec {
			s.aliveReceived, s.aliveAnswered = h.states[i-1].aliveReceived, h.states[i-1].aliveAnswered
		}
	}
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

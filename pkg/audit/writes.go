package audit

import (
	"slices"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// judgeWrites compares every request that carries a claim with what its shard covers, and with its
// Lease.
func (c *checker) judgeWrites() {
	overtaken := newOvertaken(c.writes)
	for _, w := range c.writes {
		f, known := c.fact(w.by)
		if !known && c.late {
			c.doubt(w.event, LeaseHole, "%s: the log may begin under a plan that it does not have", w.by)
			continue
		}
		if !known {
			c.convict(w.event, UnknownShard, "%s: no plan has such a shard", w.by)
			continue
		}
		switch {
		case w.event.isEvent():
			c.report.Events++
			continue
		case w.event.storesNothing():
			c.report.StoreNothing++
			continue
		}
		if f.namespaced {
			c.judgeRange(f, w)
		}
		c.judgeController(w, f)
		if w.event.refused() || overtaken.has(w.event) {
			c.report.Refused++
			c.judgeRefusal(w)
			continue
		}
		c.judge(w, f)
	}
}

func (c *checker) judgeRange(f fact, w write) {
	e, namespace := w.event, w.event.namespace()
	switch {
	case namespace == "" && e.ObjectRef.Resource == "persistentvolumes":
		c.judgeVolume(f, w)
	case namespace == "":
		c.convict(e, WrongScope, "%s: %s %q is cluster-scoped", w.by, e.resource(), e.ObjectRef.Name)
	case !f.extent.Range.ContainsNamespace(namespace):
		c.convict(e, WrongRange, "%s: namespace %q is at %#016x, outside of %s", w.by, namespace, shard.Hash(namespace), f.extent.Range)
	}
}

// judge compares a write with the Lease and the leader locks, and counts it.
func (c *checker) judge(w write, f fact) {
	c.judgeLeaderLocks(w)
	if term, ok := c.term(w.by); !ok {
		c.convictUnlessHidden(w, "%s: the Lease never said so", w.by)
	} else if c.judgeTerm(w, term) {
		c.worked(w, term)
	}
	c.report.times[w.by.Member] = append(c.report.times[w.by.Member], w.event.Answered.Time)
	if c.report.Writes[w.by.Shard] == nil {
		c.report.Writes[w.by.Shard] = map[string]int{}
	}
	c.report.Writes[w.by.Shard][w.by.Member]++
	if f.namespaced {
		c.addToTerm(w)
	}
}

// term returns the term that an identity names.
func (c *checker) term(by Identity) (Term, bool) {
	for _, t := range c.report.Terms[by.Shard] {
		if t.Holder == by.Member && t.Term == by.Term {
			return t, true
		}
	}
	return Term{}, false
}

// judgeTerm reports whether the write was within the term.
func (c *checker) judgeTerm(w write, t Term) bool {
	h := c.histories[w.by.Shard]
	// A version from before the term is that of an earlier change: this write changed nothing.
	late := c.ranOut(w.by, w.event.Received.Time)
	if w.version < t.first.version {
		c.report.ByTime++
		if !t.couldCover(w.event) {
			if t.struck && (t.taken.version == 0 || !w.event.Received.After(t.taken.answered)) {
				c.convictEnded(w, t)
			} else {
				c.convictUnlessHidden(w, "%s: the term lasted from %s to %s", w.by, stamp(t.Began), stamp(t.Ended))
			}
			return false
		}
		// The write may have taken effect before the end of the term, or after it.
		if w.version == 0 && t.onTheWire(w.event) {
			c.fly(w.event, w.flight(t), false)
		}
	} else {
		c.report.ByVersion++
		s, _ := h.at(w.version)
		named := s.holder == w.by.Member && s.term == w.by.Term
		switch {
		case named && !t.over(w.version):
		case t.onTheWire(w.event):
			c.fly(w.event, w.flight(t), late)
			return false
		case named:
			c.convictEnded(w, t)
			return false
		default:
			c.convictUnlessHidden(w, "%s: the Lease at version %d named %q, term %d", w.by, w.version, s.holder, s.term)
			return false
		}
	}
	if late {
		c.report.Late++
	}
	return true
}

// ranOut reports whether the claim had shown no sign of life for its Lease's duration when a
// request arrived.
func (c *checker) ranOut(by Identity, arrived time.Time) bool {
	if c.members.beating(by.Member) {
		return c.members.ranOut(by.Member, arrived)
	}
	return c.histories[by.Shard].ranOut(arrived)
}

// convictEnded convicts a write of a holder that was listed as ended while the shard's Lease still
// named it.
func (c *checker) convictEnded(w write, t Term) {
	c.convict(w.event, WriterEnded, "%s: the writer was listed as ended%s at version %d, at %s", w.by, t.end.bySomebody(), t.end.version, stamp(t.end.answered))
}

// convictUnlessHidden convicts a write of somebody that the Lease did not name, unless the Lease's
// content at that time is not in the log.
func (c *checker) convictUnlessHidden(w write, format string, args ...any) {
	h := c.histories[w.by.Shard]
	switch {
	case h != nil && len(h.states) == 0:
		// A shard's Lease is written only when something changes. One doubt for each claim is
		// enough.
		if !c.unwritten.Has(w.by) {
			c.unwritten.Insert(w.by)
			c.doubt(w.event, LeaseHole, "%s: the log has no write of the shard's Lease", w.by)
		}
	case h != nil && h.hides(w.event.moment(w.version)):
		c.doubt(w.event, LeaseHole, format, args...)
	default:
		c.convict(w.event, NotHolder, format, args...)
	}
}

func (c *checker) addToTerm(w write) {
	namespace := w.event.namespace()
	if namespace == "" {
		return
	}
	terms := c.report.Namespaces[namespace]
	answered := w.event.Answered.Time
	i := slices.IndexFunc(terms, func(t TermWrites) bool { return t.Identity == w.by })
	if i < 0 {
		i = len(terms)
		terms = append(terms, TermWrites{Identity: w.by, First: answered})
	}
	t := &terms[i]
	t.Writes++
	if answered.Before(t.First) {
		t.First = answered
	}
	if answered.After(t.Last) {
		t.Last = answered
	}
	c.report.Namespaces[namespace] = terms
}

func (c *checker) doubt(e event, kind Kind, format string, args ...any) {
	c.report.Undecided = append(c.report.Undecided, e.violation(kind, format, args...))
}

func (c *checker) convict(e event, kind Kind, format string, args ...any) {
	c.report.Violations = append(c.report.Violations, e.violation(kind, format, args...))
}

package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// work is the writes that were made within one term.
type work struct {
	by     Identity
	term   Term
	fact   fact
	writes []done // by the time of their answers, once sorted
	// version is the write with the lowest version.
	version done
}

// done is a write that took effect at a moment.
type done struct {
	moment
	event event
}

// worked keeps a write that was within its term.
func (c *checker) worked(w write, t Term) {
	k := c.works[w.by]
	if k == nil {
		f, _ := c.fact(w.by)
		k = &work{by: w.by, term: t, fact: f}
		c.works[w.by] = k
	}
	d := done{moment: w.event.moment(w.version), event: w.event}
	// The answer to a write that changes nothing has the version of an earlier one.
	if first, told := c.world.told[w.version]; w.version < t.first.version || told && first.Before(d.answered) {
		d.version = 0
	}
	if d.version > 0 && (k.version.moment.version == 0 || d.version < k.version.moment.version) {
		k.version = d
	}
	k.writes = append(k.writes, d)
}

// begunBefore reports whether the work surely had begun when d took effect. Versions decide, unless
// the clock says that they cannot: an answer may have the version of an earlier write that is not
// in the log.
func (k *work) begunBefore(d done) bool {
	surely := func(first done) bool { return first.before(d.moment) && !first.received.After(d.answered) }
	return surely(k.writes[0]) || k.version.moment.version > 0 && surely(k.version)
}

// judgeOverlaps convicts every pair of terms of two shards with overlapping extents that worked at
// the same time: the later one may not write before the other has been released or has run out.
func (c *checker) judgeOverlaps() {
	var all []*work
	for _, k := range c.works {
		slices.SortStableFunc(k.writes, func(a, b done) int { return a.answered.Compare(b.answered) })
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b *work) int {
		if order := a.by.Shard.Compare(b.by.Shard); order != 0 {
			return order
		}
		return a.term.Began.Compare(b.term.Began)
	})
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.by.Shard != b.by.Shard && !a.term.endedBefore(b.term) && !b.term.endedBefore(a.term) && a.fact.extent.Overlaps(b.fact.extent) {
				c.judgePair(a, b)
			}
		}
	}
}

func (t Term) endedBefore(other Term) bool {
	return !t.Ended.IsZero() && t.Ended.Before(other.first.received)
}

func (c *checker) judgePair(a, b *work) {
	byA, perhapsA := c.intrusions(a, b)
	byB, perhapsB := c.intrusions(b, a)
	first, second, intrusions := a, b, byB
	if len(byB) == 0 || len(byA) > 0 && byA[0].answered.Before(byB[0].answered) {
		first, second, intrusions = b, a, byA
	}
	if len(intrusions) == 0 {
		for _, d := range append(perhapsA, perhapsB...)[:min(1, len(perhapsA)+len(perhapsB))] {
			c.doubt(d.event, EndUnknown, "%s and %s cover some of the same; the log does not tell whether the holder of the one had ended when the other wrote this",
				a.by, b.by)
		}
		return
	}
	d := intrusions[0]
	until := first.writes[len(first.writes)-1].answered
	if last := second.writes[len(second.writes)-1].answered; last.Before(until) {
		until = last
	}
	c.report.Overlaps = append(c.report.Overlaps, Overlap{
		Shard: first.by.Shard, Other: second.by.Shard, First: first.term, Second: second.term, Version: d.version, For: max(until.Sub(d.answered), 0),
	})
	c.convict(d.event, OverlappingShards, "%s, which wrote from %s to %s, wrote this while the Lease of %s was held (%s to %s), which had begun (wrote from %s to %s); both cover %s. %d writes of the one and %d of the other are such",
		second.by, stamp(second.writes[0].answered), stamp(second.writes[len(second.writes)-1].answered),
		first.by, stamp(first.term.Began), stamp(first.term.Ended), stamp(first.writes[0].answered), stamp(first.writes[len(first.writes)-1].answered),
		common(first.fact.extent, second.fact.extent), max(len(byA), len(byB)), min(len(byA), len(byB)))
}

// intrusions returns the writes of k that took effect while the other's claim was in force and had
// begun to work, in order. Writes by a claim that had run out, on the wire when the other one
// began, are in flight. perhaps are writes for which the log does not show whether the other's
// claim was in force.
func (c *checker) intrusions(k, other *work) (all, perhaps []done) {
	for _, d := range k.writes {
		if !other.begunBefore(d) {
			continue
		}
		force, known := c.inForce(other, d)
		if !known {
			perhaps = append(perhaps, d)
		}
		if !force || !known {
			continue
		}
		if first := other.writes[0]; c.ranOut(k.by, first.received) && !d.received.After(first.answered) {
			c.fly(d.event, Flight{
				Identity: k.by, File: d.event.file, Log: d.event.log, Line: d.event.line, Verb: d.event.Verb, URI: d.event.RequestURI,
				Version: d.version, Ended: first.version, After: max(d.answered.Sub(first.answered), 0),
			}, c.ranOut(k.by, d.received))
			continue
		}
		all = append(all, d)
	}
	return all, perhaps
}

// inForce reports whether the term surely was in force when d took effect: nobody could have seen
// it end, or run out if it can. known is false if the log lacks the end of its holder.
func (c *checker) inForce(k *work, d done) (force, known bool) {
	h, t := c.histories[k.by.Shard], k.term
	if !t.Ended.IsZero() && d.received.After(t.Ended) {
		return false, true
	}
	var s state
	if d.version > 0 {
		s, _ = h.at(d.version)
	} else {
		if !t.Ended.IsZero() && !d.answered.Before(t.end.received) {
			return false, true
		}
		i, _ := slices.BinarySearchFunc(h.states, d.received, func(s state, at time.Time) int { return s.answered.Compare(at) })
		if i == 0 {
			return false, true
		}
		s = h.states[i-1]
	}
	switch {
	case s.holder != k.by.Member || s.term != k.by.Term:
		return false, true
	case t.beating:
		return c.members.livesAt(k.by.Member, d.moment)
	default:
		return d.answered.Before(s.aliveReceived.Add(s.duration)), true
	}
}

// common returns as text for people what is in both extents.
func common(a, b shard.Extent) string {
	e := intersection(a, b)
	return fmt.Sprintf("%s of %s", e.Range, strings.Join(e.Controllers, ","))
}

// intersection of two extents that overlap.
func intersection(a, b shard.Extent) shard.Extent {
	e := shard.Extent{Range: shard.Range{Start: max(a.Range.Start, b.Range.Start), End: min(a.Range.End-1, b.Range.End-1) + 1}}
	for _, name := range a.Controllers {
		if slices.Contains(b.Controllers, name) {
			e.Controllers = append(e.Controllers, name)
		}
	}
	return e
}

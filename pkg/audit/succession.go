package audit

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Succession is two holders, one after the other, of what both of their shards cover.
type Succession struct {
	// Predecessor and Successor are the shards, Before and After their holders. The shard is the
	// same for a handoff or a takeover.
	Predecessor, Successor shard.ID
	Before, After          string
	// Extent is what both shards cover.
	Extent shard.Extent
	// Planned is set if the predecessor's Lease was released, and did not run out.
	Planned bool
	// Ended is when it was released, or its holder last renewed before it ran out. Began is when
	// the successor stopped waiting; zero if there is none by the end of the log, and then
	// Successor and After are empty.
	Ended, Began time.Time
	// LastWrite is the last write under the predecessor and FirstWrite the first under the
	// successor, of what both cover; zero if there are none, and always without a log.
	LastWrite, FirstWrite time.Time
}

// Gap returns how long nobody ran what both cover.
func (s Succession) Gap() time.Duration {
	if s.Began.IsZero() {
		return 0
	}
	return max(s.Began.Sub(s.Ended), 0)
}

// Silence returns how long nobody wrote, from the last write under the predecessor to the first
// under the successor; false unless there are both. It is also long if there is nothing to do.
func (s Succession) Silence() (time.Duration, bool) {
	if s.LastWrite.IsZero() || s.FirstWrite.IsZero() {
		return 0, false
	}
	return s.FirstWrite.Sub(s.LastWrite), true
}

// Successions returns what passed from one shard to another by changes of the plan, in order.
func (r Report) Successions() []Succession {
	return slices.DeleteFunc(r.tale.successions(), func(s Succession) bool { return s.Began.IsZero() || s.Predecessor == s.Successor })
}

// Interruptions returns the times during which nobody ran something that had run before: between
// two holders of one shard or of two, and until the end of the log. A holder that waits does not
// run.
func (r Report) Interruptions() []Succession {
	return slices.DeleteFunc(r.tale.successions(), func(s Succession) bool { return !s.Began.IsZero() && s.Gap() == 0 })
}

// Sighting is a Lease as it was seen, on a list or a watch, at a time by one clock.
type Sighting struct {
	Lease *coordinationv1.Lease
	At    time.Time
}

// Successions returns what passed from one shard to another while the Leases of a fleet were
// watched, from every change that was seen. It does not know about writes. If members have one
// heartbeat for all that they hold, it needs the Leases of members too: those of shards do not show
// when their holders died.
func Successions(fleetName string, sightings []Sighting) []Succession {
	histories, heartbeats := map[shard.ID]*history{}, members{}
	var t tale
	for _, s := range sightings {
		if s.At.After(t.end) {
			t.end = s.At
		}
		version, err := strconv.ParseUint(s.Lease.ResourceVersion, 10, 64)
		seen := stateOf(s.Lease, version)
		seen.received, seen.answered = s.At, s.At
		if name, ok := leaserecord.MemberOfLease(fleetName, s.Lease.Name); ok && err == nil {
			l := heartbeats.log(name)
			l.states = append(l.states, seen)
		}
		id := seen.cover.id
		if err != nil || seen.cover.fleet != fleetName || s.Lease.Name != leaseapi.ShardLease(fleetName, id) {
			continue
		}
		if histories[id] == nil {
			histories[id] = &history{}
		}
		histories[id].states = append(histories[id].states, seen)
	}
	heartbeats.finish(func(event) bool { return true })
	for id, h := range histories {
		h.sort()
		terms := h.terms()
		heartbeats.settle(terms)
		for _, term := range terms {
			if term.cover != nil {
				t.holds = append(t.holds, &held{shard: id, extent: term.cover.extent, term: term})
			}
		}
	}
	t.settle()
	return Report{tale: t}.Successions()
}

// successions returns every pair of holders that followed each other on some cell, and every last
// holder that has gone.
func (t tale) successions() []Succession {
	type pair struct{ last, next *held }
	seen := map[pair]bool{}
	var all []Succession
	note := func(last, next *held, part shard.Extent) {
		if seen[pair{last, next}] {
			return
		}
		seen[pair{last, next}] = true
		s := Succession{Predecessor: last.shard, Before: last.term.Holder, Extent: last.extent, Planned: last.planned, Ended: last.until}
		if next != nil {
			part = intersection(last.extent, next.extent)
			s.Successor, s.After, s.Began = next.shard, next.term.Holder, next.owned
			s.FirstWrite = within(next.writes, part.Range, false)
		}
		s.Extent, s.LastWrite = part, within(last.writes, part.Range, true)
		all = append(all, s)
	}
	for _, c := range t.cells() {
		last := c.holds[0]
		for _, next := range c.holds[1:] {
			if !last.until.IsZero() && (next.until.IsZero() || next.until.After(last.until)) {
				note(last, next, c.extent)
				last = next
			}
		}
		if !last.until.IsZero() {
			note(last, nil, c.extent)
		}
	}
	slices.SortStableFunc(all, func(a, b Succession) int {
		return cmp.Or(a.Ended.Compare(b.Ended), a.Predecessor.Compare(b.Predecessor), a.Successor.Compare(b.Successor))
	})
	return all
}

// within returns when the first or the last write in a range was answered; writes outside of
// namespaces count for all ranges.
func within(writes []done, r shard.Range, last bool) time.Time {
	var at time.Time
	for _, d := range writes {
		if namespace := d.event.namespace(); namespace != "" && !r.ContainsNamespace(namespace) {
			continue
		}
		if at = d.answered; !last {
			break
		}
	}
	return at
}

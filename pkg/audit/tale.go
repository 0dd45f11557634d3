package audit

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// tale is who owned what and when.
type tale struct {
	holds []*held
	end   time.Time // of what is known
}

// held is a term in the history of ownership.
type held struct {
	shard  shard.ID
	extent shard.Extent
	term   Term
	// owned is when the holder began to run, and until is when it stopped; zero if it still runs.
	// free is when others could run: later than until if the Lease ran out, zero if the holder must
	// be listed as ended and is not.
	owned, until, free time.Time
	planned            bool // was released
	writes             []done
}

// tell returns who owned what and when, by the log.
func (c *checker) tell() tale {
	t := tale{end: c.last}
	for id, terms := range c.report.Terms {
		f, known := c.shardFact(id)
		if !known {
			continue
		}
		for _, term := range terms {
			h := &held{shard: id, extent: f.extent, term: term}
			if term.cover != nil {
				h.extent = term.cover.extent
			}
			if k := c.works[Identity{Member: term.Holder, Shard: id, Term: term.Term}]; k != nil {
				h.writes = k.writes
			}
			t.holds = append(t.holds, h)
		}
	}
	t.settle()
	return t
}

// settle finds out from when to when each holder ran.
func (t *tale) settle() {
	for _, h := range t.holds {
		h.planned = h.term.Released
		switch expiry := h.term.expiry(); {
		case h.term.Released:
			h.until, h.free = h.term.Ended, h.term.Ended
		case !h.term.Ended.IsZero():
			h.until, h.free = h.term.stopped(), h.term.Ended
		case h.term.beating && !expiry.IsZero() && expiry.Before(t.end):
			h.until = h.term.stopped() // but nobody else may run before the holder is listed as ended
		case !h.term.beating && expiry.Before(t.end):
			h.until, h.free = h.term.stopped(), expiry
		}
	}
	slices.SortFunc(t.holds, func(a, b *held) int {
		return cmp.Or(a.term.Began.Compare(b.term.Began), a.shard.Compare(b.shard), cmp.Compare(a.term.Term, b.term.Term))
	})
	for _, h := range t.holds {
		h.owned = t.ran(h)
	}
}

// ran returns when a holder began to run: at once, or when all its predecessors were free, or when
// its Lease stopped saying that it waits. A write proves that it had begun before.
func (t *tale) ran(h *held) time.Time {
	at := h.term.Began
	for again := true; again && !at.IsZero(); {
		again = false
		for _, other := range t.holds {
			if other.term.Began.After(at) || !other.free.IsZero() && !other.free.After(at) || !other.precedes(h) {
				continue
			}
			if at, again = other.free, true; at.IsZero() {
				break // it never was
			}
		}
	}
	if h.term.ran.After(at) {
		at = h.term.ran
	}
	if len(h.writes) > 0 && (at.IsZero() || h.writes[0].answered.Before(at)) {
		at = h.writes[0].answered
	}
	return at
}

// precedes reports whether the other shard waits for this one, if both are held.
func (h *held) precedes(other *held) bool {
	if h.shard == other.shard || !h.extent.Overlaps(other.extent) {
		return false
	}
	if mine, theirs := h.generation(), other.generation(); mine != theirs {
		return mine < theirs
	}
	return h.term.Began.Before(other.term.Began)
}

// generation is the generation of the plan by which the Lease was taken.
func (h *held) generation() int64 {
	if h.term.cover == nil {
		return 0
	}
	return h.term.cover.generation
}

// runs reports whether the holder ever ran.
func (h *held) runs() bool {
	return !h.owned.IsZero() && (h.until.IsZero() || h.owned.Before(h.until))
}

// cell is a part of the extents that no shard divides, with its holders in the order in which they
// ran.
type cell struct {
	extent shard.Extent
	holds  []*held
}

// cells cuts the extents into parts. Controllers that the same shards run go together.
func (t *tale) cells() []cell {
	together := map[string][]string{} // controllers by the shards that run them
	for name, ids := range t.runners() {
		together[ids] = append(together[ids], name)
	}
	bounds := []uint64{0}
	for _, h := range t.holds {
		bounds = append(bounds, h.extent.Range.Start, h.extent.Range.End)
	}
	slices.Sort(bounds)
	bounds = slices.Compact(bounds)
	var cells []cell
	for _, ids := range sortedKeys(together) {
		names := slices.Sorted(slices.Values(together[ids]))
		for i, start := range bounds {
			part := shard.Extent{Range: shard.Range{Start: start}, Controllers: names}
			if i+1 < len(bounds) {
				part.Range.End = bounds[i+1]
			}
			c := cell{extent: part}
			for _, h := range t.holds {
				if h.runs() && h.extent.Overlaps(part) {
					c.holds = append(c.holds, h)
				}
			}
			slices.SortStableFunc(c.holds, func(a, b *held) int { return a.owned.Compare(b.owned) })
			if len(c.holds) > 0 {
				cells = append(cells, c)
			}
		}
	}
	return cells
}

// runners returns for each controller the shards that run it, as text.
func (t *tale) runners() map[string]string {
	seen := map[string][]string{}
	for _, h := range t.holds {
		for _, name := range h.extent.Controllers {
			if id := h.shard.String(); !slices.Contains(seen[name], id) {
				seen[name] = append(seen[name], id)
			}
		}
	}
	all := map[string]string{}
	for name, ids := range seen {
		slices.Sort(ids)
		all[name] = strings.Join(ids, " ")
	}
	return all
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

package audit

import (
	"time"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Overlap is two terms of one shard that were in force at the same time: the second began before
// the first had been released or had run out, or the first went on after the second had begun. Or
// it is two terms of two shards with overlapping extents that worked at the same time: the second
// wrote before the first had been released or had run out.
type Overlap struct {
	// Shard is the first term's; Other is the second's, the same for two terms of one shard.
	Shard, Other  shard.ID
	First, Second Term
	// Version is the version that shows it: that of the second term's first write of the Lease, or
	// of the first's that went on. For two shards it is the version of the first write of an
	// object, 0 if its answer had none.
	Version uint64
	// For is how long, by the API server's clock. For two shards it is until the last write of
	// either.
	For time.Duration
}

// claimKey names a term.
type claimKey struct {
	holder string
	term   int32
}

// overlaps returns the pairs of terms that overlap, and a violation for each that went on after
// another had begun: that is an order of versions, and does not depend on clocks. A term taken
// early, by the clock, is among the faults. early are the versions that took the Lease from a
// holder with one heartbeat for all.
func (h *history) overlaps(id shard.ID, terms []Term, early map[uint64]bool) (overlaps []Overlap, resumed []Violation) {
	seen := map[claimKey]int{} // the number of the term's last run
	for i, t := range terms {
		key := claimKey{t.Holder, t.Term}
		if last, ok := seen[key]; ok && last < i-1 {
			between := terms[i-1]
			overlaps = append(overlaps, Overlap{
				Shard: id, Other: id, First: terms[last], Second: between, Version: t.first.version, For: t.first.answered.Sub(between.Began),
			})
			resumed = append(resumed, t.first.event.violation(Overlapping, "%s went on with term %d at version %d, though %s had begun term %d at version %d",
				t.Holder, t.Term, t.first.version, between.Holder, between.Term, between.first.version))
		} else if i > 0 && !terms[i-1].Released && terms[i-1].Holder != t.Holder && !h.holeBefore(t.first.version) {
			by := t.overtook(terms[i-1])
			if convicted := early[t.first.version] || !terms[i-1].beating && !t.beating; convicted && by > 0 {
				overlaps = append(overlaps, Overlap{Shard: id, Other: id, First: terms[i-1], Second: t, Version: t.first.version, For: by})
			}
		}
		seen[key] = i
	}
	return overlaps, resumed
}

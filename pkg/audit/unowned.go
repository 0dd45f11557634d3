package audit

import (
	"slices"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Gap is the time during which a shard had no holder between two terms.
type Gap struct {
	// Before and After are the incarnations on both sides, which may be the same.
	Before, After string
	// From is when the first term's last write was answered: the release, or the last renewal or
	// heartbeat of what then ran out. To is when the next term's first write was answered.
	From, To time.Time
	// Planned is set if the Lease was released, and did not run out.
	Planned bool
}

// Duration returns the length of the gap.
func (g Gap) Duration() time.Duration { return g.To.Sub(g.From) }

// Unowned is how long one shard was without a holder.
type Unowned struct {
	// Gaps between terms, in order.
	Gaps []Gap
	// Moves counts the gaps that another incarnation ended.
	Moves int
	// P50, P99 and Worst are for the planned gaps, WorstUnplanned for the others, which count from
	// the last renewal; 0 if there are none. The percentiles are by nearest rank.
	P50, P99, Worst, WorstUnplanned time.Duration
	// Vacant is when the shard was given back for good, or its holder listed as ended; zero if it
	// has a holder at the end of the log, or never had one.
	Vacant time.Time
}

// Unowned returns for each shard how long it was without a holder.
func (r Report) Unowned() map[shard.ID]Unowned {
	all := map[shard.ID]Unowned{}
	for id, terms := range r.Terms {
		all[id] = unowned(terms)
	}
	return all
}

func unowned(terms []Term) Unowned {
	var u Unowned
	var planned []time.Duration
	for i, next := range terms[min(1, len(terms)):] {
		last := terms[i]
		gap := Gap{Before: last.Holder, After: next.Holder, From: last.stopped(), To: next.Began, Planned: last.Released}
		if last.Released {
			gap.From = last.Ended
			planned = append(planned, gap.Duration())
		} else {
			u.WorstUnplanned = max(u.WorstUnplanned, gap.Duration())
		}
		if gap.Before != gap.After {
			u.Moves++
		}
		u.Gaps = append(u.Gaps, gap)
	}
	if n := len(terms); n > 0 && !terms[n-1].Ended.IsZero() {
		u.Vacant = terms[n-1].Ended
	}
	slices.Sort(planned)
	u.P50, u.P99, u.Worst = Percentile(planned, 50), Percentile(planned, 99), Percentile(planned, 100)
	return u
}

// Percentile returns the smallest of the sorted durations that p percent of them do not exceed; 0
// if there are none.
func Percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := (len(sorted)*p + 99) / 100
	return sorted[min(max(rank, 1), len(sorted))-1]
}

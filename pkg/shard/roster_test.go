package shard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// changedHands returns the weight of the namespaces that belong to another member in plan b than in
// plan a.
func changedHands(t *testing.T, a, b Plan, before, after []string, full Census) int64 {
	t.Helper()
	was, now := memberOf(t, a, before, full), memberOf(t, b, after, full)
	weight := int64(0)
	for i, cell := range full {
		if was[i] != now[i] {
			weight += cell.Weight
		}
	}
	return weight
}

// memberOf returns the member of each cell.
func memberOf(t *testing.T, p Plan, members []string, full Census) []string {
	t.Helper()
	homes, err := p.HomesOf("namespaces", members)
	if err != nil {
		t.Fatal(err)
	}
	r, _ := p.Ring("namespaces")
	var out []string
	shards := slices.SortedFunc(slices.Values(r.Shards), func(a, b Shard) int { return cmp.Compare(a.Range.Start, b.Range.Start) })
	for _, s := range shards {
		owner, _ := homes.Owner(s.ID)
		for range full.Within(s.Range) {
			out = append(out, owner)
		}
	}
	return out
}

// TestRosterChangeMovesLittle makes one member join a balanced fleet, and one leave it, and lets
// the planner work until it proposes nothing. What then belongs to another member must be at most
// 1/N of all plus 5 %, with N members before. The 5 % allow for pieces of the wrong size for the
// newcomer or for the others.
//
// A leaver may have more than 1/N. A namespace that it leaves may be too heavy to fit anywhere.
// Then others give way to it, with about half of its weight, which is more than 5 % if it is a
// tenth of all.
func TestRosterChangeMovesLittle(t *testing.T) {
	for i, s := range schemes {
		for _, n := range []int{500, 5000} {
			if s.most > 0 && n > 500 {
				continue
			}
			full := NewCensus(weightsOf(i, n))
			share := func(w int64) float64 { return float64(w) / float64(full.Total()) }
			var joined, left []string
			for size := 2; size <= 12; size++ {
				all := statefulMembers(size + 1)
				members := all[:size]
				p, _ := converged(t, testPlan(t, 16), full, members)
				limit := 1/float64(size) + 0.05

				more, _ := converged(t, p, full, all)
				join := share(changedHands(t, p, more, members, all, full))
				if join > limit {
					t.Errorf("%s, %d: %.3f of all moved as one joined %d, want at most %.3f", s.name, n, join, size, limit)
				}
				if b := BalanceOf(more, "namespaces", Weights{Census: full}, all); b.Members[all[size]] == 0 {
					t.Errorf("%s, %d: the member that joined %d others has nothing", s.name, n, size)
				}
				had := share(BalanceOf(p, "namespaces", Weights{Census: full}, members).Members[members[0]])
				limit = max(1/float64(size), had) + max(0.05, 0.6*share(heaviest(full)))
				fewer, _ := converged(t, p, full, members[1:])
				leave := share(changedHands(t, p, fewer, members, members[1:], full))
				if leave > limit {
					t.Errorf("%s, %d: %.3f of all moved as one of %d left, want at most %.3f", s.name, n, leave, size, limit)
				}
				joined, left = append(joined, fmt.Sprintf("%.3f", join)), append(left, fmt.Sprintf("%.3f", leave))
			}
			t.Logf("%-9s %5d moved as one joins 2 to 12 members: %s", s.name, len(full), strings.Join(joined, " "))
			t.Logf("%-9s %5d moved as one of 2 to 12 members leaves: %s", s.name, len(full), strings.Join(left, " "))
		}
	}
}

func heaviest(c Census) int64 {
	return slices.MaxFunc(c, func(a, b Cell) int { return cmp.Compare(a.Weight, b.Weight) }).Weight
}

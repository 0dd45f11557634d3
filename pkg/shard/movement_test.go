package shard

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// moved counts the shards of ids whose owner differs between the placements, and, of these, those
// that neither left the member nor joined it.
func moved(ids []ID, before, after Placement, member string) (all, between int) {
	for _, id := range ids {
		a, placedBefore := before.Owner(id)
		b, placedAfter := after.Owner(id)
		if !placedBefore || !placedAfter || a == b {
			continue
		}
		all++
		if a != member && b != member {
			between++
		}
	}
	return all, between
}

var rosters = []struct{ members, perMember int }{
	{3, 4}, {4, 4}, {8, 4}, {16, 4}, {32, 4}, {3, 8}, {4, 8}, {8, 8}, {16, 8}, {32, 8},
}

// TestMovementOnRosterChange compares what one member more or less moves with the least possible:
// the newcomer's or leaver's own shards. The bound on the mean has room: measured are 0.1 to 0.75
// of a member's shards on top. A placement by modulo, which moves nearly all shards, would break
// the bound on the worst case.
func TestMovementOnRosterChange(t *testing.T) {
	r := newRand(t)
	const trials = 40
	for _, tc := range rosters {
		t.Run(fmt.Sprintf("%dx%d", tc.members, tc.perMember), func(t *testing.T) {
			shards := testIDs(tc.members * tc.perMember)
			total, collateral, worst := 0, 0, 0
			for range trials {
				members := testMembers(r, tc.members+1)
				last := members[tc.members]
				few, many := mustPlace(t, shards, members[:tc.members]), mustPlace(t, shards, members)
				joined, between := moved(shards, few, many, last)
				if gained := len(many.Of(last)); joined != gained+between {
					t.Fatalf("%d moved, want the newcomer's %d and %d between others", joined, gained, between)
				}
				if left, _ := moved(shards, many, few, last); left != joined {
					t.Fatalf("%d moved when %s left, %d when it joined", left, last, joined)
				}
				total, collateral, worst = total+joined, collateral+between, max(worst, joined)
			}
			perTrial := func(n int) float64 { return float64(n) / trials }
			t.Logf("Moved %.1f of %d, between others %.1f, worst %d; least %.1f",
				perTrial(total), len(shards), perTrial(collateral), worst, float64(len(shards))/float64(tc.members+1))
			if limit := float64(tc.perMember); perTrial(collateral) > limit {
				t.Errorf("on average %.1f of %d shards moved between other members, want at most %.1f", perTrial(collateral), len(shards), limit)
			}
			if limit := MaxLoad(len(shards), tc.members) + len(shards)/3; worst > limit {
				t.Errorf("%d of %d shards moved, want at most %d", worst, len(shards), limit)
			}
		})
	}
}

// TestMovementOnSplit splits one shard in two, as a new plan generation does. Most of the other
// shards must stay where they are. Measured are 0.6 to 2.3 moves; with a hash of the index instead
// of the ID, 30 to 50 % would move.
func TestMovementOnSplit(t *testing.T) {
	r := newRand(t)
	const trials = 40
	for _, tc := range rosters {
		t.Run(fmt.Sprintf("%dx%d", tc.members, tc.perMember), func(t *testing.T) {
			shards := testIDs(tc.members * tc.perMember)
			total := 0
			for range trials {
				members := testMembers(r, tc.members)
				all, _ := moved(shards, mustPlace(t, shards, members), mustPlace(t, split(r, shards), members), "")
				total += all
			}
			mean := float64(total) / trials
			t.Logf("Moved %.1f others of %d", mean, len(shards))
			if limit := float64(tc.perMember); mean > limit {
				t.Errorf("on average %.1f of %d other shards moved, want at most %.1f", mean, len(shards), limit)
			}
		})
	}
}

// split returns the shards with one of them replaced by two.
func split(r *rand.Rand, shards []ID) []ID {
	i := r.IntN(len(shards))
	out := append([]ID(nil), shards[:i]...)
	for _, half := range []string{"a", "b"} {
		out = append(out, ID{Ring: shards[i].Ring, Name: shards[i].Name + half})
	}
	return append(out, shards[i+1:]...)
}

// TestIdleMembers compares how many members get no shard, which the load bound allows, with what
// Place documents.
func TestIdleMembers(t *testing.T) {
	r := newRand(t)
	for _, tc := range []struct {
		perMember int
		limit     float64
	}{{1, 0.40}, {2, 0.16}, {4, 0.03}, {8, 0.003}} {
		idle, all := 0, 0
		for range 60 {
			members := testMembers(r, 16)
			p := mustPlace(t, testIDs(16*tc.perMember), members)
			for _, m := range members {
				all++
				if len(p.Of(m)) == 0 {
					idle++
				}
			}
		}
		share := float64(idle) / float64(all)
		t.Logf("At %d shards a member %.3f of the members had none", tc.perMember, share)
		if share > tc.limit {
			t.Errorf("at %d shards a member %.3f of the members had none, want at most %.3f", tc.perMember, share, tc.limit)
		}
	}
}

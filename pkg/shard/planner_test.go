package shard

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// objects is how many objects a namespace has in these tests unless a scheme says otherwise: one
// small application.
const objects = 20

// schemes name and weigh the i-th of n namespaces.
var schemes = []struct {
	name string
	// most is the greatest number of namespaces; 0 is any number.
	most   int
	ns     func(i int) string
	weight func(i, n int) int64
}{
	{"ns-N", 0, func(i int) string { return fmt.Sprintf("ns-%d", i) }, equally},
	{"team-NNN", 0, func(i int) string { return fmt.Sprintf("team-%03d", i) }, equally},
	{"customer", 0, func(i int) string { return fmt.Sprintf("customer-%06d-prod", i) }, equally},
	{"uuid", 0, seededUUID, equally},
	{"letters", 26, func(i int) string { return string(rune('a' + i)) }, func(int, int) int64 { return 1000 }},
	{"zipf", 0, func(i int) string { return fmt.Sprintf("ns-%d", i) }, func(i, _ int) int64 { return 10000 / int64(i+1) }},
	{"one-30%", 0, func(i int) string { return fmt.Sprintf("ns-%d", i) }, func(i, n int) int64 {
		if i == n/2 {
			return int64(n-1) * objects * 3 / 7
		}
		return objects
	}},
}

func equally(int, int) int64 { return objects }

func seededUUID(i int) string {
	r := rand.New(rand.NewPCG(uint64(i), 7))
	a, b := r.Uint64(), r.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>52, b&(1<<48-1))
}

// weightsOf returns the objects of n namespaces of the i-th scheme.
func weightsOf(i, n int) map[string]int64 {
	s := schemes[i]
	if s.most > 0 {
		n = min(n, s.most)
	}
	weights := map[string]int64{}
	for j := range n {
		weights[s.ns(j)] = s.weight(j, n)
	}
	return weights
}

// published returns the census as a fleet publishes it: at most 64 cells of each shard, merged.
func published(p Plan, full Census) Census {
	r, _ := p.Ring("namespaces")
	var parts []Census
	for _, s := range r.Shards {
		parts = append(parts, full.Within(s.Range).Compact(64))
	}
	return Merge(parts...)
}

// converged proposes until nothing is proposed, and returns the last plan and the sum of the
// changes.
func converged(t *testing.T, p Plan, full Census, members []string) (Plan, converging) {
	t.Helper()
	done := converging{}
	for done.rounds < 60 {
		next, found, err := Propose(p, "namespaces", Weights{Census: published(p, full)}, members, DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		if !found {
			return p, done
		}
		checkError(t, CheckSuccessor(p, next.Plan))
		p = next.Plan
		done = done.plus(next)
	}
	t.Fatalf("no end after %d rounds", done.rounds)
	return p, done
}

// converging sums up several proposals.
type converging struct {
	rounds     int
	moved, cut int64
}

func (c converging) plus(p Proposal) converging {
	return converging{c.rounds + 1, c.moved + p.Moved, c.cut + p.Cut}
}

func (c converging) per(total int64) string {
	return fmt.Sprintf("%3d rounds, moved %4.2f, cut %4.2f of all", c.rounds, float64(c.moved)/float64(total), float64(c.cut)/float64(total))
}

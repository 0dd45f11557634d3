package integration

import (
	"slices"
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestInformersLeaveNoGoroutines starts and stops three shards again and again, at rest and in the
// middle of their first lists.
func TestInformersLeaveNoGoroutines(t *testing.T) {
	ranges, err := shard.EqualRanges(3)
	if err != nil {
		t.Fatal(err)
	}
	builtIn := slices.DeleteFunc(slices.Clone(subjects), func(s subject) bool { return s.custom })
	var before int
	for round := range 6 {
		p := startProcess(t, "process", plane.AdminConfig(), ranges, builtIn)
		if round%2 == 0 {
			for _, c := range p.shards {
				eventually(t, c.synced)
			}
		}
		for len(p.shards) > 0 {
			p.stop(0)
		}
		if left := p.pool.Resources(); len(left) != 0 {
			t.Errorf("round %d: shared informers left running: %v", round, left)
		}
		if round == 0 {
			before = settled(t)
			continue
		}
		if after := settled(t); after > before+3 {
			t.Errorf("round %d: %d goroutines after all shards stopped, %d after the first round:\n%s", round, after, before, stacks())
		}
	}
}

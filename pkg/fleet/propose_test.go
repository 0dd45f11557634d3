package fleet

import (
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// drafting returns a planner whose last change was at now, and whose interval is five minutes.
func drafting(now time.Time) *planner {
	m := &Member{config: Config{Replanning: Replanning{Interval: 5 * time.Minute, Urgent: 1.5, Limits: shard.DefaultLimits()}}}
	return &planner{member: m, last: now, content: map[string]content{}, moved: map[shard.ID]time.Time{}, unplanned: map[string]string{}}
}

// lookout is what the planner sees of ranges with these homes and weights, each of them in ten
// namespaces, among these members.
func lookout(t *testing.T, homes string, weights []int64, carried map[string]int64, members ...string) outlook {
	t.Helper()
	plan := testPlan(t, len(homes))
	o := outlook{plan: plan, ring: plan.Rings[0], members: members, judgeable: true}
	for i := range o.ring.Shards {
		s := &o.ring.Shards[i]
		s.Home = homes[i : i+1]
		for k := range uint64(10) {
			o.weights.Census = append(o.weights.Census, shard.Cell{Hash: s.Range.Start + k, Weight: weights[i] / 10, Namespaces: 1})
		}
	}
	o.weights.Carried = carried
	return o
}

// TestRightlyWithoutRanges: c carries more than a fair share, and so has no range. A planner that
// has just begun does nothing about that, and so nothing for the weights of the others before the
// interval.
func TestRightlyWithoutRanges(t *testing.T) {
	now := time.Unix(1000, 0)
	carried := map[string]int64{"c": 20_000}
	o := lookout(t, "aaaabbbb", []int64{2000, 2000, 2000, 2000, 1500, 1500, 1500, 1500}, carried, "a", "b", "c")
	p := drafting(now)
	for _, after := range []time.Duration{0, time.Minute, 4 * time.Minute} {
		if c, worth := p.decide(t.Context(), o, now.Add(after)); worth {
			t.Errorf("after %v: %v, want nothing before the interval", after, c.Steps)
		}
	}
	c, worth := p.decide(t.Context(), o, now.Add(5*time.Minute))
	if !worth || c.forMembers {
		t.Fatalf("after the interval: %t %v, want moves for the weights", worth, c.Steps)
	}
	p.remember(c, now)
	o.plan, o.ring = c.Plan, c.Plan.Rings[0]
	// Another one does have room.
	o.members = []string{"a", "b", "c", "d"}
	c, worth = p.decide(t.Context(), o, now.Add(5*time.Minute))
	if after := c.Plan.Rings[0]; !worth || !c.forMembers || unsettled(after, o.members) != 1 {
		t.Errorf("for d: %t %v, want ranges at once, and still none for c", worth, c.Steps)
	}
}

// TestMovesForMembersDoNotRest: what a member was given because it has come may be taken from it
// again when that is too much; what it was given for its weight rests.
func TestMovesForMembersDoNotRest(t *testing.T) {
	now := time.Unix(1000, 0)
	p := drafting(now)
	o := lookout(t, "aaabbb", []int64{2000, 2000, 2000, 2000, 2000, 2000}, nil, "a", "b", "c")
	c, worth := p.decide(t.Context(), o, now)
	if !worth || !c.forMembers {
		t.Fatalf("for c: %t %v, want ranges at once", worth, c.Steps)
	}
	p.remember(c, now)
	if len(p.moved) > 0 {
		t.Errorf("%v rest, want nothing to", p.moved)
	}
	p.remember(change{Proposal: c.Proposal}, now)
	if len(p.moved) != len(c.Steps) {
		t.Errorf("%v rest, want all of %v to", p.moved, c.Steps)
	}
}

// TestErrorIsNoContent: where the planner fails, it tries again, also before the interval.
func TestErrorIsNoContent(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, test := range map[string]struct {
		weights []int64
		members []string
	}{
		"one came":        {[]int64{2000, 2000, 2000, 2000, 2000, 2000}, []string{"a", "b", "c"}},
		"they are uneven": {[]int64{6000, 2000, 2000, 500, 500, 500}, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := drafting(now)
			limits := p.member.config.Replanning.Limits
			p.member.config.Replanning.Limits.ShardsPerMember = 0
			o := lookout(t, "aaabbb", test.weights, nil, test.members...)
			if c, worth := p.decide(t.Context(), o, now); worth {
				t.Fatalf("%v by limits that cannot be", c.Steps)
			}
			p.member.config.Replanning.Limits = limits
			if _, worth := p.decide(t.Context(), o, now); !worth {
				t.Error("what could not be planned has been taken for good")
			}
		})
	}
}

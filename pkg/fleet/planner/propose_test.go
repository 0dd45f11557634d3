package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/flotilla-kube/flotilla/pkg/fleet/inforce"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// testPlan returns a plan with n equal ranges and a ring of groups.
func testPlan(t *testing.T, n int) shard.Plan {
	t.Helper()
	ranges, err := shard.EqualRanges(n)
	if err != nil {
		t.Fatal(err)
	}
	namespaced := shard.Ring{Name: "namespaces", Scope: shard.ScopeNamespaced, Controllers: []string{"job-controller"}}
	for i, r := range ranges {
		namespaced.Shards = append(namespaced.Shards, shard.Shard{ID: shard.ID{Ring: "namespaces", Name: fmt.Sprintf("%02d", i)}, Range: r})
	}
	cluster := shard.Ring{Name: "cluster", Scope: shard.ScopeCluster}
	for _, group := range []string{"garbage", "nodes"} {
		cluster.Shards = append(cluster.Shards, shard.Shard{ID: shard.ID{Ring: "cluster", Name: group}, Group: group, Controllers: []string{group + "-controller"}})
	}
	return shard.Plan{Generation: 1, Rings: []shard.Ring{namespaced, cluster}}
}

// newTestPlanner returns a planner whose last change was at now, and whose interval is five
// minutes.
func newTestPlanner(now time.Time) *Planner {
	c := Config{Replanning: Replanning{Interval: 5 * time.Minute, Urgent: 1.5, Limits: shard.DefaultLimits()}}
	return &Planner{config: c, last: now, content: map[string]content{}, moved: map[shard.ID]time.Time{}, unplanned: map[string]string{}}
}

// newOutlook returns the planner's view of ranges with these homes and weights, each in ten
// namespaces, among these members.
func newOutlook(t *testing.T, homes string, weights []int64, carried map[string]int64, members ...string) outlook {
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

// TestWhichUnansweredChangeCounts has two changes of the same generation that were not answered.
// Only the one in force counts; if a later plan is in force, either may have been before it.
func TestWhichUnansweredChangeCounts(t *testing.T) {
	now := time.Unix(1000, 0)
	change := func(n int, moved string, generation int64) change {
		plan := testPlan(t, n)
		plan.Generation = generation
		step := shard.Step{Kind: shard.StepSplit, Shard: shard.ID{Ring: "namespaces", Name: moved}}
		return change{Proposal: shard.Proposal{Plan: plan, Steps: []shard.Step{step}}}
	}
	later := testPlan(t, 8)
	later.Generation = 4
	for name, test := range map[string]struct {
		inForce   shard.Plan
		counted   string // names of shards
		remaining int
	}{
		"neither yet":     {testPlan(t, 2), "", 2},
		"the first":       {change(3, "", 2).Plan, "first", 0},
		"the second":      {change(4, "", 2).Plan, "second", 0},
		"somebody else's": {change(5, "", 2).Plan, "", 0},
		"a later one":     {later, "first second", 0},
	} {
		p := newTestPlanner(time.Time{})
		for range 3 {
			p.doubt(sent{change(3, "first", 2), now})
			p.doubt(sent{change(4, "second", 2), now})
		}
		p.answer(inforce.New(test.inForce))
		var counted []string
		for id := range p.moved {
			counted = append(counted, id.Name)
		}
		slices.Sort(counted)
		if got := strings.Join(counted, " "); got != test.counted || len(p.unanswered) != test.remaining || p.last.IsZero() != (test.counted == "") {
			t.Errorf("%s: %q counted, %d remain, last change at %v; want %q, %d", name, got, len(p.unanswered), p.last, test.counted, test.remaining)
		}
	}
}

// TestRefusedChangesAreForgotten checks that only writes that may have been carried out are
// remembered: a planner tries again every other second for as long as one is refused.
func TestRefusedChangesAreForgotten(t *testing.T) {
	lease := coordinationv1.Resource("leases")
	for err, want := range map[error]bool{
		apierrors.NewConflict(lease, "plan", errors.New("changed")):       false,
		apierrors.NewForbidden(lease, "plan", errors.New("a policy")):     false,
		apierrors.NewRequestEntityTooLargeError("3 MB"):                   false,
		fmt.Errorf("%w: %w", errUnsent, errors.New("it is too long")):     false,
		apierrors.NewServerTimeout(lease, "update", 1):                    true,
		apierrors.NewInternalError(errors.New("etcd has another leader")): true,
		context.DeadlineExceeded:                                          true,
	} {
		if got := isUnanswered(err); got != want {
			t.Errorf("%v: unanswered is %v, want %v", err, got, want)
		}
	}
}

// TestRightlyWithoutRanges tests a member, c, that carries more than a fair share and so has no
// range. A planner that has just begun must do nothing about that, and so nothing about the weights
// of the others before the interval.
func TestRightlyWithoutRanges(t *testing.T) {
	now := time.Unix(1000, 0)
	carried := map[string]int64{"c": 20_000}
	o := newOutlook(t, "aaaabbbb", []int64{2000, 2000, 2000, 2000, 1500, 1500, 1500, 1500}, carried, "a", "b", "c")
	p := newTestPlanner(now)
	for _, after := range []time.Duration{0, time.Minute, 4 * time.Minute} {
		if c, worth := p.decide(t.Context(), o, now.Add(after)); worth {
			t.Errorf("after %v: %v, want nothing before the interval", after, c.Steps)
		}
	}
	c, worth := p.decide(t.Context(), o, now.Add(5*time.Minute))
	if !worth || c.forMembers {
		t.Fatalf("after the interval: %t %v, want moves for the weights", worth, c.Steps)
	}
	p.count(c, now)
	o.plan, o.ring = c.Plan, c.Plan.Rings[0]
	// Another member does have room.
	o.members = []string{"a", "b", "c", "d"}
	c, worth = p.decide(t.Context(), o, now.Add(5*time.Minute))
	if after := c.Plan.Rings[0]; !worth || !c.forMembers || unsettled(after, o.members) != 1 {
		t.Errorf("for d: %t %v, want ranges at once, and still none for c", worth, c.Steps)
	}
}

// TestPinIsNotUrgent: a range that an operator has pinned is more than a fair share for its member.
// No plan changes that, so what the others have is not more urgent than otherwise, and rests.
func TestPinIsNotUrgent(t *testing.T) {
	now := time.Unix(1000, 0)
	o := newOutlook(t, "abbcc", []int64{10_000, 1000, 1000, 1000, 1500}, nil, "a", "b", "c")
	o.plan.Rings[0].Shards[0].Pin = "a"
	o.ring = o.plan.Rings[0]
	p := newTestPlanner(now)
	if c, worth := p.decide(t.Context(), o, now); worth {
		t.Errorf("%v, want nothing before the interval", c.Steps)
	}
	for _, s := range o.ring.Shards[3:] {
		p.moved[s.ID] = now
	}
	if c, worth := p.decide(t.Context(), o, now.Add(6*time.Minute)); worth {
		t.Errorf("%v, want nothing while what c has rests", c.Steps)
	}
	// Among the others there is something urgent.
	urgent := newOutlook(t, "abbcc", []int64{10_000, 400, 400, 2000, 2000}, nil, "a", "b", "c")
	urgent.plan.Rings[0].Shards[0].Pin = "a"
	urgent.ring = urgent.plan.Rings[0]
	if c, worth := newTestPlanner(now).decide(t.Context(), urgent, now); !worth {
		t.Errorf("%v, want a move from c to b at once", c.Steps)
	}
}

// TestMovesForMembersDoNotRest checks that shards that a member got because it joined may move
// again if they are too much. Shards that moved because of weights must rest.
func TestMovesForMembersDoNotRest(t *testing.T) {
	now := time.Unix(1000, 0)
	p := newTestPlanner(now)
	o := newOutlook(t, "aaabbb", []int64{2000, 2000, 2000, 2000, 2000, 2000}, nil, "a", "b", "c")
	c, worth := p.decide(t.Context(), o, now)
	if !worth || !c.forMembers {
		t.Fatalf("for c: %t %v, want ranges at once", worth, c.Steps)
	}
	p.count(c, now)
	if len(p.moved) > 0 {
		t.Errorf("%v rest, want none", p.moved)
	}
	p.count(change{Proposal: c.Proposal}, now)
	if len(p.moved) != len(c.Steps) {
		t.Errorf("%v rest, want all of %v", p.moved, c.Steps)
	}
}

// TestErrorIsNoContent checks that the planner tries again after an error, even before the
// interval.
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
			p := newTestPlanner(now)
			limits := p.config.Replanning.Limits
			p.config.Replanning.Limits.ShardsPerMember = 0
			o := newOutlook(t, "aaabbb", test.weights, nil, test.members...)
			if c, worth := p.decide(t.Context(), o, now); worth {
				t.Fatalf("%v with impossible limits", c.Steps)
			}
			p.config.Replanning.Limits = limits
			if _, worth := p.decide(t.Context(), o, now); !worth {
				t.Error("a failed attempt was recorded as good")
			}
		})
	}
}

// TestUnsettled checks that members without a shard, and shards of members that are gone, do not
// wait for the planner's interval. A pin to a drained member does wait. Otherwise the planner would
// act on the weights at every look for as long as the pin exists.
func TestUnsettled(t *testing.T) {
	ab := []string{"a", "b"}
	for name, test := range map[string]struct {
		shards []shard.Shard
		want   int
	}{
		"no homes yet":            {[]shard.Shard{{}, {}}, 0},
		"as it is to be":          {[]shard.Shard{{Home: "b"}, {Home: "a"}, {Home: "a"}}, 0},
		"one has come":            {[]shard.Shard{{Home: "a"}, {Home: "a"}}, 1},
		"one has gone":            {[]shard.Shard{{Home: "a"}, {Home: "b"}, {Home: "c"}}, 1},
		"one came, one has gone":  {[]shard.Shard{{Home: "a"}, {Home: "c"}, {Home: "c"}}, 3},
		"a pin is a shard":        {[]shard.Shard{{Home: "a"}, {Pin: "b", Home: "a"}}, 0},
		"a pin to one that went":  {[]shard.Shard{{Home: "a"}, {Home: "b"}, {Pin: "c", Home: "a"}}, 0},
		"under the pin, long ago": {[]shard.Shard{{Home: "a"}, {Pin: "b", Home: "c"}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := unsettled(shard.Ring{Shards: test.shards}, ab); got != test.want {
				t.Errorf("%d unsettled, want %d", got, test.want)
			}
		})
	}
}

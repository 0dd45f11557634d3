package fleet

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/fleet/planner"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Weigh implements Weigher with the test's numbers of objects.
func (c *fakeWork) Weigh() map[string]int64 {
	c.fleet.mu.Lock()
	defer c.fleet.mu.Unlock()
	weights := map[string]int64{}
	for namespace, weight := range c.fleet.weights {
		if !strings.HasPrefix(namespace, "group ") && c.work.Shard.Range.ContainsNamespace(namespace) {
			weights[namespace] = weight
		}
	}
	return weights
}

// Load implements Loader: 100 bytes for each object, and the test's weight for a group.
func (c *fakeWork) Load() (Load, bool) {
	load := Load{Namespaces: c.Weigh()}
	c.fleet.mu.Lock()
	defer c.fleet.mu.Unlock()
	for namespace := range load.Namespaces {
		load.Namespaces[namespace] *= 100
	}
	if !c.work.Shard.Namespaced() {
		load = Load{Shared: 100 * c.fleet.weights["group "+c.work.Shard.Group]}
	}
	return load, c.fleet.weights != nil
}

// loads returns the weight that each member works on, and the maximum divided by the mean.
func (s *testFleet) loads() (map[string]int64, float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	loads, total, most := map[string]int64{}, int64(0), int64(0)
	for id, w := range s.workers {
		if id.Ring != "namespaces" {
			weight := s.weights["group "+id.Name]
			loads[leaserecord.MemberOf(w.incarnation)] += weight
			total += weight
			continue
		}
		for namespace, weight := range s.weights {
			if !strings.HasPrefix(namespace, "group ") && w.extent.Range.ContainsNamespace(namespace) {
				loads[leaserecord.MemberOf(w.incarnation)] += weight
				total += weight
			}
		}
	}
	for _, load := range loads {
		most = max(most, load)
	}
	return loads, float64(most) * float64(len(loads)) / float64(max(total, 1))
}

// known makes the plan that the fleet has made for itself the test's plan.
func (s *testFleet) known(t *testing.T) shard.Plan {
	t.Helper()
	plan, err := leaseapi.PlanOn(s.store.Get(leaseapi.PlanLease("flotilla")))
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan = plan
	return plan
}

// TestPlannerBalances uses namespaces whose names lie in half of the equal ranges, and requires
// that their weight becomes even. Then a member joins, and one leaves. While there is nothing to do
// the plan must not change.
func TestPlannerBalances(t *testing.T) {
	if testing.Short() {
		t.Skip("left out: hours of planning for 1,000 namespaces")
	}
	inBubble(t, 16, func(t *testing.T, s *testFleet) {
		s.weights = map[string]int64{}
		for i := range 1000 {
			s.weights[fmt.Sprintf("ns-%d", i)] = 20
		}
		const interval = time.Minute
		replanning := func(c *Config) {
			c.Replanning = planner.Replanning{Interval: interval}
			c.CensusInterval = 30 * time.Second
		}
		for _, name := range []string{"a", "b", "c"} {
			s.launch(name, replanning)
		}
		pass(interval)
		loads, before := s.loads()
		t.Logf("equal ranges: %v, max/mean %.2f", loads, before)
		pass(20 * interval)
		plan := s.known(t)
		s.requireWorked()
		loads, after := s.loads()
		t.Logf("generation %d, %d shards: %v, max/mean %.2f", plan.Generation, len(plan.Shards()), loads, after)
		if after > 1.10 {
			t.Errorf("max/mean is %.2f, want at most 1.10", after)
		}
		if rounds := plan.Generation - 1; rounds < 1 || rounds > 12 {
			t.Errorf("%d rounds of planning, want a few", rounds)
		}
		pass(time.Hour)
		if again := s.known(t); again.Generation != plan.Generation {
			t.Errorf("generation %d became %d while nothing happened", plan.Generation, again.Generation)
		}
		d := s.launch("d", replanning)
		pass(30 * interval)
		s.known(t)
		s.requireWorked()
		loads, after = s.loads()
		t.Logf("a member more: %v, max/mean %.2f", loads, after)
		if len(loads) != 4 || after > 1.10 {
			t.Errorf("max/mean of %d members is %.2f, want 4 and at most 1.10", len(loads), after)
		}
		d.stop()
		<-d.ended
		pass(30 * interval)
		s.known(t)
		s.requireWorked()
		loads, after = s.loads()
		t.Logf("and one less: %v, max/mean %.2f", loads, after)
		if len(loads) != 3 || after > 1.10 {
			t.Errorf("max/mean of %d members is %.2f, want 3 and at most 1.10", len(loads), after)
		}
	})
}

// TestPlannerWeighsGroups uses a group as heavy as a quarter of everything. Its member must have
// few ranges, and ranges must give way at once where the group moves. After that nothing must move.
func TestPlannerWeighsGroups(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		s.plan.Rings[1].Shards[0].ColocateWith = "nodes" // garbage
		s.weights = map[string]int64{"group nodes": 3000}
		for i := range 300 {
			s.weights[fmt.Sprintf("team-%03d", i)] = 30
		}
		replanning := func(c *Config) {
			c.Replanning, c.CensusInterval = planner.Replanning{Interval: time.Hour}, time.Minute
		}
		processes := map[string]*process{}
		for _, name := range []string{"a", "b", "c", "d"} {
			processes[name] = s.launch(name, replanning)
		}
		check := func(when string) string {
			t.Helper()
			plan := s.known(t)
			s.requireWorked()
			loads, ratio := s.loads()
			has := leaserecord.MemberOf(leaserecord.From(s.store.Get("flotilla-cluster-nodes")).Holder)
			t.Logf("%s: generation %d, nodes is on %s: %v, max/mean %.2f", when, plan.Generation, has, loads, ratio)
			if ratio > 1.5 || len(loads) != 4 || loads[has] > 4500 {
				t.Errorf("%s: max/mean is %.2f, %v, want at most 1.5 before the interval", when, ratio, loads)
			}
			return has
		}
		pass(5 * time.Minute)
		has := check("after five minutes")
		pass(20 * time.Minute)
		before := s.known(t).Generation
		pass(20 * time.Minute)
		if after := s.known(t).Generation; after != before {
			t.Errorf("generation %d became %d while nothing happened", before, after)
		}
		processes[has].stop()
		<-processes[has].ended
		pass(time.Minute)
		processes[has] = s.launch(has, replanning)
		pass(10 * time.Minute)
		if now := check("after a restart"); now == has {
			t.Errorf("the group is on %s again, it was to stay where it went", now)
		}
	})
}

// TestPlannerLetsShardsRest lets weights drift up and down, never far. A namespace that was moved
// because of its weight must stay for an hour.
func TestPlannerLetsShardsRest(t *testing.T) {
	if testing.Short() {
		t.Skip("left out: hours of planning")
	}
	inBubble(t, 16, func(t *testing.T, s *testFleet) {
		r := rand.New(rand.NewPCG(1, 2))
		s.weights = map[string]int64{}
		drift := func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			for i := range 50 {
				s.weights[fmt.Sprintf("team-%03d", i)] = 50 + r.Int64N(300)
			}
		}
		drift()
		for _, name := range []string{"a", "b", "c"} {
			s.launch(name, func(c *Config) {
				c.Replanning, c.CensusInterval = planner.Replanning{Interval: 5 * time.Minute}, time.Minute
			})
		}
		pass(2 * time.Hour)
		began, has, moved, moves := time.Now(), map[string]string{}, map[string]time.Time{}, 0
		for time.Since(began) < 4*time.Hour {
			drift()
			for range 10 {
				pass(time.Minute)
				for id, w := range s.working() {
					for i := range 50 {
						namespace := fmt.Sprintf("team-%03d", i)
						if id.Ring != "namespaces" || !w.extent.Range.ContainsNamespace(namespace) || has[namespace] == w.incarnation {
							continue
						}
						if last, was := moved[namespace]; was && time.Since(last) < time.Hour-time.Minute {
							t.Errorf("%s moved to %s, and again to %s %v later", namespace, has[namespace], w.incarnation, time.Since(last))
						}
						if has[namespace] != "" {
							moved[namespace] = time.Now()
							moves++
						}
						has[namespace] = w.incarnation
					}
				}
			}
			if _, ratio := s.loads(); ratio > 1.5 {
				t.Errorf("max/mean is %.2f, want 1.5 at most", ratio)
			}
		}
		if moves < 5 {
			t.Errorf("%d moves in four hours, want 5 or more", moves)
		}
	})
}

// silentPlans are Leases whose server makes changes of plan and does not answer.
type silentPlans struct {
	Leases
	lost *atomic.Int32
}

func (l silentPlans) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	plan, planErr := leaseapi.PlanOn(lease)
	before, err := l.Get(ctx, lease.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	written, err := l.Leases.Update(ctx, lease, o)
	if was, wasErr := leaseapi.PlanOn(before); err != nil || planErr != nil || wasErr != nil || was.Generation == plan.Generation {
		return written, err
	}
	l.lost.Add(1)
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestUnansweredChangeCounts loses the answer to every change of plan. The planner must wait its
// interval after each, as it does after an answer.
func TestUnansweredChangeCounts(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		s.weights = map[string]int64{}
		for i := range 500 {
			s.weights[fmt.Sprintf("team-%03d", i)] = 20
		}
		const interval = time.Minute
		var lost atomic.Int32
		for _, name := range []string{"a", "b", "c"} {
			s.launch(name, func(c *Config) {
				c.Replanning, c.CensusInterval = planner.Replanning{Interval: interval, Urgent: math.Inf(1)}, 10*time.Second
				c.Leases = silentPlans{c.Leases, &lost}
			})
		}
		pass(10 * interval)
		var last time.Time
		for _, write := range s.store.History() {
			if write.Before == nil || write.After == nil || write.After.Name != leaseapi.PlanLease("flotilla") ||
				write.Before.Annotations[leaseapi.DocumentAnnotation] == write.After.Annotations[leaseapi.DocumentAnnotation] {
				continue
			}
			if since := write.Time.Sub(last); since < interval {
				t.Errorf("a change came %v after the one before, want %v or more", since, interval)
			}
			last = write.Time
		}
		if lost.Load() < 2 {
			t.Errorf("%d changes of plan, want 2 or more", lost.Load())
		}
	})
}

// TestPlannerDies kills the planner between its changes: another must go on.
func TestPlannerDies(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		s.weights = map[string]int64{}
		for i := range 500 {
			s.weights[fmt.Sprintf("team-%03d", i)] = 20
		}
		processes := map[string]*process{}
		for _, name := range []string{"a", "b", "c"} {
			processes[name] = s.launch(name, func(c *Config) {
				c.Replanning, c.CensusInterval = planner.Replanning{Interval: 30 * time.Second}, 10*time.Second
			})
		}
		pass(time.Minute)
		for range 3 {
			holder := leaserecord.MemberOf(leaserecord.From(s.store.Get(leaseapi.PlanLease("flotilla"))).Holder)
			before := s.known(t).Generation
			processes[holder].client.Block()
			pass(20 * time.Second)
			processes[holder].client.Unblock()
			<-processes[holder].ended
			processes[holder] = s.launch(holder, func(c *Config) {
				c.Replanning, c.CensusInterval = planner.Replanning{Interval: 30 * time.Second}, 10*time.Second
			})
			pass(2 * time.Minute)
			t.Logf("planner %s died: generation %d became %d", holder, before, s.known(t).Generation)
		}
		pass(10 * time.Minute)
		s.known(t)
		s.requireWorked()
		if loads, ratio := s.loads(); ratio > 1.10 {
			t.Errorf("max/mean is %.2f: %v", ratio, loads)
		}
	})
}

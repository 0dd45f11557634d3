package fleet

import (
	"fmt"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/fleet/planner"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// planned launches a, b and c with equal shares of 300 namespaces. It returns them with the plan
// and the planner's name.
func (s *testFleet) planned(t *testing.T, replanning func(*Config)) (processes map[string]*process, plan shard.Plan, planner string) {
	t.Helper()
	s.weights = map[string]int64{}
	for i := range 300 {
		s.weights[fmt.Sprintf("team-%03d", i)] = 10
	}
	names := []string{"a", "b", "c"}
	for i := range s.plan.Rings[0].Shards {
		s.plan.Rings[0].Shards[i].Home = names[i%len(names)]
	}
	processes = map[string]*process{}
	for _, name := range names {
		processes[name] = s.launch(name, replanning)
	}
	pass(10 * time.Minute)
	return processes, s.known(t), leaserecord.MemberOf(leaserecord.From(s.store.Get(leaseapi.PlanLease("flotilla"))).Holder)
}

func rarely(c *Config) {
	c.Replanning, c.CensusInterval = planner.Replanning{Interval: 24 * time.Hour}, time.Minute
}

// otherThan returns a member with another name.
func otherThan(name string) string {
	if name == "a" {
		return "b"
	}
	return "a"
}

// TestRestartLeavesThePlan checks that the plan stays the same when a member is away for a while
// and then waits for its shards.
func TestRestartLeavesThePlan(t *testing.T) {
	inBubble(t, 9, func(t *testing.T, s *testFleet) {
		processes, before, planner := s.planned(t, rarely)
		away := otherThan(planner)
		processes[away].stop()
		<-processes[away].ended
		pass(5 * time.Minute)
		processes[away] = s.launch(away, func(c *Config) { rarely(c); c.RebalanceDelay = time.Minute })
		pass(5 * time.Minute)
		if now := s.known(t).Generation; now != before.Generation {
			t.Errorf("generation %d became %d because %s was restarted", before.Generation, now, away)
		}
		s.requireWorked()
	})
}

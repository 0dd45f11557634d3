package fleet

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/fleet/planner"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// canaryOf returns a canary of the version that [testFleet.withVersion] calls "v1.38.0".
func canaryOf(namespaces ...string) *shard.Canary {
	return &shard.Canary{Version: "v1.38.0", Namespaces: namespaces, Since: "2026-11-24T08:50:00Z"}
}

// withVersion gives a member a version, always with the same controllers, and makes it plan often.
func (s *testFleet) withVersion(version string) func(*Config) {
	build := buildOf(1)
	build.Version = version
	plan := planOf(s.t, 1, s.plan)
	return func(c *Config) {
		c.Catalogue, c.Plan = build, plan
		c.Replanning, c.CensusInterval = planner.Replanning{Interval: 20 * time.Second}, 10*time.Second
	}
}

// setCanary puts a canary into the plan or replaces it; nil promotes it.
func (s *testFleet) setCanary(canary *shard.Canary) shard.Plan {
	s.t.Helper()
	current := must(leaseapi.PlanOn(s.store.Get(leaseapi.PlanLease("flotilla"))))
	edited := assignment.KeepHomes(current, "namespaces", s.holder)
	if canary == nil {
		edited = edited.Promoted(s.holder)
	} else {
		edited.Canary = canary
	}
	next := must(current.Successor(edited))
	s.apply(next)
	return next
}

func (s *testFleet) holder(id shard.ID) string {
	return leaserecord.MemberOf(leaserecord.From(s.store.Get(leaseapi.ShardLease("flotilla", id))).Holder)
}

// has returns what a member works on: "team-a" if the shard is the canary's for that namespace,
// otherwise the shard.
func (s *testFleet) has(member string, plan shard.Plan) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var has []string
	for id, w := range s.workers {
		if leaserecord.MemberOf(w.incarnation) != member {
			continue
		}
		what := id.String()
		for _, name := range []string{"team-a", "team-b"} {
			if hash := shard.Hash(name); w.extent.Range == (shard.Range{Start: hash, End: hash + 1}) {
				what = name
			}
		}
		has = append(has, what)
	}
	slices.Sort(has)
	return has
}

// outside starts a continuous check whether the member works on anything that is not allowed. It
// returns a function that ends the check and returns what it found.
func (s *testFleet) outside(member string, allowed ...string) (seen func() []string) {
	stop, ended, found := make(chan struct{}), make(chan struct{}), map[string]bool{}
	go func() {
		defer close(ended)
		for {
			for _, what := range s.has(member, s.plan) {
				if !slices.Contains(allowed, what) {
					found[what] = true
				}
			}
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() []string {
		close(stop)
		<-ended
		return slices.Sorted(maps.Keys(found))
	}
}

// replace restarts the member with another version. It calls between, if not nil, when the member
// has ended.
func (s *testFleet) replace(processes map[string]*process, name, version string, between func()) {
	s.t.Helper()
	processes[name].stop()
	<-processes[name].ended
	if between != nil {
		between()
	}
	processes[name] = s.launch(name, s.withVersion(version))
	pass(90 * time.Second)
	if err := processes[name].Ready(); err != nil {
		s.t.Errorf("%s of version %s does not get ready: %v", name, version, err)
	}
}

// TestCanary tries a version on two namespaces while the planner would like to move shards, and
// promotes or aborts it.
func TestCanary(t *testing.T) {
	for _, promote := range []bool{true, false} {
		t.Run(fmt.Sprintf("promoted %t", promote), func(t *testing.T) {
			inBubble(t, 6, func(t *testing.T, s *testFleet) {
				s.weights = map[string]int64{"team-a": 50, "team-b": 300}
				for i := range 200 {
					s.weights[fmt.Sprintf("ns-%d", i)] = 20
				}
				processes := map[string]*process{}
				for _, name := range []string{"a", "b", "c"} {
					processes[name] = s.launch(name, s.withVersion("v1.37.0"))
				}
				pass(10 * time.Minute)
				w := s.watch("job-controller", "garbage-controller", "nodes-controller")
				s.setCanary(canaryOf("team-a", "team-b"))
				pass(time.Minute)
				s.allHeld("a", "b", "c") // no member has the version yet
				var seen func() []string
				s.replace(processes, "c", "v1.38.0", func() { seen = s.outside("c", "team-a", "team-b") })
				if has := fmt.Sprint(s.has("c", s.plan)); has != "[team-a team-b]" {
					t.Errorf("c has %v, want the canary's namespaces", has)
				}
				generation := s.plan.Generation
				s.mu.Lock()
				for i := range 200 {
					s.weights[fmt.Sprintf("more-%d", i)] = 50
				}
				s.mu.Unlock()
				pass(30 * time.Minute)
				if now := s.known(t); now.Generation != generation {
					t.Errorf("generation %d became %d while the canary runs", generation, now.Generation)
				}
				if planner := leaserecord.MemberOf(s.holderOf(leaseapi.PlanLease("flotilla"))); planner == "c" {
					t.Error("the planner is c, which has the canary's version")
				}
				w.require(2 * time.Second)
				if outside := seen(); len(outside) > 0 {
					t.Errorf("c has had %v before the canary was promoted", outside)
				}

				if !promote {
					aborted := canaryOf("team-a", "team-b")
					aborted.Aborted = true
					generation := s.setCanary(aborted).Generation
					pass(20 * time.Second)
					seen := s.outside("c")
					pass(10 * time.Minute)
					if outside := seen(); len(outside) > 0 {
						t.Errorf("c has %v after the canary was aborted", outside)
					}
					if now := s.known(t); now.Generation != generation {
						t.Errorf("generation %d became %d while c is there", generation, now.Generation)
					}
					if err := processes["c"].Ready(); err != nil {
						t.Errorf("c should have nothing, but is not ready: %v", err)
					}
					s.replace(processes, "c", "v1.37.0", nil)
					if pass(10 * time.Minute); s.known(t).Generation == generation {
						t.Error("the planner still rests after c has been rolled back")
					}
					s.allHeld("a", "b", "c")
					return
				}
				s.setCanary(nil)
				pass(20 * time.Second)
				if has := s.has("c", s.plan); len(has) < 3 || !slices.Contains(has, "team-a") || !slices.Contains(has, "team-b") {
					t.Errorf("c has %v, want its share and the canary's namespaces", has)
					t.Log(must(s.known(t).Document()))
				}
				pass(10 * time.Minute)
				s.replace(processes, "b", "v1.38.0", nil)
				s.replace(processes, "a", "v1.38.0", nil)
				s.known(t)
				s.allHeld("a", "b", "c")
				w.require(2 * time.Second)
			})
		})
	}
}

// TestCanaryDies checks that liveness precedes the version. The canary's namespaces go to others
// when its only member dies, and come back with it. When all others die, it has everything.
func TestCanaryDies(t *testing.T) {
	inBubble(t, 6, func(t *testing.T, s *testFleet) {
		processes := map[string]*process{}
		for name, version := range map[string]string{"a": "v1.37.0", "b": "v1.37.0", "c": "v1.38.0"} {
			processes[name] = s.launch(name, s.withVersion(version))
		}
		pass(2 * time.Minute)
		s.setCanary(canaryOf("team-a"))
		pass(time.Minute)
		if has := fmt.Sprint(s.has("c", s.plan)); has != "[team-a]" {
			t.Errorf("c has %v, want the canary's namespaces", has)
		}
		die := func(names ...string) {
			for _, name := range names {
				processes[name].client.Block()
			}
			pass(40 * time.Second)
		}
		die("c")
		s.allHeld("a", "b")
		processes["c"] = s.launch("c", s.withVersion("v1.38.0"))
		pass(2 * time.Minute)
		if has := fmt.Sprint(s.has("c", s.plan)); has != "[team-a]" {
			t.Errorf("c is back and has %v, want the canary's namespaces", has)
		}
		die("a", "b")
		s.allHeld("c")
		processes["a"] = s.launch("a", s.withVersion("v1.37.0"))
		pass(2 * time.Minute)
		if has := fmt.Sprint(s.has("c", s.plan)); has != "[team-a]" {
			t.Errorf("a is back, and c has %v, want the canary's namespaces", has)
		}
	})
}

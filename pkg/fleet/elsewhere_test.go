package fleet

import (
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestMovesElsewhere checks how often a member computes the assignment again: at once when a Lease
// of its own shards changes, and about once a second when shards move between others.
func TestMovesElsewhere(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		processes := map[string]*process{}
		for _, name := range []string{"a", "b"} {
			processes[name] = s.launch(name, nil)
		}
		pass(2 * time.Minute)
		a := processes["a"]
		var own, others shard.ID
		for _, sh := range s.plan.Shards() {
			if a.Assignment().Owner(sh.ID) == "a" {
				own = sh.ID
			} else {
				others = sh.ID
			}
		}
		// touch changes an annotation of a shard's Lease that may move shards.
		changes := 100
		touch := func(id shard.ID) {
			changes++
			s.store.Tamper(leaseapi.ShardLease("flotilla", id), func(l *coordinationv1.Lease) {
				l.Annotations[leaseapi.GenerationAnnotation] = strconv.Itoa(changes)
			})
			synctest.Wait()
		}
		last := a.assignment.Load()
		computed := func() bool {
			before := last
			last = a.assignment.Load()
			return last != before
		}
		for range 3 {
			pass(1001 * time.Millisecond)
			touch(others) // a looks at once, and for a second only at what concerns it
			pass(100 * time.Millisecond)
			computed()
			touch(others)
			if computed() {
				t.Errorf("a Lease of another's %s has changed twice, and a has looked at once", others)
			}
			touch(own)
			if !computed() {
				t.Errorf("a Lease of a's %s has changed, and a has not looked at it", own)
			}
		}
		times := 0
		var seen *assignment.Assignment
		for range 500 {
			touch(others)
			pass(10 * time.Millisecond)
			if now := a.assignment.Load(); now != seen {
				seen, times = now, times+1
			}
		}
		if times < 4 || times > 12 {
			t.Errorf("a computed %d assignments in 5 s in which a Lease of another's %s changed 500 times, want about 5", times, others)
		}
		touch(others)
		computed()
		pass(1001 * time.Millisecond)
		if !computed() {
			t.Errorf("a has not looked at the last change of another's %s for a second", others)
		}
	})
}

// TestConcerns checks which Leases a member looks at as soon as they change.
func TestConcerns(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		locks := []string{"autoscaler", "cluster-garbage"}
		a := s.launch("a", func(c *Config) { c.LeaderLocks = locks })
		s.launch("b", func(c *Config) { c.LeaderLocks = locks })
		pass(2 * time.Minute)
		owned := func(by string) shard.ID {
			for _, sh := range s.plan.Shards() {
				if sh.Namespaced() && a.Assignment().Owner(sh.ID) == by {
					return sh.ID
				}
			}
			t.Fatalf("%s owns no range", by)
			return shard.ID{}
		}
		own, others := leaseapi.ShardLease("flotilla", owned("a")), leaseapi.ShardLease("flotilla", owned("b"))
		holder := a.observer.Get(others).Holder
		lease := func(name, holder, next string) election.Observation {
			o := election.Observation{Exists: true}
			o.Name, o.Holder = name, holder
			if next != "" {
				o.Annotations = map[string]string{leaserecord.NextHolderAnnotation: next}
			}
			return o
		}
		gone := func(name string) election.Observation {
			o := lease(name, "", "")
			o.Exists = false
			return o
		}
		for _, c := range []struct {
			what  string
			lease election.Observation
			want  bool
		}{
			{"its own", lease(own, a.incarnation, ""), true},
			{"one that it should own", lease(own, holder, ""), true},
			{"one that nobody holds and it should own", lease(own, "", ""), true},
			{"one that it holds and another should own", lease(others, a.incarnation, ""), true},
			{"one that an earlier incarnation holds", lease(others, "a_0", ""), true},
			{"one that it has asked for", lease(others, holder, a.incarnation), true},
			{"another's", lease(others, holder, ""), false},
			{"another's that a third asks for", lease(others, holder, "c_1"), false},
			{"another's, released", lease(others, "", ""), false},
			{"its own, deleted", gone(own), true},
			{"another's, deleted", gone(others), false},
			{"a shard that is not in the plan", lease("flotilla-namespaces-99", holder, ""), true},
			{"the plan's", lease(leaseapi.PlanLease("flotilla"), holder, ""), true},
			{"a member's", lease(leaserecord.MemberLease("flotilla", "b"), holder, ""), true},
			{"a leader lock", lease(locks[0], "flotilla_fleet", ""), true},
			{"a leader lock with the name of a shard", lease(locks[1], "flotilla_fleet", ""), true},
		} {
			if got := a.concerns(c.lease); got != c.want {
				t.Errorf("%s: %v, want %v", c.what, got, c.want)
			}
		}
		a.retiring.Store(true)
		if !a.concerns(lease(others, holder, "")) {
			t.Error("another's, while a has a shard that is retiring: false, want true")
		}
		holders, named := holders(a.inForce.Load(), a.snapshotOf([]election.Observation{lease(locks[1], "flotilla_fleet", "")}, a.config.Clock.Now()))
		if len(holders) != 0 || len(named) != 0 {
			t.Errorf("a leader lock counts as the Lease of a shard: %v, %v", holders, named)
		}
	})
}

// TestRetiringShardsDrainAtOnce splits a range whose parts go to another member. The holder must look
// at once when they are ready: they wait for it.
func TestRetiringShardsDrainAtOnce(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		a := s.launch("a", nil)
		s.launch("b", nil)
		pass(2 * time.Minute)
		i := slices.IndexFunc(s.plan.Rings[0].Shards, func(sh shard.Shard) bool { return a.Assignment().Owner(sh.ID) == "a" })
		s.apply(s.next(func(r *shard.Ring) {
			split(r, i)
			r.Shards[i].Pin, r.Shards[i+1].Pin = "b", "b"
		}))
		pass(time.Minute)
		s.mu.Lock()
		defer s.mu.Unlock()
		parts := 0
		for _, e := range s.events {
			if e.Acquisition == nil || e.Acquisition.Reason != ReasonPlan {
				continue
			}
			parts++
			if waited := e.Acquisition.Phases[PhaseAsk]; waited != 100*time.Millisecond {
				t.Errorf("%s waited %v from when it was ready until the work of a, which takes 100 ms to stop, had ended", e.ID, waited)
			}
		}
		if parts != 2 {
			t.Errorf("%d parts have succeeded, want 2", parts)
		}
	})
}

// TestJoiningMembersAssignNothing checks that a member computes no assignment while it joins, unless
// nobody else is active.
func TestJoiningMembersAssignNothing(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		a := s.launch("a", nil)
		pass(2 * time.Second)
		if got := a.Assignment().Members(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("a is alone and assigns to %v", got)
		}
		b := s.launch("b", nil)
		pass(delay - time.Second)
		if got := b.Assignment().Members(); got != nil {
			t.Errorf("b is joining and assigns to %v", got)
		}
		pass(2 * time.Second)
		if got := b.Assignment().Members(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("b is active and assigns to %v", got)
		}
		a.die() // while c joins
		b.die()
		c := s.launch("c", nil)
		pass(time.Minute)
		if got := c.Assignment().Members(); !slices.Equal(got, []string{"c"}) {
			t.Errorf("c is the only one left and assigns to %v", got)
		}
		s.requireWorked()
	})
}

package fleet

import (
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// joins waits until a launched member has its Lease, which takes a second or two.
func (s *testFleet) joins(name string) {
	for i := 0; i < 100 && s.store.Get(leaserecord.MemberLease("flotilla", name)) == nil; i++ {
		pass(100 * time.Millisecond)
	}
}

// drain drains a member as an operator does; an empty value ends the drain.
func (s *testFleet) drain(member, value string) {
	s.t.Helper()
	if !s.store.Tamper(leaserecord.MemberLease("flotilla", member), func(l *coordinationv1.Lease) {
		if l.Annotations[leaseapi.DrainAnnotation] = value; value == "" {
			delete(l.Annotations, leaseapi.DrainAnnotation)
		}
	}) {
		s.t.Fatalf("%s has no Lease", member)
	}
}

// TestDrain moves all shards away from a member and back, as planned moves, and restarts the member
// in between.
func TestDrain(t *testing.T) {
	inBubble(t, 16, func(t *testing.T, s *testFleet) {
		s.launch("a", nil)
		s.launch("b", nil)
		c := s.launch("c", nil)
		pass(time.Minute)
		s.allHeld("a", "b", "c")
		before := s.lost()

		s.drain("c", "today")
		pass(20 * time.Second)
		s.allHeld("a", "b")
		if err := c.Ready(); err != nil {
			t.Errorf("a drained member that holds nothing is not ready: %v", err)
		}

		c.stop()
		<-c.ended
		c = s.launch("c", nil)
		pass(time.Minute)
		s.allHeld("a", "b")
		if err := c.Ready(); err != nil {
			t.Errorf("a drained member is not ready after a restart: %v", err)
		}

		s.drain("c", "")
		pass(time.Minute)
		s.allHeld("a", "b", "c")
		if lost := s.lost() - before; lost != 0 {
			t.Errorf("the drain lost %d claims, want planned moves only", lost)
		}
	})
}

// lost counts the claims that did not end as planned.
func (s *testFleet) lost() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, e := range s.events {
		if e.Type == election.EventEnded && !e.Reason.Planned() {
			n++
		}
	}
	return n
}

// TestDrainOfAll checks that the shards stay where they are: drained owners are better than none.
func TestDrainOfAll(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		s.launch("a", nil)
		s.launch("b", nil)
		pass(time.Minute)
		s.drain("a", "x")
		s.drain("b", "x")
		pass(time.Minute)
		s.allHeld("a", "b")
	})
}

func TestServersOfLeavesOutDrained(t *testing.T) {
	member := func(name, rings, drain string) membership.Member {
		return membership.Member{Name: name, Annotations: map[string]string{leaseapi.RingsAnnotation: rings, leaseapi.DrainAnnotation: drain}}
	}
	members := []membership.Member{member("a", "", "x"), member("b", "cluster", ""), member("c", "", "")}
	for ring, want := range map[string]string{"cluster": "[b c]", "namespaces": "[c]"} {
		if got := leaseapi.ServersOf(members, ring); fmt.Sprint(got) != want {
			t.Errorf("ring %s: %v, want %s", ring, got, want)
		}
	}
	if got := fmt.Sprint(leaseapi.ServersOf(members[:2], "namespaces")); got != "[a]" {
		t.Errorf("where only a drained member serves the ring: %s, want [a]", got)
	}
}

// TestLive tests a loop that turns, and one that stands still.
func TestLive(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, s *testFleet) {
		a := s.launch("a", nil)
		for range 10 {
			pass(17 * time.Second)
			if err := a.Live(); err != nil {
				t.Fatal(err)
			}
		}
		s.allHeld("a")
		if a.watchdog.last.Load() == nil {
			t.Fatal("no watchdog watches the member's loop")
		}
		a.client.Block() // an unreachable API server is no reason to end the process by its probe
		pass(9 * time.Second)
		if err := a.Live(); err != nil {
			t.Error(err)
		}
		a.client.Unblock()

		var p watchdog
		timing := election.DefaultTiming()
		if err := p.check(a.config.Clock, timing); err != nil {
			t.Errorf("where no loop turns: %v", err)
		}
		p.feed(a.config.Clock.Now())
		pass(3 * timing.LeaseDuration)
		if err := p.check(a.config.Clock, timing); err != nil {
			t.Error(err)
		}
		pass(time.Second)
		if p.check(a.config.Clock, timing) == nil {
			t.Error("a loop that has stood still for longer than three lease durations counts as live")
		}
	})
}

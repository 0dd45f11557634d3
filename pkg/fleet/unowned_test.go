package fleet

import (
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// acquisition returns the last acquisition of a shard that was reported as running.
func (s *testFleet) acquisition(id shard.ID) Acquisition {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.events) - 1; i >= 0; i-- {
		if e := s.events[i]; e.Type == EventRunning && e.ID == id {
			return *e.Acquisition
		}
	}
	s.t.Fatalf("%s was never reported as running", id)
	return Acquisition{}
}

// within fails unless d is at least want and hardly more.
func within(t *testing.T, what string, d, want time.Duration) {
	t.Helper()
	if d < want || d > want+100*time.Millisecond {
		t.Errorf("%s is %v, want %v", what, d, want)
	}
}

// TestUnownedCountsFromTheClosedFence makes work go on behind a closed fence before the shard is
// released. The unowned time must include this: nobody can write, and the user waits.
func TestUnownedCountsFromTheClosedFence(t *testing.T) {
	const linger = 12 * time.Second
	id := shard.ID{Ring: "namespaces", Name: "00"}
	lease := leaseapi.ShardLease("flotilla", id)
	for name, tc := range map[string]struct {
		move       func(s *testFleet, a *wedgedProcess)
		successors []shard.ID
		why        Reason
	}{
		"drained": {func(s *testFleet, _ *wedgedProcess) { s.drain("a", "x"); s.drain("b", "") }, []shard.ID{id}, ReasonRebalance},
		"stopped": {func(s *testFleet, a *wedgedProcess) { s.drain("b", ""); a.stop() }, []shard.ID{id}, ReasonLeaving},
		"another plan": {func(s *testFleet, _ *wedgedProcess) {
			s.drain("b", "")
			s.apply(s.next(func(r *shard.Ring) { split(r, 0) }))
		}, []shard.ID{{Ring: "namespaces", Name: "g2-00"}, {Ring: "namespaces", Name: "00b"}}, ReasonPlan},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 2, func(t *testing.T, s *testFleet) {
				a := s.launchWedged("a", id, func(*Config) {})
				pass(20 * time.Second)
				s.launch("b", nil)
				s.joins("b")
				s.drain("b", "x") // so that a keeps the shard until it is asked to stop
				pass(20 * time.Second)
				tc.move(s, a)
				var draining time.Time
				for range 300 {
					pass(100 * time.Millisecond)
					a.mu.Lock()
					draining = a.draining
					a.mu.Unlock()
					if !draining.IsZero() {
						break
					}
				}
				pass(time.Until(draining.Add(linger)))
				if stopped := leaserecord.From(s.store.Get(lease)).Stopped(); stopped > 7*time.Second || stopped < 5*time.Second {
					t.Errorf("the Lease says that nobody could write for %v, want 5 s to 7 s, as at the last renewal", stopped)
				}
				a.free()
				pass(20 * time.Second)
				for _, successor := range tc.successors {
					got := s.acquisition(successor)
					if got.How != HowHandoff || got.Reason != tc.why {
						t.Errorf("%s came by %s/%s, want %s/%s", successor, got.How, got.Reason, HowHandoff, tc.why)
					}
					within(t, "unowned time of "+successor.String(), got.Unowned, linger-5*time.Second)
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				handovers := 0
				for _, e := range s.events {
					if e.Handover != nil && e.ID == id {
						handovers++
						within(t, "drain", e.Handover.Drain, linger)
						within(t, "its last part, without writes", e.Handover.Overdue, linger-5*time.Second)
					}
				}
				if handovers != 1 {
					t.Errorf("%s was handed over %d times, want once", id, handovers)
				}
			})
		})
	}
}

// TestUnownedOfAProcessThatHadToEnd kills the process of a drain that does not end, as Exit does.
func TestUnownedOfAProcessThatHadToEnd(t *testing.T) {
	id := shard.ID{Ring: "namespaces", Name: "00"}
	inBubble(t, 2, func(t *testing.T, s *testFleet) {
		a := s.launchWedged("a", id, func(c *Config) {})
		pass(20 * time.Second)
		s.launch("b", nil)
		s.joins("b")
		s.drain("b", "x")
		pass(20 * time.Second)
		s.drain("b", "")
		a.stop()
		pass(15 * time.Second)
		a.client.Block()
		pass(30 * time.Second)
		got := s.acquisition(id)
		if got.How != HowTakeover || got.Reason != ReasonOverdue || got.From != a.Incarnation() {
			t.Errorf("%s came by %s/%s from %s, want %s/%s from %s", id, got.How, got.Reason, got.From, HowTakeover, ReasonOverdue, a.Incarnation())
		}
		// A lease duration after its last renewal, which came up to a retry period before it died,
		// plus the time before that in which it could not write.
		if got.Unowned < 20*time.Second || got.Unowned > 26*time.Second {
			t.Errorf("unowned for %v, want 20 s to 26 s", got.Unowned)
		}
		a.free()
	})
}

// TestUnownedWhileTheNextOwnerPrepares ends the holder of all shards while the next one fills its
// caches, of all four at once. A member that leaves waits for HandoffTimeout and no longer. The
// rest of the filling is a gap of this planned move. A fleet that was stopped meanwhile is no such
// move.
func TestUnownedWhileTheNextOwnerPrepares(t *testing.T) {
	const filling = 20 * time.Second
	for name, tc := range map[string]struct {
		halts time.Duration
		how   How
		why   Reason
	}{
		"the holder leaves":                       {0, HowHandoff, ReasonLeaving},
		"the fleet is stopped, and started later": {3 * time.Hour, HowVacant, ReasonReleased},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 2, func(t *testing.T, s *testFleet) {
				log := &eventLog{}
				s.filling = filling
				a := s.launch("a", log.keep)
				pass(time.Minute)
				b := s.launch("b", log.keep)
				s.joins("b")
				s.drain("b", "x") // so that it wants all shards at the same time
				pass(20 * time.Second)
				then := time.Now()
				s.drain("b", "")
				s.drain("a", "x")
				pass(2 * time.Second)
				for _, state := range b.Shards() {
					if state.State != StatePreparing {
						t.Fatalf("b: %s is %s, want preparing", state.ID, state.State)
					}
				}
				if tc.halts > 0 {
					s.setStop(stopText)
					pass(10 * time.Second)
					s.allHeldByNobody()
				}
				a.stop()
				<-a.ended
				if tc.halts > 0 {
					pass(tc.halts)
					s.setStop("")
				}
				pass(time.Minute)
				for _, said := range log.expect(t, then, len(s.plan.Shards()), tc.how, tc.why) {
					got := said.Acquisition
					if tc.halts > 0 {
						continue
					}
					if got.From != a.Incarnation() || got.Unowned < filling/2 || got.Unowned > filling {
						t.Errorf("%s: came from %s and was unowned for %v, want %s and most of the %v that caches take to fill",
							said.ID, got.From, got.Unowned, a.Incarnation(), filling)
					}
				}
			})
		})
	}
}

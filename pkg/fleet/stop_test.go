package fleet

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

const stopText = "2026-11-24T08:50:00Z by alice@laptop"

// setStop stops the fleet as an operator does; an empty value starts it.
func (s *testFleet) setStop(value string) {
	s.t.Helper()
	if !s.store.Tamper(leaseapi.PlanLease("flotilla"), func(l *coordinationv1.Lease) {
		if l.Annotations[leaseapi.StopAnnotation] = value; value == "" {
			delete(l.Annotations, leaseapi.StopAnnotation)
		}
	}) {
		s.t.Fatal("the plan's Lease does not exist")
	}
}

// stillBy returns the stop that each member publishes in StillAnnotation.
func (s *testFleet) stillBy(members ...string) map[string]string {
	by := map[string]string{}
	for _, name := range members {
		if lease := s.store.Get(leaserecord.MemberLease("flotilla", name)); lease != nil {
			by[name] = lease.Annotations[leaseapi.StillAnnotation]
		}
	}
	return by
}

// TestStopAndStart checks that all members end their work, and that the leader locks are released
// once and stay free. The members live on as standbys whose Ready names the stop. When the fleet
// starts again they begin as after any wait for the leader lock.
func TestStopAndStart(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		processes := []*process{s.launch("a", withLeaderLocks("main", "second")), s.launch("b", withLeaderLocks("main", "second")), s.launch("c", withLeaderLocks("main", "second"))}
		pass(time.Minute)
		s.allHeld("a", "b", "c")
		before := s.counts()
		s.setStop(stopText)
		pass(2 * time.Second)
		s.allHeldByNobody()
		s.isHeld("main", "")
		s.isHeld("second", "")
		if wrote := s.counts().version - before.version; wrote != len(s.plan.Shards()) {
			t.Errorf("%d of %d shards wrote as they ended: the leader locks must be held until all have", wrote, len(s.plan.Shards()))
		}
		version := s.store.Get("main").ResourceVersion
		pass(time.Minute)
		if again := s.store.Get("main").ResourceVersion; again != version {
			t.Errorf("the leader lock was written after it had been released: version %s, before %s", again, version)
		}
		for _, m := range processes {
			if err := m.Ready(); !errors.Is(err, errStopped) || !strings.Contains(err.Error(), "since 2026-11-24T08:50:00Z by alice@laptop: member "+m.config.Member+" stands by") {
				t.Errorf("%s: ready: %v", m.config.Member, err)
			}
			if err := m.Live(); err != nil || m.Stopped() == nil {
				t.Errorf("%s: live: %v, stopped: %v", m.config.Member, err, m.Stopped())
			}
			for _, state := range m.Shards() {
				if state.Owner != "" || state.Owned || state.State != StateNone {
					t.Errorf("%s: %+v", m.config.Member, state)
				}
			}
		}
		if after := s.counts(); after.fakeWorks != 0 || after.begun != before.begun {
			t.Errorf("%d instances are kept, %d began since the stop", after.fakeWorks, after.begun-before.begun)
		}

		// A stock leader takes over, writes, and does not leave at once when the fleet is started.
		s.store.Tamper("main", func(l *coordinationv1.Lease) {
			l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.LeaseTransitions = ptr.To("stock_1"), ptr.To[int32](600), ptr.To(*l.Spec.LeaseTransitions+1)
		})
		s.stockWrites()
		s.setStop("")
		pass(20 * time.Second)
		s.allHeldByNobody()
		s.isHeld("main", "stock_1")
		if by := s.stillBy("a", "b", "c"); by["a"]+by["b"]+by["c"] != "" || processes[0].Stopped() != nil {
			t.Errorf("members publish that they are still: %v", by)
		}
		for _, m := range processes {
			if err := m.Ready(); err == nil || !strings.Contains(err.Error(), `is held by "stock_1"`) {
				t.Errorf("%s waits for the leader lock, ready: %v", m.config.Member, err)
			}
		}
		s.stockWrites()
		s.store.Tamper("main", func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("") })
		pass(5 * time.Second)
		s.allHeld("a", "b", "c")
		s.isHeld("main", "flotilla_fleet")
		s.isHeld("second", "flotilla_fleet")
		for _, m := range processes {
			if err := m.Ready(); err != nil {
				t.Errorf("%s: ready: %v", m.config.Member, err)
			}
		}
	})
}

func TestStopWithoutLeaderLocks(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		s.launch("a", nil)
		s.launch("b", nil)
		pass(time.Minute)
		s.setStop(stopText)
		pass(2 * time.Second)
		s.allHeldByNobody()
		pass(time.Minute)
		s.allHeldByNobody()
		if by := s.stillBy("a", "b"); by["a"] != stopText || by["b"] != stopText {
			t.Errorf("still: %v", by)
		}
		s.setStop("")
		pass(5 * time.Second)
		s.allHeld("a", "b")
	})
}

// TestStopWaitsForEveryMember checks that the leader lock is not released while a live member does
// not publish that it is still, whatever that member runs.
func TestStopWaitsForEveryMember(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		s.launch("a", withLeaderLocks("main"))
		s.launch("b", withLeaderLocks("main"))
		pass(time.Minute)
		old := foreign(leaserecord.MemberLease("flotilla", "old"), "old_0123")
		old.Annotations = map[string]string{leaserecord.StateAnnotation: string(membership.Joining)}
		s.store.Put(old)
		s.setStop(stopText)
		pass(10 * time.Second)
		s.allHeldByNobody()
		s.isHeld("main", "flotilla_fleet")
		s.store.Tamper(old.Name, func(l *coordinationv1.Lease) { l.Annotations[leaseapi.StillAnnotation] = "another stop" })
		pass(5 * time.Second)
		s.isHeld("main", "flotilla_fleet")
		s.store.Tamper(old.Name, func(l *coordinationv1.Lease) { l.Annotations[leaseapi.StillAnnotation] = stopText })
		pass(time.Second)
		s.isHeld("main", "")
	})
}

// TestStopWaitsForShards checks that the leader lock is not released while the Lease of any shard
// of any plan has a live holder.
func TestStopWaitsForShards(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		s.launch("a", withLeaderLocks("main"))
		pass(time.Minute)
		held := foreign("flotilla-namespaces-old", "b_0123")
		held.Labels = map[string]string{leaseapi.FleetLabel: "flotilla", leaseapi.RingLabel: "namespaces", leaseapi.ShardLabel: "old"}
		s.store.Put(held)
		s.setStop(stopText)
		pass(10 * time.Second)
		s.isHeld("main", "flotilla_fleet")
		s.store.Tamper(held.Name, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("") })
		pass(time.Second)
		s.isHeld("main", "")
	})
}

// TestStoppedMembersComeAndGo checks that a stop outlives the members, and that a new member takes
// nothing.
func TestStoppedMembersComeAndGo(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		a, b := s.launch("a", withLeaderLocks("main")), s.launch("b", withLeaderLocks("main"))
		pass(time.Minute)
		s.setStop(stopText)
		pass(2 * time.Second)
		a.stop()
		b.stop()
		<-a.ended
		<-b.ended
		s.isHeld("main", "")
		s.launch("a", withLeaderLocks("main"))
		c := s.launch("c", withLeaderLocks("main"))
		pass(time.Minute)
		s.allHeldByNobody()
		s.isHeld("main", "")
		if by := s.stillBy("a", "c"); by["a"] != stopText || by["c"] != stopText || !errors.Is(c.Ready(), errStopped) {
			t.Errorf("still: %v, ready: %v", by, c.Ready())
		}
		s.setStop("")
		pass(30 * time.Second)
		s.allHeld("a", "c")
	})
}

// TestStopThatCannotBeRead checks that an unreadable stop changes nothing, whether the fleet works
// or is stopped.
func TestStopThatCannotBeRead(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		s.launch("a", withLeaderLocks("main"))
		b := s.launch("b", withLeaderLocks("main"))
		pass(time.Minute)
		s.setStop("true")
		pass(time.Minute)
		s.allHeld("a", "b")
		b.stop()
		<-b.ended
		s.launch("b", withLeaderLocks("main"))
		pass(time.Minute)
		s.allHeld("a", "b")

		s.setStop(stopText)
		pass(2 * time.Second)
		s.allHeldByNobody()
		s.isHeld("main", "")
		s.setStop("false")
		pass(time.Minute)
		s.allHeldByNobody()
		s.isHeld("main", "")
		s.setStop("")
		pass(5 * time.Second)
		s.allHeld("a", "b")
	})
}

// TestStopOutlivesThePlansLease checks that deleting the Lease or the plan on it does not start the
// fleet.
func TestStopOutlivesThePlansLease(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		s.launch("a", withLeaderLocks("main"))
		s.launch("b", withLeaderLocks("main"))
		pass(time.Minute)
		s.setStop(stopText)
		pass(5 * time.Second)
		for name, spoil := range map[string]func(){
			"deleted": func() { s.store.Remove(leaseapi.PlanLease("flotilla")) },
			"plan removed": func() {
				s.store.Tamper(leaseapi.PlanLease("flotilla"), func(l *coordinationv1.Lease) { l.Annotations = nil })
			},
		} {
			spoil()
			pass(time.Minute)
			s.allHeldByNobody()
			s.isHeld("main", "")
			if lease := s.store.Get(leaseapi.PlanLease("flotilla")); lease == nil || lease.Annotations[leaseapi.StopAnnotation] != stopText || lease.Annotations[leaseapi.DocumentAnnotation] == "" {
				t.Errorf("%s: the Lease is %v", name, lease)
			}
		}
		s.setStop("")
		pass(5 * time.Second)
		s.allHeld("a", "b")
	})
}

// TestStoppedMembersWithoutAPlan checks that members that have started without a plan do not wait
// for each other to restore it.
func TestStoppedMembersWithoutAPlan(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		processes := []*process{s.launch("a", nil), s.launch("b", nil)}
		pass(time.Minute)
		s.setStop(stopText)
		pass(5 * time.Second)
		for _, m := range processes {
			m.stop()
			<-m.ended
		}
		s.store.Tamper(leaseapi.PlanLease("flotilla"), func(l *coordinationv1.Lease) {
			l.Annotations[leaseapi.DocumentAnnotation] = "junk"
			delete(l.Annotations, leaseapi.LastGoodAnnotation)
		})
		s.launch("a", nil)
		s.launch("b", nil)
		pass(time.Minute)
		if by := s.stillBy("a", "b"); by["a"] != stopText || by["b"] != stopText {
			t.Errorf("still: %v", by)
		}
		s.store.Remove(leaseapi.PlanLease("flotilla"))
		pass(time.Minute)
		s.allHeldByNobody()
		if lease := s.store.Get(leaseapi.PlanLease("flotilla")); lease == nil || lease.Annotations[leaseapi.StopAnnotation] != stopText || lease.Annotations[leaseapi.DocumentAnnotation] == "" {
			t.Errorf("the plan's Lease is %v", lease)
		}
		s.setStop("")
		pass(30 * time.Second)
		s.allHeld("a", "b")
	})
}

// TestStopsAtRandom stops and starts a fleet at random while members come and go and requests get
// lost. A stock leader takes the leader lock whenever it is free, and must then find that nobody
// works.
func TestStopsAtRandom(t *testing.T) {
	for range histories() {
		seed := rand.Uint64()
		if *seedFlag != 0 {
			seed = *seedFlag
		}
		t.Run(fmt.Sprintf("seed=%#x", seed), func(t *testing.T) {
			inBubble(t, 6, func(t *testing.T, s *testFleet) { stops(t, s, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func stops(t *testing.T, s *testFleet, random *rand.Rand) {
	launched := map[string]*process{}
	launch := func(name string) {
		launched[name] = s.launch(name, func(c *Config) { c.LeaderLocks, c.Standby = []string{"main"}, random.IntN(2) == 0 })
	}
	launch("a")
	launch("b")
	pass(30 * time.Second)
	stock := &stockLeader{s: s, random: random}
	for n := range 40 {
		name := string(rune('a' + random.IntN(3)))
		proc := launched[name]
		switch kind := random.IntN(8); {
		case kind < 2:
			s.setStop(fmt.Sprintf("2026-11-24T08:%02d:00Z by alice", n))
		case kind < 4:
			s.setStop("")
		case proc == nil || isClosed(proc.ended):
			launch(name)
		case kind == 4:
			proc.stop()
			delete(launched, name)
		case kind == 5:
			proc.client.LagWatch(time.Duration(random.IntN(3000)) * time.Millisecond)
		case kind == 6:
			proc.client.DropReply(2, "update")
		default:
			proc.client.Drop(2, "update", "list")
		}
		for range random.IntN(60) {
			stock.look()
			pass(time.Duration(1+random.IntN(200)) * time.Millisecond)
		}
	}
	s.setStop("")
	for _, proc := range launched {
		proc.client.Heal()
	}
	stock.end()
	pass(30 * time.Second) // members that lost too many requests end
	for _, name := range []string{"a", "b"} {
		if proc := launched[name]; proc == nil || isClosed(proc.ended) {
			launch(name)
		}
	}
	pass(time.Minute)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(launched)) {
		if proc := launched[name]; isClosed(proc.ended) {
			t.Logf("%s has ended: %v", name, proc.err)
		} else {
			names = append(names, name)
		}
	}
	s.allHeld(names...)
	s.isHeld("main", "flotilla_fleet")
}

// stockLeader takes the leader lock whenever it is free, and leads for a while.
type stockLeader struct {
	s      *testFleet
	random *rand.Rand
	leads  bool
	until  time.Time
}

func (l *stockLeader) look() {
	if l.leads && time.Now().After(l.until) {
		l.end()
		return
	}
	l.s.store.Tamper("main", func(lease *coordinationv1.Lease) {
		if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != "" && !l.leads {
			return
		}
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = ptr.To("stock_1"), ptr.To[int32](15)
		lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Now()))
		if !l.leads {
			lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
			l.leads, l.until = true, time.Now().Add(time.Duration(l.random.IntN(5000))*time.Millisecond)
		}
	})
	if l.leads {
		if n := l.s.holders(); len(n) > 0 {
			l.s.t.Errorf("a stock leader leads while %v work", n)
		}
		l.s.stockWrites()
	}
}

func (l *stockLeader) end() {
	if l.leads {
		l.s.store.Tamper("main", func(lease *coordinationv1.Lease) { lease.Spec.HolderIdentity = ptr.To("") })
	}
	l.leads = false
}

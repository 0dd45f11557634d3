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

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

const aStop = "2026-11-24T08:50:00Z by alice@laptop"

// setStop does what an operator does; an empty value starts the fleet.
func (s *world) setStop(value string) {
	s.t.Helper()
	if !s.store.Tamper(leaseapi.PlanLease("flotilla"), func(l *coordinationv1.Lease) {
		if l.Annotations[leaseapi.StopAnnotation] = value; value == "" {
			delete(l.Annotations, leaseapi.StopAnnotation)
		}
	}) {
		s.t.Fatal("there is no plan's Lease")
	}
}

// stillBy returns what members say by which stop they are still.
func (s *world) stillBy(members ...string) map[string]string {
	by := map[string]string{}
	for _, name := range members {
		if lease := s.store.Get(election.MemberLease("flotilla", name)); lease != nil {
			by[name] = lease.Annotations[leaseapi.StillAnnotation]
		}
	}
	return by
}

// TestStopState: what cannot be read changes nothing.
func TestStopState(t *testing.T) {
	lease := func(annotations map[string]string) election.Observation {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "flotilla-plan", Annotations: annotations}}
		return election.Observation{Record: election.RecordFrom(l), Exists: true, Lease: l}
	}
	with := func(value string) election.Observation {
		return lease(map[string]string{leaseapi.DocumentAnnotation: "{}", leaseapi.StopAnnotation: value})
	}
	working := stopState{}.next(lease(map[string]string{leaseapi.DocumentAnnotation: "{}"}), false)
	stopped := stopState{}.next(with(aStop), false)
	for _, test := range []struct {
		name                   string
		before                 stopState
		seen                   election.Observation
		othersWork             bool
		stops, decided, faulty bool
		text                   string
	}{
		{"stopped", working, with(aStop), true, true, true, false, aStop},
		{"started", stopped, lease(map[string]string{leaseapi.DocumentAnnotation: "{}"}), false, false, true, false, ""},
		{"no Lease yet", stopState{}, election.Observation{}, false, false, false, false, ""},
		{"no plan yet", stopState{}, lease(map[string]string{leaseapi.StopAnnotation: aStop}), false, false, false, false, ""},
		{"Lease deleted", stopped, election.Observation{}, false, true, true, false, aStop},
		{"plan taken away", stopped, lease(nil), false, true, true, false, aStop},
		{"unreadable while it works", working, with("true"), true, false, true, true, ""},
		{"unreadable while it works, alone", working, with("true"), false, false, true, true, ""},
		{"unreadable while it is stopped", stopped, with("true"), true, true, true, true, aStop},
		{"empty while it is stopped", stopped, with(""), true, true, true, true, aStop},
		{"unreadable, just started beside others", stopState{}, with("true"), true, false, true, true, ""},
		{"unreadable, just started alone", stopState{}, with("true"), false, true, true, true, ""},
	} {
		after := test.before.next(test.seen, test.othersWork)
		if (after.stop != nil) != test.stops || after.decided != test.decided || (after.fault != nil) != test.faulty || after.text != test.text {
			t.Errorf("%s: %+v", test.name, after)
		}
		if again := after.next(test.seen, !test.othersWork); (again.stop != nil) != (after.stop != nil) || again.text != after.text {
			t.Errorf("%s: %+v, and seen again %+v", test.name, after, again)
		}
	}
	if after := (stopState{}).next(with("true"), false).next(lease(map[string]string{leaseapi.DocumentAnnotation: "{}"}), false); after.stop != nil {
		t.Errorf("mended by an operator: %+v", after)
	}
}

// TestStopAndStart: all members end their work, the leader locks are released once and stay free,
// the members live on as standbys that say why, and begin again, as after any wait for the leader
// lock.
func TestStopAndStart(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *world) {
		processes := []*process{s.launch("a", withLeaderLocks("main", "second")), s.launch("b", withLeaderLocks("main", "second")), s.launch("c", withLeaderLocks("main", "second"))}
		pass(time.Minute)
		s.allHeld("a", "b", "c")
		before := s.counts()
		s.setStop(aStop)
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

		// A stock leader takes over, writes, and is in no hurry to go when the fleet is started.
		s.store.Tamper("main", func(l *coordinationv1.Lease) {
			l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.LeaseTransitions = ptr.To("stock_1"), ptr.To[int32](600), ptr.To(*l.Spec.LeaseTransitions+1)
		})
		s.stockWrites()
		s.setStop("")
		pass(20 * time.Second)
		s.allHeldByNobody()
		s.isHeld("main", "stock_1")
		if by := s.stillBy("a", "b", "c"); by["a"]+by["b"]+by["c"] != "" || processes[0].Stopped() != nil {
			t.Errorf("members say that they are still, by %v", by)
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

// TestStopWithoutLeaderLocks ends all work as well.
func TestStopWithoutLeaderLocks(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *world) {
		s.launch("a", nil)
		s.launch("b", nil)
		pass(time.Minute)
		s.setStop(aStop)
		pass(2 * time.Second)
		s.allHeldByNobody()
		pass(time.Minute)
		s.allHeldByNobody()
		if by := s.stillBy("a", "b"); by["a"] != aStop || by["b"] != aStop {
			t.Errorf("still: %v", by)
		}
		s.setStop("")
		pass(5 * time.Second)
		s.allHeld("a", "b")
	})
}

// TestStopWaitsForEveryMember: the leader lock is not released while a member that lives does not
// say that it is still, whatever that runs.
func TestStopWaitsForEveryMember(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *world) {
		s.launch("a", withLeaderLocks("main"))
		s.launch("b", withLeaderLocks("main"))
		pass(time.Minute)
		old := foreign(election.MemberLease("flotilla", "old"), "old_0123")
		old.Annotations = map[string]string{election.StateAnnotation: string(election.MemberJoining)}
		s.store.Put(old)
		s.setStop(aStop)
		pass(10 * time.Second)
		s.allHeldByNobody()
		s.isHeld("main", "flotilla_fleet")
		s.store.Tamper(old.Name, func(l *coordinationv1.Lease) { l.Annotations[leaseapi.StillAnnotation] = "another stop" })
		pass(5 * time.Second)
		s.isHeld("main", "flotilla_fleet")
		s.store.Tamper(old.Name, func(l *coordinationv1.Lease) { l.Annotations[leaseapi.StillAnnotation] = aStop })
		pass(time.Second)
		s.isHeld("main", "")
	})
}

// TestStopWaitsForShards: nor while the Lease of a shard has a live holder, of whatever plan.
func TestStopWaitsForShards(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *world) {
		s.launch("a", withLeaderLocks("main"))
		pass(time.Minute)
		held := foreign("flotilla-namespaces-old", "b_0123")
		held.Labels = map[string]string{leaseapi.FleetLabel: "flotilla", leaseapi.RingLabel: "namespaces", leaseapi.ShardLabel: "old"}
		s.store.Put(held)
		s.setStop(aStop)
		pass(10 * time.Second)
		s.isHeld("main", "flotilla_fleet")
		s.store.Tamper(held.Name, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("") })
		pass(time.Second)
		s.isHeld("main", "")
	})
}

// TestStoppedMembersComeAndGo: a stop outlives the members, and a member that comes takes nothing.
func TestStoppedMembersComeAndGo(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *world) {
		a, b := s.launch("a", withLeaderLocks("main")), s.launch("b", withLeaderLocks("main"))
		pass(time.Minute)
		s.setStop(aStop)
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
		if by := s.stillBy("a", "c"); by["a"] != aStop || by["c"] != aStop || !errors.Is(c.Ready(), errStopped) {
			t.Errorf("still: %v, ready: %v", by, c.Ready())
		}
		s.setStop("")
		pass(30 * time.Second)
		s.allHeld("a", "c")
	})
}

// TestStopThatCannotBeRead changes nothing, of a fleet that works and of one that is stopped.
func TestStopThatCannotBeRead(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *world) {
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

		s.setStop(aStop)
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

// TestStopOutlivesThePlansLease: whoever deletes it, or takes the plan away, does not start the
// fleet.
func TestStopOutlivesThePlansLease(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *world) {
		s.launch("a", withLeaderLocks("main"))
		s.launch("b", withLeaderLocks("main"))
		pass(time.Minute)
		s.setStop(aStop)
		pass(5 * time.Second)
		for name, spoil := range map[string]func(){
			"deleted": func() { s.store.Remove(leaseapi.PlanLease("flotilla")) },
			"plan taken away": func() {
				s.store.Tamper(leaseapi.PlanLease("flotilla"), func(l *coordinationv1.Lease) { l.Annotations = nil })
			},
		} {
			spoil()
			pass(time.Minute)
			s.allHeldByNobody()
			s.isHeld("main", "")
			if lease := s.store.Get(leaseapi.PlanLease("flotilla")); lease == nil || lease.Annotations[leaseapi.StopAnnotation] != aStop || lease.Annotations[leaseapi.DocumentAnnotation] == "" {
				t.Errorf("%s: the Lease is %v", name, lease)
			}
		}
		s.setStop("")
		pass(5 * time.Second)
		s.allHeld("a", "b")
	})
}

// TestStopsAtRandom has an operator stop and start a fleet at any moment while members come and go
// and requests get lost. A stock leader takes the leader lock whenever it is free, and must find
// that nobody works.
func TestStopsAtRandom(t *testing.T) {
	for range histories() {
		seed := rand.Uint64()
		if *seedFlag != 0 {
			seed = *seedFlag
		}
		t.Run(fmt.Sprintf("seed=%#x", seed), func(t *testing.T) {
			inBubble(t, 6, func(t *testing.T, s *world) { stops(t, s, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func stops(t *testing.T, s *world, random *rand.Rand) {
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
	pass(30 * time.Second) // those end that had lost too many requests
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
	s      *world
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
			l.s.t.Errorf("a stock leader leads, and %v work", n)
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

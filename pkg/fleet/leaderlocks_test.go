package fleet

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election/leaderlock"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
)

// foreign returns somebody else's Lease, which does not expire during a test.
func foreign(name, holder string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](600), LeaseTransitions: ptr.To[int32](1)},
	}
}

func (s *testFleet) holderOf(lease string) string {
	s.t.Helper()
	l := s.store.Get(lease)
	if l == nil {
		return ""
	}
	return ptr.Deref(l.Spec.HolderIdentity, "")
}

func (s *testFleet) isHeld(lease, by string) {
	s.t.Helper()
	if holder := s.holderOf(lease); holder != by {
		s.t.Errorf("%s is held by %q, want %q", lease, holder, by)
	}
}

func withLeaderLocks(leaderLocks ...string) func(*Config) {
	return func(c *Config) { c.LeaderLocks = leaderLocks }
}

// TestLeaderLocksAreTakenInOrder checks that a fleet that waits for the first leader lock does not
// hold the second, which is free.
func TestLeaderLocksAreTakenInOrder(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		s.store.Put(foreign("main", "stock"))
		s.store.Put(foreign("second", ""))
		a, b := s.launch("a", withLeaderLocks("main", "second")), s.launch("b", withLeaderLocks("main", "second"))
		pass(2 * time.Minute)
		s.isHeld("main", "stock")
		s.isHeld("second", "")
		s.allHeldByNobody()
		for _, m := range []*process{a, b} {
			if err := m.Ready(); err == nil || !strings.Contains(err.Error(), `the leader lock, Lease main, is held by "stock"`) {
				t.Errorf("%s: ready: %v", m.config.Member, err)
			}
		}
		s.store.Tamper("main", func(lease *coordinationv1.Lease) { lease.Spec.HolderIdentity = ptr.To("") })
		pass(10 * time.Second)
		s.isHeld("main", "flotilla_fleet")
		s.isHeld("second", "flotilla_fleet")
		s.allHeld("a", "b")
	})
}

func (s *testFleet) allHeldByNobody() {
	s.t.Helper()
	if n := s.holders(); len(n) > 0 {
		s.t.Errorf("no member should work, but these do: %v", n)
	}
}

// TestLastMemberReleasesLeaderLocks checks that only the last member releases them, and only after
// all work has ended.
func TestLastMemberReleasesLeaderLocks(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		a, b := s.launch("a", withLeaderLocks("main")), s.launch("b", withLeaderLocks("main"))
		pass(time.Minute)
		s.allHeld("a", "b")
		a.stop()
		<-a.ended
		pass(time.Minute)
		s.isHeld("main", "flotilla_fleet")
		s.allHeld("b")
		b.stop()
		<-b.ended
		s.isHeld("main", "")
		s.allHeldByNobody()
	})
}

// listing calls listed after each list.
type listing struct {
	Leases
	listed func()
}

func (l listing) List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	list, err := l.Leases.List(ctx, opts)
	l.listed()
	return list, err
}

// TestLeaderLockOfAMemberThatHasJustStarted has somebody renew the leader lock just after the last
// member has read that nobody else is left.
func TestLeaderLockOfAMemberThatHasJustStarted(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		var leaving atomic.Bool
		renew := func() {
			if leaving.Load() {
				s.store.Tamper("main", func(lease *coordinationv1.Lease) { lease.Spec.RenewTime = ptr.To(metav1.NowMicro()) })
			}
		}
		a := s.launch("a", func(c *Config) { c.LeaderLocks, c.Leases = []string{"main"}, listing{c.Leases, renew} })
		pass(time.Minute)
		s.allHeld("a")
		leaving.Store(true)
		a.stop()
		<-a.ended
		s.isHeld("main", "flotilla_fleet")
	})
}

// TestAllMembersLeaveAtOnce checks that nobody holds the leader locks afterwards.
func TestAllMembersLeaveAtOnce(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		var all []*process
		for _, name := range []string{"a", "b", "c"} {
			all = append(all, s.launch(name, withLeaderLocks("main", "second")))
		}
		pass(time.Minute)
		for _, m := range all {
			m.stop()
		}
		for _, m := range all {
			<-m.ended
		}
		s.isHeld("main", "")
		s.isHeld("second", "")
	})
}

// TestWaitingFleetLeavesLeaderLocksAlone checks that members that end while somebody else holds the
// leader lock do not write it.
func TestWaitingFleetLeavesLeaderLocksAlone(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		s.store.Put(foreign("main", "stock"))
		a := s.launch("a", withLeaderLocks("main"))
		pass(time.Minute)
		version := s.store.Get("main").ResourceVersion
		a.stop()
		<-a.ended
		if a.err != nil {
			t.Error(a.err)
		}
		if after := s.store.Get("main").ResourceVersion; after != version {
			t.Errorf("the Lease was written: %s, before %s", after, version)
		}
	})
}

// TestLostLeaderLockEndsMembers checks that a member stops all work, and says why, when the leader
// lock's Lease names somebody else.
func TestLostLeaderLockEndsMembers(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		a := s.launch("a", withLeaderLocks("main", "second"))
		pass(time.Minute)
		s.allHeld("a")
		s.store.Tamper("second", func(lease *coordinationv1.Lease) { lease.Spec.HolderIdentity = ptr.To("stock") })
		pass(5 * time.Second)
		s.allHeldByNobody()
		select {
		case <-a.ended:
		default:
			t.Fatal("the member has not ended")
		}
		if !errors.Is(a.err, leaderlock.ErrLost) || !strings.Contains(a.err.Error(), `"stock"`) {
			t.Errorf("ended with %v", a.err)
		}
		s.isHeld("second", "stock")
		// The Lease is left to expire. Anyone who knows that all work has ended may clear it.
		s.isHeld("main", "flotilla_fleet")
	})
}

// TestHungLeaderLockGivesShardsUp lets the loop of one member's leader lock hang. That member may
// not write any more, so others must get its shards.
func TestHungLeaderLockGivesShardsUp(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		hangs, hang := make(chan struct{}), &atomic.Bool{}
		a := s.launch("a", func(c *Config) {
			c.LeaderLocks = []string{"main"}
			observe := c.Observe
			c.Observe = func(e Event) {
				if hang.Load() && e.Name == "main" {
					<-hangs
				}
				observe(e)
			}
		})
		s.launch("b", withLeaderLocks("main"))
		pass(time.Minute)
		s.allHeld("a", "b")
		hang.Store(true)
		pass(40 * time.Second) // the loop's next event, the renew deadline and the lease duration
		s.allHeld("b")
		hang.Store(false)
		close(hangs)
		pass(time.Minute)
		select {
		case <-a.ended:
		default:
			t.Fatal("the member has not ended")
		}
		if !errors.Is(a.err, membership.ErrLost) || !strings.Contains(a.err.Error(), "hung: the leader lock main") {
			t.Errorf("ended with %v", a.err)
		}
	})
}

// TestLostLeaderLockEndsWhoWaitsForItsLease checks that a lost leader lock also ends a member whose
// Lease an earlier incarnation still holds.
func TestLostLeaderLockEndsWhoWaitsForItsLease(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		s.store.Put(foreign(leaserecord.MemberLease("flotilla", "a"), leaserecord.NewIncarnation("a")))
		a := s.launch("a", withLeaderLocks("main"))
		pass(time.Minute)
		s.isHeld("main", "flotilla_fleet")
		s.store.Tamper("main", func(lease *coordinationv1.Lease) { lease.Spec.HolderIdentity = ptr.To("stock") })
		pass(5 * time.Second)
		select {
		case <-a.ended:
		default:
			t.Fatal("the member has not ended, and can never join")
		}
		if !errors.Is(a.err, leaderlock.ErrLost) {
			t.Errorf("ended with %v", a.err)
		}
	})
}

// stockWrites makes the stock controller manager write to everything.
func (s *testFleet) stockWrites() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, proc := range s.plan.Shards() {
		extent, _ := s.plan.Extent(proc.ID)
		s.wrote(writer{proc.ID, "stock"}, extent)
	}
}

// stockReleases makes the stock controller manager release its leader lock.
func (s *testFleet) stockReleases() {
	lease := s.store.Get("kube-controller-manager").DeepCopy()
	lease.Spec.HolderIdentity = ptr.To("")
	s.store.Put(lease)
}

// TestWarmWhileWaitingForLeaderLock checks that a fleet waits for a leader lock with full caches,
// and begins from them, fresh, as soon as the leader lock is released.
func TestWarmWhileWaitingForLeaderLock(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		// An earlier fleet has recorded its last writes. They say nothing about later writes.
		before := s.launch("a", nil)
		pass(time.Minute)
		before.stop()
		<-before.ended
		s.store.Put(foreign("kube-controller-manager", "stock_1"))
		late := func(c *Config) { c.LeaderLocks, c.LeaderLockDelay = []string{"kube-controller-manager"}, 3*time.Second }
		s.launch("a", late)
		s.launch("b", late)
		pass(30 * time.Second)
		if len(s.holders()) > 0 || s.fakeWorks != len(s.plan.Shards()) {
			t.Errorf("while the leader lock is held by another: %v work, %d instances of %d are prepared", s.holders(), s.fakeWorks, len(s.plan.Shards()))
		}
		s.stockWrites()
		s.stockReleases()
		pass(2900 * time.Millisecond)
		if n := s.holders(); len(n) > 0 {
			t.Errorf("%v work before the delay is over", n)
		}
		pass(600 * time.Millisecond)
		s.allHeld("a", "b")
		if s.warm != len(s.plan.Shards()) {
			t.Errorf("%d of %d shards began with warm caches", s.warm, len(s.plan.Shards()))
		}
	})
}

// TestDelayAfterADeadFleet starts a member where a shard is still held by one that died before a
// stock controller manager led. Others are free. Nothing may run before the delay is over.
func TestDelayAfterADeadFleet(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		a, b := s.launch("a", nil), s.launch("b", nil)
		pass(time.Minute)
		b.client.Block()
		a.stop()
		<-a.ended
		s.store.Put(foreign("kube-controller-manager", "stock_1"))
		s.launch("c", func(c *Config) { c.LeaderLocks, c.LeaderLockDelay = []string{"kube-controller-manager"}, 3*time.Second })
		pass(12 * time.Second)
		s.stockWrites()
		s.stockReleases()
		pass(2900 * time.Millisecond)
		if n := s.holders(); n["c"] > 0 {
			t.Errorf("%v work before the delay is over", n)
		}
		pass(time.Second)
		if n := s.holders(); n["c"] == 0 {
			t.Errorf("%v work, want c to have the free shards", n)
		}
	})
}

// TestDelayBesideAMemberThatDoesNotKnow has a member that works on although a stock controller
// manager leads, like one whose machine was paused. Another takes the leader lock when stock has
// released it, and must wait all the same: stock may still be stopping.
func TestDelayBesideAMemberThatDoesNotKnow(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		s.launch("a", nil)
		pass(time.Minute)
		s.store.Put(foreign("kube-controller-manager", "stock_1"))
		s.launch("c", func(c *Config) { c.LeaderLocks, c.LeaderLockDelay = []string{"kube-controller-manager"}, 3*time.Second })
		pass(12 * time.Second)
		s.stockWrites()
		s.stockReleases()
		pass(2900 * time.Millisecond)
		if n := s.holders(); n["c"] > 0 {
			t.Errorf("%v work before the delay is over", n)
		}
		pass(2 * time.Second)
		if n := s.holders(); n["c"] == 0 {
			t.Errorf("%v work, want c to have its shards", n)
		}
	})
}

// TestFreshFleetPreparesOnce starts members one after another while nobody holds the leader lock.
// They must build each shard once, on the member that will own it when all are active.
func TestFreshFleetPreparesOnce(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		names := []string{"a", "b", "c", "d"}
		for _, name := range names {
			s.launch(name, withLeaderLocks("main"))
			pass(500 * time.Millisecond)
		}
		pass(8 * time.Second)
		if s.fakeWorks != len(s.plan.Shards()) || len(s.holders()) > 0 {
			t.Errorf("while the leader lock is waited for, %d instances of %d are prepared, and %v work", s.fakeWorks, len(s.plan.Shards()), s.holders())
		}
		pass(30 * time.Second)
		s.allHeld(names...)
		if want := len(s.plan.Shards()); s.built != want || s.warm != want {
			t.Errorf("%d instances were built and %d began with warm caches, want %d and no others", s.built, s.warm, want)
		}
	})
}

package fleet

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestLeaderLockHolderIsLive follows a leader lock through a stock leader that declares a very long
// duration, renews and dies, and through the fleet after it.
func TestLeaderLockHolderIsLive(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		dead := foreign("main", "stock") // declares ten minutes
		s.store.Put(dead)
		if s.create("b", withLeaderLocks("main")).LeaderLocks()[0].Live {
			t.Error("a member that knows nothing yet takes the leader lock's holder for live")
		}
		a := s.launch("a", withLeaderLocks("main"))
		require := func(when string, want bool) {
			t.Helper()
			if got := a.LeaderLocks()[0].Live; got != want {
				t.Errorf("%s: live %t, want %t", when, got, want)
			}
		}
		for range 30 {
			pass(2 * time.Second)
			s.store.Tamper("main", func(l *coordinationv1.Lease) { l.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Now())) })
			pass(time.Second)
			require("stock renews", true)
		}
		pass(50 * time.Second)
		require("stock may renew once a minute", true)
		pass(10 * time.Second)
		require("stock is dead", false)
		if held := a.LeaderLocks()[0].Held; held {
			t.Error("the fleet has taken a Lease that has not expired")
		}
		pass(10 * time.Minute)
		require("the fleet has it", true)
		s.isHeld("main", "flotilla_fleet")
		s.store.Remove("main")
		pass(time.Minute)
		require("the fleet has made it again", true)
	})
}

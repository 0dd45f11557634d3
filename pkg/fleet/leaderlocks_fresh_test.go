package fleet

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// TestFreshFleetIsNotHeldUpByLeaderLock starts three members at once in a cluster that never had a
// fleet, and measures the time until every shard is worked on: without a leader lock, and with one
// that nobody holds.
func TestFreshFleetIsNotHeldUpByLeaderLock(t *testing.T) {
	begins := func(lease *coordinationv1.Lease, leaderLocks ...string) (took time.Duration) {
		inBubble(t, 16, func(t *testing.T, s *testFleet) {
			if lease != nil {
				s.store.Put(lease)
			}
			began := time.Now()
			for _, name := range []string{"a", "b", "c"} {
				s.launch(name, func(c *Config) { c.LeaderLocks, c.LeaderLockDelay = leaderLocks, 3*time.Second })
			}
			for len(s.working()) < len(s.plan.Shards()) && time.Since(began) < time.Minute {
				pass(10 * time.Millisecond)
			}
			took = time.Since(began)
			s.allHeld("a", "b", "c")
		})
		return took
	}
	dead := foreign("main", "stock")
	*dead.Spec.LeaseDurationSeconds = 15
	without := begins(nil)
	t.Logf("without a leader lock: %v", without)
	for name, lease := range map[string]*coordinationv1.Lease{
		"absent": nil, "released": foreign("main", ""), "left to expire": dead, "the fleet's own": foreign("main", "flotilla_fleet"),
	} {
		took := begins(lease, "main")
		t.Logf("leader lock %s: %v", name, took)
		if most := without + 100*time.Millisecond; took > most {
			t.Errorf("leader lock %s: the fleet works after %v, want %v at most", name, took, most)
		}
	}
}

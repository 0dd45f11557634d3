package fleet

import (
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestLeaseDeletedAsTheWorkBegins deletes the Lease of a shard between its acquisition and the start
// of its work, and keeps the new owner from creating it again for a second. The work waits for that,
// and begins with the caches that were prepared, in the same term.
func TestLeaseDeletedAsTheWorkBegins(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, s *testFleet) {
		s.launch("a", nil)
		pass(time.Minute)
		var moved shard.ID
		var term int32
		b := s.launch("b", nil)
		s.mu.Lock()
		begun, warm := s.begun, s.warm
		s.catching = func(c *fakeWork) {
			s.mu.Lock()
			first := moved == shard.ID{}
			if first {
				moved = c.work.Shard.ID
			}
			s.mu.Unlock()
			if !first {
				return
			}
			name := leaseapi.ShardLease("flotilla", moved)
			term = *s.store.Get(name).Spec.LeaseTransitions
			b.client.Block("create")
			s.store.Remove(name)
			time.Sleep(100 * time.Millisecond) // virtual: until the member has heard of it
			time.AfterFunc(time.Second, func() { b.client.Unblock("create") })
		}
		s.mu.Unlock()
		pass(30 * time.Second)

		s.mu.Lock()
		begun, warm = s.begun-begun, s.warm-warm
		ended := 0
		for _, e := range s.events {
			if e.ID == moved && e.Type == election.EventEnded && e.Reason == election.ReasonWorkReturned {
				ended++
			}
		}
		s.mu.Unlock()
		lease := s.store.Get(leaseapi.ShardLease("flotilla", moved))
		if (moved == shard.ID{}) || lease == nil || *lease.Spec.HolderIdentity != b.incarnation || *lease.Spec.LeaseTransitions != term {
			t.Fatalf("the Lease of %s is %+v, want %s in term %d", moved, lease, b.incarnation, term)
		}
		if begun != warm || ended > 0 {
			t.Errorf("%d shards began, %d of them with prepared caches, and %d claims ended", begun, warm, ended)
		}
		s.allHeld("a", "b")
	})
}

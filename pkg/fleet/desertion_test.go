package fleet

import (
	"context"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// endless is an instance whose caches never fill.
type endless struct{ Instance }

func (endless) Warm(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// TestSuccessorThatIsNeverFilled has a successor with a cache that never fills. While the
// predecessors run, it waits, and does not keep the slot that other shards need. When their holder
// has gone, nobody else does the work: the shard begins, as it does after any takeover.
func TestSuccessorThatIsNeverFilled(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		known := map[shard.ID]bool{}
		for i := range s.plan.Rings {
			for j := range s.plan.Rings[i].Shards {
				known[s.plan.Rings[i].Shards[j].ID] = true
				s.plan.Rings[i].Shards[j].Pin = "a"
			}
		}
		a := s.launch("a", nil)
		b := s.launch("b", func(c *Config) {
			c.Handoffs = 1
			build := c.Build
			c.Build = func(ctx context.Context, w Work) (Instance, error) {
				instance, err := build(ctx, w)
				if !known[w.Shard.ID] {
					instance = endless{instance}
				}
				return instance, err
			}
		})
		pass(time.Minute)
		s.allHeld("a")
		s.apply(s.next(func(r *shard.Ring) {
			merge(r, 0)
			r.Shards[0].Pin = "b"
		}))
		pass(10 * time.Minute)
		successor := shard.ID{}
		for _, state := range b.Shards() {
			if state.Owned && !known[state.ID] {
				successor = state.ID
				if !state.Waiting || state.Running || state.State != StateWaiting {
					t.Errorf("%+v: want it to wait", state)
				}
			}
		}
		if successor == (shard.ID{}) {
			t.Fatal("b has not claimed the successor")
		}
		var moves shard.ID
		s.apply(s.next(func(r *shard.Ring) {
			moves, r.Shards[1].Pin = r.Shards[1].ID, "b"
		}))
		pass(b.longestFill())
		if holder := s.store.Get(leaseapi.ShardLease("flotilla", moves)).Spec.HolderIdentity; leaserecord.MemberOf(*holder) != "b" {
			t.Errorf("%s is still held by %s: the only slot is kept by a shard whose caches never fill", moves, *holder)
		}
		works := func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			_, does := s.workers[successor]
			return does
		}
		a.stop()
		<-a.ended
		pass(fillTimeouts*DefaultHandoffTimeout - 10*time.Second)
		if works() {
			t.Error("the successor begins before its caches had their time")
		}
		pass(20 * time.Second)
		s.allHeld("b")
		if !works() {
			t.Errorf("nobody works on %s, whose predecessors have gone", successor)
		}
	})
}

package fleet

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestReadyThroughATakeover checks that a ready member stays ready while it takes over a dead
// member's shards, as long as that indicates no fault. A member that has just started must not be
// ready before it is complete.
func TestReadyThroughATakeover(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		var broken bool // The work of a shard cannot be built.
		fails := func(c *Config) {
			build := c.Build
			c.Build = func(ctx context.Context, w Work) (Instance, error) {
				s.mu.Lock()
				fault := broken
				s.mu.Unlock()
				if fault {
					return nil, errors.New("no right to list secrets")
				}
				return build(ctx, w)
			}
		}
		setBroken := func(to bool) { s.mu.Lock(); broken = to; s.mu.Unlock() }
		a := s.launch("a", fails)
		pass(2 * time.Second)
		if a.Ready() == nil {
			t.Error("ready before it runs anything")
		}
		pass(time.Minute)
		b := s.launch("b", fails)
		pass(time.Minute)
		s.allHeld("a", "b")
		setBroken(true)
		b.client.Block()
		incomplete := time.Duration(0)
		for took := time.Duration(0); took < patience+time.Minute; took += time.Second {
			pass(time.Second)
			whole, ready := a.Complete(), a.Ready()
			if whole == nil {
				if ready != nil {
					t.Fatalf("runs everything, but is not ready: %v", ready)
				}
				continue
			}
			if isReady := ready == nil; isReady != (incomplete < patience) {
				t.Fatalf("for %v without a shard: ready: %v", incomplete, ready)
			}
			incomplete += time.Second
		}
		err := a.Ready()
		if err == nil || !strings.Contains(err.Error(), "member a does not yet run ") {
			t.Errorf("after %v without a shard, ready: %v", incomplete, err)
		}
		setBroken(false)
		pass(time.Minute)
		if err := a.Complete(); err != nil {
			t.Error(err)
		}
		if err := a.Ready(); err != nil {
			t.Error(err)
		}
	})
}

// TestReadyBesideARefusal checks that a member whose shards wait for a member that refuses the plan
// stays ready, and gets ready when it starts: the rollout that replaces the other must not stand
// still, and must not replace all at once. Nothing is unowned until a restarts: what it has
// released then waits for b, where they share a successor.
func TestReadyBesideARefusal(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		a, b := s.launch("a", nil), s.launch("b", picky)
		pass(time.Minute)
		s.allHeld("a", "b")
		s.apply(s.next(func(r *shard.Ring) {
			r.Controllers = append(r.Controllers, "strange-controller")
			for i := 0; i+1 < len(r.Shards); i++ {
				merge(r, i)
			}
			for i := range r.Shards {
				r.Shards[i].Home, r.Shards[i].Pin = "", "a"
			}
		}))
		pass(patience + time.Minute)
		covered := func(when string) {
			t.Helper()
			for i := range uint64(64) {
				if n := s.workersAt("job-controller", i<<58); n != 1 {
					t.Errorf("%s: %d shards are worked on that cover %d/64 of the keyspace", when, n, i)
				}
			}
		}
		covered("b refuses")
		if b.Refused() == nil || a.Complete() == nil {
			t.Fatalf("b refuses the plan: %v; a has everything: %v", b.Refused(), a.Complete())
		}
		if err := a.Ready(); err != nil {
			t.Errorf("a member that is prepared: %v", err)
		}
		a.stop()
		<-a.ended
		a = s.launch("a", nil)
		pass(time.Minute)
		if err := a.Ready(); err != nil {
			t.Errorf("a member that has started again and is prepared: %v", err)
		}
		b.stop()
		<-b.ended
		pass(time.Minute)
		covered("b has gone")
		if err := a.Complete(); err != nil {
			t.Error(err)
		}
	})
}

// TestPatienceIsNotRenewed checks that a member that is stuck with a shard gets no more time
// because a Lease or a leader lock flickers. After an outage as long as the patience it does.
func TestPatienceIsNotRenewed(t *testing.T) {
	stuck := missingError{"a", []shard.ID{{Ring: "namespaces", Name: "00"}}}
	other := missingError{"a", []shard.ID{{Ring: "namespaces", Name: "01"}}}
	gone := errors.New("its Lease is held by another process")
	type answer struct {
		after time.Duration
		err   error
		ready bool
	}
	for name, answers := range map[string][]answer{
		"never ready before": {{0, stuck, false}},
		"without an end":     {{0, nil, true}, {time.Minute, stuck, true}, {patience - 1, stuck, true}, {1, stuck, false}},
		"it flickers": {
			{0, nil, true}, {0, stuck, true}, {time.Minute, gone, false}, {time.Second, stuck, true}, {time.Minute, gone, false},
			{patience - 2*time.Minute - time.Second, stuck, false},
		},
		"it flickers at every other question": {
			{0, nil, true}, {0, stuck, true}, {time.Minute, gone, false}, {time.Minute, stuck, true}, {time.Minute, gone, false},
			{time.Minute, stuck, true}, {time.Minute, gone, false}, {time.Minute, stuck, false},
		},
		"another shard":      {{0, nil, true}, {0, stuck, true}, {patience - 1, other, true}, {1, other, true}, {patience - 1, other, false}},
		"complete meanwhile": {{0, nil, true}, {0, stuck, true}, {patience, nil, true}, {time.Second, stuck, true}},
		"a long outage": {
			{0, nil, true}, {0, stuck, true}, {time.Minute, gone, false}, {time.Minute, gone, false}, {patience - time.Minute, stuck, true},
			{patience, stuck, false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var r readiness
			now := time.Unix(1000, 0)
			for i, a := range answers {
				now = now.Add(a.after)
				if err := r.judge(a.err, now); (err == nil) != a.ready {
					t.Errorf("answer %d: %v, want ready: %t", i, err, a.ready)
				}
			}
		})
	}
}

// TestReadyNamesAnotherProtocol starts a member while one of another build is live.
func TestReadyNamesAnotherProtocol(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		name := leaserecord.MemberLease("flotilla", "old")
		old := leasetest.Lease(name, "old_1", 1)
		old.Annotations = map[string]string{leaserecord.StateAnnotation: string(membership.Active)}
		s.store.Put(old)
		a := s.launch("a", nil)
		for range 10 {
			s.store.Tamper(name, func(l *coordinationv1.Lease) { l.Spec.RenewTime.Time = l.Spec.RenewTime.Add(time.Second) })
			pass(2 * time.Second)
		}
		if err := a.Ready(); err == nil || !strings.Contains(err.Error(), "member old_1 follows protocol 1") {
			t.Errorf("Ready() = %v, want the member of another protocol", err)
		}
	})
}

package fleet

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

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

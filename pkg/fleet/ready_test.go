package fleet

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestReadyThroughATakeover: a member that has been ready stays so while it takes over what a dead one
// had, for as long as that is no fault; one that has just started is not ready before it is complete.
func TestReadyThroughATakeover(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *sea) {
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
					t.Fatalf("runs everything, and is not ready: %v", ready)
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

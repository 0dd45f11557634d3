package fleet

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// wedged is work that does not return before free is closed.
type wedged struct {
	Instance
	free <-chan struct{}
}

func (w wedged) Run(ctx context.Context) error {
	err := w.Instance.Run(ctx)
	<-w.free
	return err
}

// unending is work whose methods hang: Close, and Warm if it should.
type unending struct {
	Instance
	warm bool
	free <-chan struct{}
}

func (u unending) Close() { <-u.free; u.Instance.Close() }

func (u unending) Warm(ctx context.Context) error {
	if u.warm {
		<-u.free
	}
	return u.Instance.Warm(ctx)
}

// TestAPreparationThatDoesNotEnd checks that the process ends then: the member would never prepare
// the shard again, nor be able to leave.
func TestAPreparationThatDoesNotEnd(t *testing.T) {
	for _, hangs := range []string{"Close", "Warm", "Build"} {
		t.Run(hangs, func(t *testing.T) { preparationThatDoesNotEnd(t, hangs) })
	}
}

func preparationThatDoesNotEnd(t *testing.T, hangs string) {
	inBubble(t, 2, func(t *testing.T, s *testFleet) {
		s.launch("a", nil)
		pass(20 * time.Second)
		free := make(chan struct{})
		b := s.launch("b", func(c *Config) {
			build := c.Build
			c.Build = func(ctx context.Context, w Work) (Instance, error) {
				if hangs == "Build" {
					<-free
				}
				instance, err := build(ctx, w)
				return unending{instance, hangs == "Warm", free}, err
			}
			c.Standby = true // so that it has prepared shards that it is not about to take
		})
		s.joins("b")
		pass(time.Minute)
		b.stop()
		pass(DefaultHandoffTimeout*discardTimeouts - time.Second)
		s.mu.Lock()
		early := len(s.exits)
		s.mu.Unlock()
		pass(2 * time.Second)
		s.mu.Lock()
		exits := s.exits
		s.exits = nil
		s.mu.Unlock()
		if early > 0 || len(exits) == 0 || !strings.HasPrefix(exits[0], "what was prepared for ") {
			t.Errorf("the process was ended for %q, %d times too early; want it for a preparation, and not too early", exits, early)
		}
		close(free)
		<-b.ended
	})
}

// wedgedProcess is a member whose work is wedged, with a record of what happened.
type wedgedProcess struct {
	*process
	free func()

	mu       sync.Mutex
	draining time.Time
	// overdue and exits are the times after draining at which EventOverdue came and Exit was
	// called.
	overdue, exits []time.Duration
	reason         string
	released       int
}

// launchWedged launches a member whose work on the shard does not return.
func (s *testFleet) launchWedged(name string, id shard.ID, change func(*Config)) *wedgedProcess {
	h, free := &wedgedProcess{}, make(chan struct{})
	h.free = sync.OnceFunc(func() { close(free) })
	h.process = s.launch(name, func(c *Config) {
		change(c)
		build := c.Build
		c.Build = func(ctx context.Context, w Work) (Instance, error) {
			instance, err := build(ctx, w)
			if w.Shard.ID == id && err == nil {
				instance = wedged{instance, free}
			}
			return instance, err
		}
		c.Exit = func(reason string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.exits, h.reason = append(h.exits, time.Since(h.draining)), reason
		}
		observe := c.Observe
		c.Observe = func(e Event) {
			observe(e)
			if e.ID != id {
				return
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			switch e.Type {
			case election.EventDraining:
				h.draining = time.Now()
			case EventOverdue:
				h.overdue = append(h.overdue, time.Since(h.draining))
			case election.EventReleased:
				h.released++
			}
		}
	})
	s.t.Cleanup(h.free)
	return h
}

// TestDrainThatDoesNotEnd uses a controller that never returns, in a shard that moves away and in a
// process that is told to stop. The process must end, and the shard's Lease must name it until
// then.
func TestDrainThatDoesNotEnd(t *testing.T) {
	const handoff, leaseDuration = 5 * time.Second, 15 * time.Second
	for name, tc := range map[string]struct {
		shutdown time.Duration
		leaves   bool
		want     time.Duration // after the fence has closed
	}{
		"the shard moves":                          {0, false, leaseDuration},
		"the shard moves, short shutdown":          {3 * time.Second, false, leaseDuration},
		"the process stops":                        {0, true, leaseDuration},
		"the process stops, short shutdown":        {3 * time.Second, true, 3 * time.Second},
		"the process stops, a minute to shut down": {time.Minute, true, leaseDuration},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 2, func(t *testing.T, s *testFleet) {
				id := shard.ID{Ring: "namespaces", Name: "00"}
				a := s.launchWedged("a", id, func(c *Config) { c.ShutdownTimeout, c.HandoffTimeout = tc.shutdown, handoff })
				pass(20 * time.Second)
				s.launch("b", nil)
				s.joins("b")
				s.drain("b", "x") // so that a keeps the shard until it is asked to stop
				pass(20 * time.Second)
				if tc.leaves {
					a.stop()
				} else {
					s.drain("a", "x")
					s.drain("b", "")
				}
				pass(50 * time.Second)
				a.mu.Lock()
				overdue, exits, released, reason := a.overdue, a.exits, a.released, a.reason
				a.mu.Unlock()
				if len(overdue) != 1 || overdue[0] != handoff {
					t.Errorf("%d events that the work is overdue, %v after it was asked to stop, want one after %v", len(overdue), overdue, handoff)
				}
				if len(exits) != 1 || exits[0] != handoff+tc.want {
					t.Errorf("the process was told to end %d times, %v after the work was asked to stop, want once after %v", len(exits), exits, handoff+tc.want)
				}
				if !strings.Contains(reason, leaseapi.ShardLease("flotilla", id)) {
					t.Errorf("the process ends because %q, want the Lease named", reason)
				}
				if holder := leaserecord.From(s.store.Get(leaseapi.ShardLease("flotilla", id))).Holder; released != 0 || holder != a.Incarnation() {
					t.Errorf("released %d times while the work runs, and held by %q, want %q", released, holder, a.Incarnation())
				}
				a.free()
				pass(time.Minute)
				s.allHeld("b")
			})
		})
	}
}

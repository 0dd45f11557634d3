package fleet

import (
	"context"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// slow is work that goes on writing after it was told to stop.
type slow struct {
	*fakeWork
	by time.Duration
}

func (w slow) Run(ctx context.Context) error {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(w.by, cancel) })()
	return w.fakeWork.Run(late)
}

// quiet is work that never writes.
type quiet struct{ *fakeWork }

func (w quiet) Run(ctx context.Context) error {
	w.work.Running()
	<-ctx.Done()
	w.Close()
	return nil
}

// slowWarm is work whose caches take long to fill after they have listed.
type slowWarm struct {
	*fakeWork
	by time.Duration
}

func (w slowWarm) Warm(ctx context.Context) error {
	defer time.Sleep(w.by) // virtual
	return w.fakeWork.Warm(ctx)
}

// with replaces the work of a member.
func with(replace func(*fakeWork) Instance) func(*Config) {
	return func(c *Config) {
		build := c.Build
		c.Build = func(ctx context.Context, w Work) (Instance, error) {
			instance, err := build(ctx, w)
			if err != nil {
				return nil, err
			}
			return replace(instance.(*fakeWork)), nil
		}
	}
}

// TestWhatOthersWroteIsSeen splits a shard, and moves its parts on to a member that began to
// prepare for them while their predecessor still wrote. The last holder's records on the Leases say
// nothing of those writes.
func TestWhatOthersWroteIsSeen(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, s *testFleet) {
		s.launch("a", with(func(c *fakeWork) Instance { return slow{c, 3 * time.Second} }))
		pass(20 * time.Second)
		s.launch("b", with(func(c *fakeWork) Instance { return quiet{c} }))
		s.launch("c", with(func(c *fakeWork) Instance { return slowWarm{c, 5 * time.Second} }))
		s.joins("b")
		s.joins("c")
		s.drain("b", "x")
		s.drain("c", "x")
		pass(20 * time.Second)
		s.allHeld("a")
		s.drain("a", "x")
		s.drain("b", "")
		s.apply(s.next(func(r *shard.Ring) { split(r, 0) }))
		pass(1500 * time.Millisecond)
		s.drain("b", "x")
		s.drain("c", "")
		before := s.counts()
		pass(20 * time.Second)
		s.allHeld("c")
		if after := s.counts(); after.warm == before.warm {
			t.Error("nothing began with caches that had been prepared")
		}
	})
}

// TestSlowFillIsNotBegunAgain has the holder of everything die while another member, which will own
// it all, still fills its caches, for much longer than a step of a handoff may take. Nothing is
// thrown away and listed again, unless it takes very long: then the work begins with empty caches.
func TestSlowFillIsNotBegunAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		takes time.Duration
		warm  bool
	}{
		"slow": {time.Minute, true},
		"hung": {time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 2, func(t *testing.T, s *testFleet) {
				a := s.launch("a", nil)
				pass(20 * time.Second)
				s.drain("a", "x")
				s.launch("b", with(func(c *fakeWork) Instance { return slowWarm{c, tc.takes} }))
				s.joins("b")
				pass(5 * time.Second)
				before := s.counts()
				a.client.Block()
				pass(3 * time.Minute)
				s.allHeld("b")
				after := s.counts()
				want := 0
				if tc.warm {
					want = len(s.plan.Shards())
				}
				if began, warm := after.begun-before.begun, after.warm-before.warm; began != len(s.plan.Shards()) || warm != want {
					t.Errorf("%d shards began, %d of them with the caches that were being filled, want %d, %d of them", began, warm, len(s.plan.Shards()), want)
				}
				pass(time.Hour)
			})
		})
	}
}

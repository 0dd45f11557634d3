package fleet

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// behind is an instance whose caches never see the last writes.
type behind struct{ Instance }

func (behind) CatchUp(context.Context, fence.Writes) error { return errors.New("it is behind") }

// TestSuccessorFencesThoseThatDiedWhileItWaited tests a shard with two predecessors: one is
// released, and the holder of the other dies. The caches do not catch up with the former, so the
// shard begins with empty ones. Nothing may begin before the latter is fenced.
func TestSuccessorFencesThoseThatDiedWhileItWaited(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, s *testFleet) {
		for i := range s.plan.Rings {
			for j := range s.plan.Rings[i].Shards {
				s.plan.Rings[i].Shards[j].Pin = "a"
			}
		}
		s.plan.Rings[0].Shards[1].Pin = "b"
		s.guard("a", true, nil)
		b := s.guard("b", true, nil)
		c := s.guard("c", true, func(c *Config) {
			build := c.Build
			c.Build = func(ctx context.Context, w Work) (Instance, error) {
				instance, err := build(ctx, w)
				return behind{instance}, err
			}
		})
		pass(time.Minute)
		s.allHeld("a", "b")
		if err := b.publish("JTI=1"); err != nil {
			t.Fatal(err)
		}
		b.client.Block()
		s.apply(s.next(func(r *shard.Ring) {
			merge(r, 0)
			r.Shards[0].Pin = "c"
		}))
		pass(40 * time.Second)
		s.allHeld("a", "c")
		marks := s.marks(b.Incarnation())
		if len(marks) != 1 {
			t.Fatalf("%d writes fenced the dead member, want 1", len(marks))
		}
		for id, at := range c.begunSince(time.Time{}) {
			if waited := at.Sub(marks[0].Time); waited < fenceDelay {
				t.Errorf("%s began %v after the mark, want %v or more", id, waited, fenceDelay)
			}
		}
	})
}

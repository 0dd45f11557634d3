package fleet

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// failing is work whose first attempt writes, closes its fence, and fails.
type failing struct {
	*fakeWork
	work   Work
	failed *bool
}

func (f failing) Run(ctx context.Context) error {
	if *f.failed {
		return f.fakeWork.Run(ctx)
	}
	*f.failed = true
	f.write()
	f.work.Close()
	<-f.work.Closed
	if term := f.work.Term(); term != 0 {
		return fmt.Errorf("the fence is closed, in term %d", term)
	}
	f.Close()
	return errors.New("a test fails")
}

// TestFailedWorkIsNotForgotten makes work fail after it may have written. The Lease must not record
// last writes, even once another attempt has succeeded.
func TestFailedWorkIsNotForgotten(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, s *testFleet) {
		id := shard.ID{Ring: "namespaces", Name: "00"}
		failed := false
		a := s.launch("a", func(c *Config) {
			build := c.Build
			c.Build = func(ctx context.Context, w Work) (Instance, error) {
				instance, err := build(ctx, w)
				if w.Shard.ID != id {
					return instance, err
				}
				return failing{instance.(*fakeWork), w, &failed}, err
			}
		})
		pass(time.Minute)
		s.allHeld("a")
		if !failed {
			t.Fatal("the first attempt has not been made")
		}
		a.stop()
		<-a.ended
		for _, proc := range s.plan.Shards() {
			_, left := s.store.Get(leaseapi.ShardLease("flotilla", proc.ID)).Annotations[leaserecord.WritesAnnotation]
			if left == (proc.ID == id) {
				t.Errorf("%s: the Lease records last writes: %t", proc.ID, left)
			}
		}
	})
}

package fleet

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// slowLeases take a second for each request, and count those under way.
type slowLeases struct {
	Leases
	now, most atomic.Int32
}

func (s *slowLeases) Update(context.Context, *coordinationv1.Lease, metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	s.most.Store(max(s.most.Load(), s.now.Add(1)))
	defer s.now.Add(-1)
	time.Sleep(time.Second)
	return nil, nil
}

// TestShardRequestsTakeTurns: no more than some at a time, and one whose time is up does not wait on.
func TestShardRequestsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowLeases{}
		client := turns{slow, make(chan struct{}, shardRequests)}
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		var done, late atomic.Int32
		for range 5 * shardRequests {
			all.Go(func() {
				if _, err := client.Update(ctx, nil, metav1.UpdateOptions{}); err != nil {
					late.Add(1)
				} else {
					done.Add(1)
				}
			})
		}
		all.Wait()
		if slow.most.Load() != shardRequests {
			t.Errorf("%d requests were under way at a time, want %d", slow.most.Load(), shardRequests)
		}
		if done.Load() != 3*shardRequests || late.Load() != 2*shardRequests {
			t.Errorf("%d requests were answered and %d came too late, want %d and %d", done.Load(), late.Load(), 3*shardRequests, 2*shardRequests)
		}
	})
}

package fleet

import (
	"context"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// beforeClaim calls happens just before a member claims a shard.
type beforeClaim struct {
	*leasetest.Client
	lease, member string
	happens       func()
}

func (c beforeClaim) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if holder := lease.Spec.HolderIdentity; lease.Name == c.lease && holder != nil && leaserecord.MemberOf(*holder) == c.member {
		c.happens()
	}
	return c.Client.Update(ctx, lease, opts)
}

// TestPreflightIsNotBeforeTheClaim claims a shard of another plan, and begins its work, in the moment
// before b claims a shard that overlaps with it. b's watch reports that only later, or not at all:
// b must wait for the watch, or list the Leases.
func TestPreflightIsNotBeforeTheClaim(t *testing.T) {
	for name, late := range map[string]func(*leasetest.Client){
		"the watch lags":  func(c *leasetest.Client) { c.LagWatch(700 * time.Millisecond) },
		"the watch hangs": func(c *leasetest.Client) { c.Block("watch") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 8, func(t *testing.T, s *testFleet) {
				s.launch("a", nil)
				pass(time.Minute)
				first := shard.ID{Ring: "namespaces", Name: "00"}
				elsewhere := shard.ID{Ring: "namespaces", Name: "elsewhere"}
				holder := leaserecord.NewIncarnation("x")
				var once sync.Once
				var b *process
				claimed := make(chan struct{})
				b = s.launch("b", func(c *Config) {
					client := c.Leases.(*leasetest.Client)
					c.Leases = beforeClaim{client, leaseapi.ShardLease("flotilla", first), "b", func() {
						once.Do(func() {
							lease := s.store.Get(leaseapi.ShardLease("flotilla", first)).DeepCopy()
							lease.Name, lease.UID, lease.ResourceVersion = leaseapi.ShardLease("flotilla", elsewhere), "", ""
							lease.Labels[leaseapi.ShardLabel] = elsewhere.Name
							lease.Spec.HolderIdentity = &holder
							late(client)
							s.store.Put(lease)
							s.mu.Lock()
							defer s.mu.Unlock()
							s.workers[elsewhere] = worker{holder, s.plan.Extents()[first], time.Now()}
							close(claimed)
						})
					}}
				})
				<-claimed
				pass(5 * time.Second) // work that begins now fails the test
				b.client.Heal()
				s.mu.Lock()
				delete(s.workers, elsewhere)
				s.mu.Unlock()
				s.store.Tamper(leaseapi.ShardLease("flotilla", elsewhere), func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil })
				pass(time.Minute)
				s.allHeld("a", "b")
			})
		})
	}
}

package fleet

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// coldUnheld makes work fail to build unless Work.Unheld is set. The work itself checks whether it
// is true.
func coldUnheld(c *Config) {
	build := c.Build
	c.Build = func(ctx context.Context, w Work) (Instance, error) {
		if w.Unheld.IsZero() {
			return nil, errors.New("a test refuses")
		}
		return build(ctx, w)
	}
}

func (s *testFleet) requireUnheld(when string, want int) {
	s.t.Helper()
	if got := s.counts().unheld; got != want {
		s.t.Errorf("%s: %d shards began with Unheld set, want %d", when, got, want)
	}
}

// TestUnheld starts and ends a member in all ways, and checks when Work.Unheld is set.
func TestUnheld(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		all := len(s.plan.Shards())
		a := s.launch("a", coldUnheld)
		pass(time.Minute)
		s.allHeld("a")
		s.requireUnheld("nobody was there", all)
		a.stop()
		<-a.ended
		b := s.launch("b", coldUnheld)
		pass(time.Minute)
		s.allHeld("b")
		s.requireUnheld("the last member has released all", 2*all)
		b.client.Block()
		s.launch("c", nil)
		pass(5 * time.Minute)
		s.allHeld("c")
		s.requireUnheld("the last member has died", 2*all)
	})
}

// TestUnheldWhileWaitingForLeaderLock lets the stock controller manager write until it releases its
// Lease, long after the Leases of the shards were free.
func TestUnheldWhileWaitingForLeaderLock(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		s.store.Put(foreign("kube-controller-manager", "stock_1"))
		s.launch("a", func(c *Config) {
			c.LeaderLocks, c.LeaderLockDelay = []string{"kube-controller-manager"}, 3*time.Second
			coldUnheld(c)
		})
		pass(5 * time.Minute)
		s.stockReleases()
		pass(2 * time.Second)
		s.stockWrites() // it had not stopped yet
		pass(time.Minute)
		s.allHeld("a")
		s.requireUnheld("after the leader lock", len(s.plan.Shards()))
	})
}

// TestUnheldOfPredecessors goes back to a plan whose shards nobody has held for long. The observing
// member takes nothing over from live members. A shard of the plan in between was held until just
// before.
func TestUnheldOfPredecessors(t *testing.T) {
	for name, lost := range map[string]bool{"all writes are known": false, "one is not": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 4, func(t *testing.T, s *testFleet) {
				a := s.launch("a", nil)
				pass(time.Minute)
				b := s.launch("b", func(c *Config) {
					build := c.Build
					c.Build = func(ctx context.Context, w Work) (Instance, error) {
						if s.holders()["a"] > 0 {
							return nil, errors.New("a test refuses")
						}
						return build(ctx, w)
					}
				})
				first := s.plan
				next := s.next(func(r *shard.Ring) { merge(r, 1) })
				s.apply(next)
				pass(time.Minute)
				s.requireWorked()
				b.client.Block("create", "update") // or the plan in between begins
				a.stop()
				<-a.ended
				if lost {
					s.forgetWrites(shard.ID{Ring: "namespaces", Name: "g2-00"})
				}
				before := s.counts().unheld
				s.apply(must(next.Successor(first)))
				pass(time.Second)
				b.client.Unblock("create", "update")
				pass(time.Minute)
				s.allHeld("b")
				if told := s.counts().unheld - before; told > 0 == lost {
					t.Errorf("%d of %d shards began with Unheld set", told, len(s.plan.Shards()))
				}
			})
		})
	}
}

// TestUnheldAfterDeletion deletes a Lease under its holder, which is cut off and writes for as long
// as it may.
func TestUnheldAfterDeletion(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		id := s.plan.Shards()[0].ID
		var held *fakeWork
		a := s.launch("a", func(c *Config) {
			build := c.Build
			c.Build = func(ctx context.Context, w Work) (Instance, error) {
				instance, err := build(ctx, w)
				if w.Shard.ID == id {
					held = instance.(*fakeWork)
				}
				return instance, err
			}
		})
		pass(time.Minute)
		s.allHeld("a")
		a.client.Block()
		s.store.Remove(leaseapi.ShardLease("flotilla", id))
		before, written := s.counts().unheld, s.counts().version
		s.launch("b", nil)
		pass(3 * time.Second)
		held.write()
		if s.counts().version == written {
			t.Fatal("the holder could not write")
		}
		pass(5 * time.Minute)
		s.allHeld("b")
		s.requireUnheld("one Lease was gone, the others' holder has died", before+1)
	})
}

// TestUnheldByOthers makes a second member prepare for shards that the first one holds and took
// over from another.
func TestUnheldByOthers(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		first := s.launch("z", nil)
		pass(time.Minute)
		s.launch("a", nil)
		pass(delay / 2)
		first.stop()
		<-first.ended
		pass(time.Minute)
		s.allHeld("a")
		before := s.counts()
		s.launch("b", nil)
		pass(time.Minute)
		s.allHeld("a", "b")
		if moved, told := s.counts().warm-before.warm, s.counts().told-before.told; moved == 0 || told < moved {
			t.Errorf("%d prepared shards moved, and %d preparations had Unheld set", moved, told)
		}
	})
}

// forgetWrites removes the record of the last writes from the Lease of a shard.
func (s *testFleet) forgetWrites(id shard.ID) {
	s.store.Tamper(leaseapi.ShardLease("flotilla", id), func(l *coordinationv1.Lease) { delete(l.Annotations, leaserecord.WritesAnnotation) })
}

// failing is work whose first attempt writes and fails.
type failing struct {
	*fakeWork
	failed *bool
}

func (f failing) Run(ctx context.Context) error {
	if *f.failed {
		return f.fakeWork.Run(ctx)
	}
	*f.failed = true
	f.write()
	f.Close()
	return errors.New("a test fails")
}

// TestFailedWorkIsNotForgotten makes work fail after it may have written. Work.Unheld must not be
// set for the next attempt, and the Lease must not record last writes.
func TestFailedWorkIsNotForgotten(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, s *testFleet) {
		id := shard.ID{Ring: "namespaces", Name: "00"}
		failed := false
		var unheld []bool
		a := s.launch("a", func(c *Config) {
			build := c.Build
			c.Build = func(ctx context.Context, w Work) (Instance, error) {
				instance, err := build(ctx, w)
				if w.Shard.ID != id {
					return instance, err
				}
				unheld = append(unheld, !w.Unheld.IsZero())
				return failing{instance.(*fakeWork), &failed}, err
			}
		})
		pass(time.Minute)
		s.allHeld("a")
		if !slices.Equal(unheld, []bool{true, false}) {
			t.Errorf("attempts had Unheld set: %v, want only the first", unheld)
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

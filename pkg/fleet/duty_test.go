package fleet

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// clumsy is a client whose marks fail, or that hears nothing of the first Lease that it acquires
// from c, until it is told to do better.
type clumsy struct {
	*leasetest.Client
	cannotMark, deaf atomic.Bool
	lost             atomic.Int32
}

func (c *clumsy) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if lease.Name == "flotilla-member-c" && c.cannotMark.Load() {
		return nil, apierrors.NewServerTimeout(leases, "update", 1)
	}
	written, err := c.Client.Update(ctx, lease, opts)
	if c.deaf.Load() && err == nil && ptr.Deref(lease.Spec.HolderIdentity, "") != "" && ptr.Deref(lease.Spec.LeaseTransitions, 0) == 2 {
		c.lost.Add(1)
		return nil, errors.New("the answer was lost")
	}
	return written, err
}

// unfenced returns what the shards' Leases say of whom their holders have to fence.
func (s *sea) unfenced() map[string][]string {
	found := map[string][]string{}
	for _, sh := range s.plan.Shards() {
		name := ShardLease("flotilla", sh.ID)
		if owed := election.RecordFrom(s.store.Get(name)).Unfenced(); len(owed) > 0 {
			found[name] = owed
		}
	}
	return found
}

// TestDutyToFenceIsNotLost has c die with all shards, and a, who takes them over, not get to fence
// it.
func TestDutyToFenceIsNotLost(t *testing.T) {
	for name, tc := range map[string]struct {
		deaf bool
		// next is what becomes of a; nil if it carries on.
		next func(s *sea, a *guarded)
		by   string
	}{
		"the reply of the acquisition is lost": {deaf: true, by: "a"},
		"given up before the mark":             {next: func(_ *sea, a *guarded) { a.stop() }, by: "b"},
		"the taker dies before the mark":       {next: func(_ *sea, a *guarded) { a.client.Block() }, by: "b"},
		"the taker dies, and the Lease is acquired without the duty being known to it": {next: func(s *sea, a *guarded) {
			// As a member of an older version would, that does not know the annotation: it leaves
			// it as it is.
			a.client.Block()
			for _, sh := range s.plan.Shards() {
				s.store.Tamper(ShardLease("flotilla", sh.ID), func(l *coordinationv1.Lease) {
					*l.Spec.LeaseTransitions++
					l.Spec.HolderIdentity = ptr.To("")
				})
			}
		}, by: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			inRenewingBubble(t, 2, func(t *testing.T, s *sea) {
				c := s.guard("c", true, nil)
				pass(time.Minute)
				s.allHeld("c")
				if err := c.publish("JTI=1"); err != nil {
					t.Fatal(err)
				}
				client := &clumsy{}
				client.deaf.Store(tc.deaf)
				client.cannotMark.Store(tc.next != nil)
				c.client.Block()
				a := s.guard("a", true, func(c *Config) { client.Client = c.Leases.(*leasetest.Client); c.Leases = client })
				died := time.Now()
				pass(25 * time.Second) // the Leases have expired, and a has acquired them
				for _, sh := range s.plan.Shards() {
					if holder := election.RecordFrom(s.store.Get(ShardLease("flotilla", sh.ID))).Holder; holder != a.Incarnation() {
						t.Fatalf("%s is held by %q, want a", sh.ID, holder)
					}
				}
				if tc.deaf && client.lost.Load() == 0 {
					t.Fatal("no answer was lost")
				}
				client.deaf.Store(false)
				last := a
				if tc.next != nil {
					if owed := s.unfenced(); len(owed) != len(s.plan.Shards()) {
						t.Errorf("the Leases say that these have to be fenced: %v, want %s on each", owed, c.Incarnation())
					}
					tc.next(s, a)
					last = s.guard("b", true, nil)
				}
				pass(50 * time.Second)
				s.allHeld(tc.by)
				marks := s.marks(c.Incarnation())
				if len(marks) != 1 {
					t.Fatalf("%d writes fenced the dead member, want 1", len(marks))
				}
				begun := last.begunSince(died)
				if len(begun) == 0 {
					t.Error("nothing was begun")
				}
				for id, at := range begun {
					if waited := at.Sub(marks[0].Time); waited < fenceDelay {
						t.Errorf("%s began %v after the mark, want %v or more", id, waited, fenceDelay)
					}
				}
				if left := s.unfenced(); len(left) != 0 {
					t.Errorf("the Leases still say that these have to be fenced: %v", left)
				}
			})
		})
	}
}

// TestDutyStaysWhereMarksAreRefused has nobody allowed to fence: the shards run, and the Leases go
// on saying whom.
func TestDutyStaysWhereMarksAreRefused(t *testing.T) {
	inRenewingBubble(t, 2, func(t *testing.T, s *sea) {
		c := s.guard("c", true, nil)
		pass(time.Minute)
		if err := c.publish("JTI=1"); err != nil {
			t.Fatal(err)
		}
		c.client.Block()
		forbidden := slices.Repeat([]error{apierrors.NewForbidden(leases, "", errors.New("not yours"))}, 100)
		s.guard("a", true, func(c *Config) { c.Leases = &unmarkable{c.Leases.(*leasetest.Client), forbidden} })
		pass(time.Minute)
		s.allHeld("a")
		for _, sh := range s.plan.Shards() {
			if owed := s.unfenced()[ShardLease("flotilla", sh.ID)]; !slices.Equal(owed, []string{c.Incarnation()}) {
				t.Errorf("%s says that %v have to be fenced, want %s", sh.ID, owed, c.Incarnation())
			}
		}
	})
}

// behind is an instance whose caches do not come to what was written last.
type behind struct{ Instance }

func (behind) CatchUp(context.Context, election.Writes) error { return errors.New("it is behind") }

// TestHeirFencesThoseThatDiedWhileItWaited has a shard inherit from one that is released and from
// one whose holder dies. Its caches do not catch up with the former, so that it begins with empty
// ones, and nothing is begun before the latter is fenced.
func TestHeirFencesThoseThatDiedWhileItWaited(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, s *sea) {
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

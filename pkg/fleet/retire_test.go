package fleet

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const mergedAway = "flotilla-namespaces-01"

// requireRetired fails unless the Lease is emptied, with an owner or without. It may have the
// annotations besides.
func (s *testFleet) requireRetired(name string, owned bool, besides ...string) {
	s.t.Helper()
	lease := s.store.Get(name)
	record := leaserecord.From(lease)
	maps.DeleteFunc(record.Annotations, func(key, _ string) bool { return slices.Contains(besides, key) })
	if !record.IsRetired() || !record.IsReleased() || len(record.Labels) != 0 || len(record.Annotations) != 2 || (len(lease.OwnerReferences) == 1) != owned {
		s.t.Errorf("%s is not retired, with an owner: %t: %+v", name, owned, lease)
	}
}

func (s *testFleet) isRetired(name string) bool {
	return leaserecord.From(s.store.Get(name)).IsRetired()
}

// TestLeasesOfShardsThatAreNoMoreAreRetired merges two shards, and splits them again.
func TestLeasesOfShardsThatAreNoMoreAreRetired(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		s.launch("a", nil)
		s.launch("b", nil)
		pass(time.Minute)
		before := s.plan
		s.apply(s.next(func(r *shard.Ring) { merge(r, 0) }))
		pass(time.Minute)
		s.allHeld("a", "b")
		if s.isRetired(mergedAway) {
			t.Error("a Lease is retired a minute after the last write on it")
		}
		pass(2 * time.Minute)
		s.requireRetired(mergedAway, true)
		for _, proc := range s.plan.Shards() {
			if s.isRetired(leaseapi.ShardLease("flotilla", proc.ID)) {
				t.Errorf("the Lease of %s is retired, although the plan has the shard", proc.ID)
			}
		}
		writes := len(s.store.History())
		pass(time.Minute)
		for _, w := range s.store.History()[writes:] {
			if w.After.Name == mergedAway {
				t.Error("a retired Lease is written again")
			}
		}
		term := leaserecord.From(s.store.Get(mergedAway)).Transitions

		s.apply(s.next(func(r *shard.Ring) { r.Shards = before.Rings[0].Shards }))
		pass(time.Minute)
		s.allHeld("a", "b")
		again := s.store.Get(mergedAway)
		if r := leaserecord.From(again); r.Transitions != term+1 || r.IsRetired() || len(again.OwnerReferences) > 0 || !maps.Equal(r.Labels, leaseapi.ShardLabels("flotilla", shard.ID{Ring: "namespaces", Name: "01"})) {
			t.Errorf("a shard of the same name, after term %d, has %+v", term, again)
		}
	})
}

// clinging cannot write one Lease, and so does not release it.
type clinging struct {
	*leasetest.Client
	to string
}

func (c *clinging) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if lease.Name == c.to {
		return nil, apierrors.NewForbidden(leases, lease.Name, errors.New("not this one"))
	}
	return c.Client.Update(ctx, lease, opts)
}

// TestNothingIsRetiredWhileAnythingMoves holds a shard that is in no plan: successors may need any
// Lease.
func TestNothingIsRetiredWhileAnythingMoves(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		s.launch("a", nil)
		c := s.launch("c", func(c *Config) { c.Leases = &clinging{c.Leases.(*leasetest.Client), "flotilla-namespaces-old"} })
		pass(time.Minute)
		held := foreign("flotilla-namespaces-old", c.Incarnation())
		held.Labels = leaseapi.ShardLabels("flotilla", shard.ID{Ring: "namespaces", Name: "old"})
		held.Annotations = map[string]string{leaseapi.RangeAnnotation: s.plan.Rings[0].Shards[3].Range.String(), leaseapi.ControllersAnnotation: "x"}
		s.apply(s.next(func(r *shard.Ring) { merge(r, 0) }))
		s.store.Put(held)
		pass(10 * time.Minute)
		if s.isRetired(mergedAway) || s.isRetired(held.Name) {
			t.Error("a Lease is retired while a Lease that is in no plan is held")
		}
		c.client.Block() // and so others list it as ended
		pass(90 * time.Second)
		if s.isRetired(held.Name) {
			t.Error("a Lease is retired soon after its holder's death")
		}
		pass(90 * time.Second)
		s.requireRetired(mergedAway, true)
		s.requireRetired(held.Name, true)
	})
}

// ownerless refuses owners, as OwnerReferencesPermissionEnforcement does for clients that may not
// delete.
type ownerless struct{ *leasetest.Client }

func (o *ownerless) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if len(lease.OwnerReferences) > 0 {
		return nil, apierrors.NewForbidden(leases, lease.Name, errors.New("cannot set an ownerReference"))
	}
	return o.Client.Update(ctx, lease, opts)
}

func TestRetiredWhereOwnersAreRefused(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		s.launch("a", func(c *Config) { c.Leases = &ownerless{c.Leases.(*leasetest.Client)} })
		pass(time.Minute)
		s.apply(s.next(func(r *shard.Ring) { merge(r, 0) }))
		pass(3 * time.Minute)
		s.requireRetired(mergedAway, false)
		if n := s.reported(EventRetired); n != 2 {
			t.Errorf("%d events, want one for each of the two that were merged", n)
		}
	})
}

// TestLeasesOfMembersThatAreGoneAreRetired stops a fleet for a day, and starts a part of it again.
func TestLeasesOfMembersThatAreGoneAreRetired(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		var processes []*process
		for _, name := range []string{"a", "b", "left", "drained", "died", "named"} {
			processes = append(processes, s.launch(name, nil))
		}
		pass(time.Minute)
		s.drain("drained", "for good")
		pass(time.Minute)
		for _, proc := range processes[2:4] {
			proc.stop()
			<-proc.ended
		}
		processes[4].client.Block()
		<-processes[4].ended
		pass(time.Minute)
		dies := func(name string) { // without a shard, so nobody lists it as ended
			lease := foreign(leaserecord.MemberLease("flotilla", name), name+"_1")
			lease.Annotations = map[string]string{leaserecord.StateAnnotation: string(membership.Active), leaserecord.ProtocolAnnotation: "2"}
			lease.Spec.LeaseDurationSeconds = ptr.To[int32](15)
			s.store.Put(lease)
		}
		dies("idle")
		dies("clung")
		foreigner := s.store.Get(leaserecord.MemberLease("flotilla", "idle"))
		foreigner.Name, foreigner.Labels = leaserecord.MemberLease("flotilla", "member-x"), map[string]string{leaseapi.FleetLabel: "flotilla-member"}
		foreigner.Spec.HolderIdentity = ptr.To("x_1")
		s.store.Put(foreigner)
		for _, proc := range []*process{processes[5], processes[0], processes[1]} {
			proc.stop()
			<-proc.ended
		}
		isRetired := func(member string) bool { return s.isRetired(leaserecord.MemberLease("flotilla", member)) }
		requireKept := func(when string, members ...string) {
			t.Helper()
			for _, name := range members {
				if isRetired(name) {
					t.Errorf("the Lease of %s is retired %s", name, when)
				}
			}
		}

		pass(3 * time.Hour)
		dies("late")
		pass(21 * time.Hour)
		clinging := func(c *Config) {
			c.Leases = &clinging{c.Leases.(*leasetest.Client), leaserecord.MemberLease("flotilla", "clung")}
		}
		s.launch("a", clinging)
		s.launch("b", clinging)
		pass(119 * time.Minute)
		requireKept("before it has been watched for two hours", "left", "died", "idle", "named", "late", "drained", "a", "b")
		held := foreign("flotilla-namespaces-old", processes[5].Incarnation())
		held.Labels = leaseapi.ShardLabels("flotilla", shard.ID{Ring: "namespaces", Name: "old"})
		s.store.Put(held)
		pass(90 * time.Second)
		for _, name := range []string{"left", "died", "idle"} {
			s.requireRetired(leaserecord.MemberLease("flotilla", name), true)
		}
		requireKept("while a shard's Lease names it", "named")
		pass(time.Minute)
		s.requireRetired(held.Name, true)
		// A member that has not yet seen the other Lease retired may list its holder as ended on this
		// one, which does not bring it back.
		s.requireRetired(leaserecord.MemberLease("flotilla", "named"), true, leaserecord.EndedAnnotation, leaserecord.ProtocolAnnotation)
		requireKept("although it is drained, or was there less than a day ago, or is another fleet's", "drained", "late", "member-x", "a", "b")
		if n := s.reported(EventRetired); n != 6 {
			t.Errorf("%d events, want one for each Lease, and one for that which cannot be written", n)
		}

		s.launch("left", nil)
		pass(time.Minute)
		s.allHeld("a", "b", "left")
		again := s.store.Get(leaserecord.MemberLease("flotilla", "left"))
		if r := leaserecord.From(again); r.IsRetired() || len(again.OwnerReferences) > 0 || r.Labels[leaseapi.FleetLabel] != "flotilla" {
			t.Errorf("a member that came back after all has %+v", again)
		}
	})
}

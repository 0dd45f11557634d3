package fleet

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/fleet/inforce"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// manyShards and manyMembers are the size of the benchmarks.
const (
	manyShards  = 1000
	manyMembers = 100
)

func manyShardsPlan(b *testing.B) *inforce.Plan {
	b.Helper()
	ranges, err := shard.EqualRanges(manyShards)
	if err != nil {
		b.Fatal(err)
	}
	ring := shard.Ring{Name: "namespaces", Scope: shard.ScopeNamespaced, Controllers: []string{"deployment", "replicaset"}}
	for i, r := range ranges {
		ring.Shards = append(ring.Shards, shard.Shard{ID: shard.ID{Ring: ring.Name, Name: fmt.Sprintf("%03d", i)}, Range: r})
	}
	return inforce.New(shard.Plan{Generation: 1, Rings: []shard.Ring{ring}})
}

// manyLeases returns the Leases of many active members.
func manyLeases(now time.Time) []*coordinationv1.Lease {
	var leases []*coordinationv1.Lease
	for i := range manyMembers {
		name := fmt.Sprintf("m-%d", i)
		holder, seconds := name+"_1", int32(15)
		leases = append(leases, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Name: leaserecord.MemberLease("flotilla", name), ResourceVersion: strconv.Itoa(i + 1),
				Labels:      map[string]string{leaseapi.FleetLabel: "flotilla", leaseapi.KindLabel: leaseapi.KindMember},
				Annotations: map[string]string{leaserecord.StateAnnotation: string(membership.Active)},
			},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: now}, AcquireTime: &metav1.MicroTime{Time: now},
			},
		})
	}
	return leases
}

// manyHolders returns who should hold what.
func manyHolders(b *testing.B, plan *inforce.Plan, now time.Time) (assignment.Assignment, membership.Roster, []membership.Member, map[shard.ID]string) {
	b.Helper()
	var seen []election.Observation
	for _, l := range manyLeases(now) {
		o, _ := election.Observation{}.Saw(l, now)
		seen = append(seen, o)
	}
	roster, known := membership.RosterFrom("flotilla", seen, 15*time.Second, now), leaseapi.KnownMembers("flotilla", seen)
	a, err := assignment.Of(plan.Plan, plan.Digest(), roster, known, nil, assignment.Assignment{})
	if err != nil || len(a.Members()) != manyMembers {
		b.Fatalf("%d members, %v", len(a.Members()), err)
	}
	holders := map[shard.ID]string{}
	for _, s := range plan.Shards() {
		holders[s.ID] = a.Owner(s.ID)
	}
	return a, roster, known, holders
}

// BenchmarkAssignment measures the pure part of what a member computes when shards have moved, with
// 100 members and 1,000 shards.
func BenchmarkAssignment(b *testing.B) {
	now, plan := time.Unix(1000, 0), manyShardsPlan(b)
	a, roster, known, holders := manyHolders(b, plan, now)
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if a, err = assignment.Of(plan.Plan, plan.Digest(), roster, known, holders, a); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAssign measures all that a member computes when shards have moved, with 100 members and
// 1,000 shards.
func BenchmarkAssign(b *testing.B) {
	clock := election.NewClock()
	now, plan := clock.Now(), manyShardsPlan(b)
	m, err := New(Config{
		Fleet: "flotilla", Member: "m-0", Plan: plan.Plan, Leases: leasetest.NewStore().Client("m-0"), Clock: clock,
		Timing: election.DefaultTiming(), Build: func(context.Context, Work) (Instance, error) { return nil, nil }, Exit: func(string) {},
	})
	if err != nil {
		b.Fatal(err)
	}
	m.inForce.Store(plan)
	_, _, _, holders := manyHolders(b, plan, now)
	list := &coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: "2000"}}
	for _, l := range manyLeases(now) {
		list.Items = append(list.Items, *l)
	}
	for i, s := range plan.Shards() {
		holder, term, seconds := holders[s.ID]+"_1", int32(1), int32(15)
		list.Items = append(list.Items, coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Name: leaseapi.ShardLease("flotilla", s.ID), ResourceVersion: strconv.Itoa(manyMembers + i + 1), Labels: leaseapi.ShardLabels("flotilla", s.ID),
			},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseTransitions: &term, LeaseDurationSeconds: &seconds},
		})
	}
	m.observer.Listed(list)
	ctx, stop := context.WithCancel(b.Context())
	stop() // no runner claims anything
	for _, s := range plan.Shards() {
		r, err := m.newShardRunner(s, plan)
		if err != nil {
			b.Fatal(err)
		}
		m.runners.addLocked(r)
	}
	moving := list.Items[manyMembers].DeepCopy()
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		next := moving.DeepCopy()
		next.ResourceVersion, *next.Spec.LeaseTransitions = strconv.Itoa(3000+n), int32(n+2)
		m.observer.Observe(next)
		m.assign(ctx, ctx)
	}
	if owner := m.Assignment().Owner(plan.Shards()[0].ID); owner != holders[plan.Shards()[0].ID] {
		b.Fatalf("the first shard is given to %q, want %q", owner, holders[plan.Shards()[0].ID])
	}
}

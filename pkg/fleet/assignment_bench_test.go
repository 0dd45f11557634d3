package fleet

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// BenchmarkAssign measures what a member computes whenever a shard has moved, with 100 members and
// 1,000 shards.
func BenchmarkAssign(b *testing.B) {
	ranges, err := shard.EqualRanges(1000)
	if err != nil {
		b.Fatal(err)
	}
	ring := shard.Ring{Name: "namespaces", Scope: shard.ScopeNamespaced, Controllers: []string{"deployment", "replicaset"}}
	for i, r := range ranges {
		ring.Shards = append(ring.Shards, shard.Shard{ID: shard.ID{Ring: ring.Name, Name: fmt.Sprintf("%03d", i)}, Range: r})
	}
	plan := newInForce(shard.Plan{Generation: 1, Rings: []shard.Ring{ring}})
	now := time.Unix(1000, 0)
	var leases []election.Observation
	for i := range 100 {
		name := fmt.Sprintf("m-%d", i)
		holder, seconds := name+"_1", int32(15)
		seen, _ := election.Observation{}.Saw(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Name: leaserecord.MemberLease("flotilla", name), ResourceVersion: strconv.Itoa(i + 1),
				Annotations: map[string]string{leaserecord.StateAnnotation: string(membership.Active)},
			},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: now}, AcquireTime: &metav1.MicroTime{Time: now},
			},
		}, now)
		leases = append(leases, seen)
	}
	roster, known := membership.RosterFrom("flotilla", leases, 15*time.Second, now), leaseapi.KnownMembers("flotilla", leases)
	w, err := assignment.Of(plan.plan, plan.digest, roster, known, nil, assignment.Assignment{})
	if err != nil || len(w.Members()) != 100 {
		b.Fatalf("%d members, %v", len(w.Members()), err)
	}
	holders := map[shard.ID]string{}
	for _, s := range ring.Shards {
		holders[s.ID] = w.Owner(s.ID)
	}
	b.ReportAllocs()
	for b.Loop() {
		if w, err = assignment.Of(plan.plan, plan.digest, roster, known, holders, w); err != nil {
			b.Fatal(err)
		}
	}
}

package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const testFleet = "flotilla"

// testNow is when the Leases are read.
var testNow = time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)

// testPlan returns a plan of generation 3 with four ranges and two groups.
func testPlan(t *testing.T) shard.Plan {
	t.Helper()
	ranges, err := shard.EqualRanges(4)
	if err != nil {
		t.Fatal(err)
	}
	namespaced := shard.Ring{Name: "namespaces", Scope: shard.ScopeNamespaced, Controllers: []string{"deployment", "job"}}
	for i, r := range ranges {
		namespaced.Shards = append(namespaced.Shards, shard.Shard{ID: shard.ID{Ring: "namespaces", Name: fmt.Sprintf("%02d", i)}, Range: r})
	}
	cluster := shard.Ring{Name: "cluster", Scope: shard.ScopeCluster}
	for _, group := range []string{"nodes", "volumes"} {
		cluster.Shards = append(cluster.Shards, shard.Shard{ID: shard.ID{Ring: "cluster", Name: group}, Group: group, Controllers: []string{group + "-controller"}})
	}
	plan := shard.Plan{Generation: 3, Rings: []shard.Ring{namespaced, cluster}}
	if err := plan.Validate(); err != nil {
		t.Fatal(err)
	}
	return plan
}

// leases are a fleet's Leases by name.
type leases map[string]*coordinationv1.Lease

// newLeases returns the Leases of a healthy fleet of two members, whose shards alternate between
// flotilla-0 and flotilla-1.
func newLeases(t *testing.T, plan shard.Plan) leases {
	t.Helper()
	l := leases{}
	planLease, err := leaseapi.WithPlan(testFleet, nil, plan)
	if err != nil {
		t.Fatal(err)
	}
	l[planLease.Name] = planLease
	l.hold(planLease.Name, "flotilla-0", 1)
	for i := range 2 {
		l.member(fmt.Sprintf("flotilla-%d", i), plan)
	}
	for i, s := range plan.Shards() {
		l.shard(plan, s.ID, fmt.Sprintf("flotilla-%d", i%2), int32(i+1))
	}
	return l
}

// hold makes the member the holder for half an hour, with a renewal a second ago.
func (l leases) hold(name, member string, term int32) *coordinationv1.Lease {
	lease := l[name]
	if lease == nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
		l[name] = lease
	}
	lease.Namespace, lease.ResourceVersion = metav1.NamespaceSystem, "10"
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity:       ptr.To(member + "_" + "0123"),
		LeaseDurationSeconds: ptr.To[int32](15),
		LeaseTransitions:     ptr.To(term),
		AcquireTime:          ptr.To(metav1.NewMicroTime(testNow.Add(-30 * time.Minute))),
		RenewTime:            ptr.To(metav1.NewMicroTime(testNow.Add(-time.Second))),
	}
	return lease
}

func (l leases) member(name string, plan shard.Plan) *coordinationv1.Lease {
	lease := l.hold(leaserecord.MemberLease(testFleet, name), name, 1)
	lease.Labels = map[string]string{leaseapi.FleetLabel: testFleet}
	lease.Annotations[leaserecord.StateAnnotation] = string(membership.Active)
	lease.Annotations[leaseapi.GenerationAnnotation] = strconv.FormatInt(plan.Generation, 10)
	return lease
}

// shard makes the member hold and run a shard of the plan.
func (l leases) shard(plan shard.Plan, id shard.ID, member string, term int32) *coordinationv1.Lease {
	lease := l.hold(leaseapi.ShardLease(testFleet, id), member, term)
	lease.Labels = map[string]string{leaseapi.FleetLabel: testFleet, leaseapi.RingLabel: id.Ring, leaseapi.ShardLabel: id.Name}
	lease.Annotations[leaseapi.GenerationAnnotation] = strconv.FormatInt(plan.Generation, 10)
	lease.Annotations[leaseapi.RunningAnnotation] = strconv.Itoa(int(term))
	if s, _ := plan.Shard(id); s.Namespaced() {
		lease.Annotations[leaseapi.RangeAnnotation] = s.Range.String()
	}
	lease.Annotations[leaseapi.ControllersAnnotation] = joined(plan.ControllersOf(id))
	return lease
}

func joined(names []string) string {
	text := ""
	for i, name := range names {
		if i > 0 {
			text += ","
		}
		text += name
	}
	return text
}

// at returns the Lease of a shard of ring namespaces.
func (l leases) at(name string) *coordinationv1.Lease {
	return l[leaseapi.ShardLease(testFleet, shard.ID{Ring: "namespaces", Name: name})]
}

// older makes a member hold a shard that covers the range but is not in the plan.
func (l leases) older(name, member, keys string) *coordinationv1.Lease {
	lease := l.hold("flotilla-namespaces-"+name, member, 1)
	lease.Labels = map[string]string{leaseapi.FleetLabel: testFleet, leaseapi.RingLabel: "namespaces", leaseapi.ShardLabel: name}
	lease.Annotations = map[string]string{leaseapi.RangeAnnotation: keys, leaseapi.ControllersAnnotation: "deployment,job", leaseapi.GenerationAnnotation: "2"}
	return lease
}

// census publishes a census of the ranges. Each weight is a namespace's; the namespaces are spaced
// by 1/16 of the keyspace.
func (l leases) census(plan shard.Plan, weights ...int64) {
	var all shard.Census
	for i, w := range weights {
		all = append(all, shard.Cell{Hash: uint64(i) << 60, Weight: w, Namespaces: 1})
	}
	ring, _ := plan.Ring("namespaces")
	for _, s := range ring.Shards {
		text := all.Within(s.Range).String()
		if text == "" {
			text = "none"
		}
		l[leaseapi.ShardLease(testFleet, s.ID)].Annotations[leaseapi.CensusAnnotation] = text
	}
}

// measure makes the holders of all shards publish the memory of each, 10,000 bytes per object, and
// members publish what they use. Group nodes weighs as much as 2,000 objects.
func (l leases) measure(plan shard.Plan) {
	for _, s := range plan.Shards() {
		o := election.Observation{Record: leaserecord.From(l[leaseapi.ShardLease(testFleet, s.ID)])}
		census, _ := leaseapi.CensusOn(o)
		takes := leaseapi.ShardMemory{Cached: 10_000 * census.Total(), Fixed: 3_000_000}
		if s.Group == "nodes" {
			takes.Cached = 17_000_000
		}
		o.Annotations[leaseapi.MemoryAnnotation] = takes.String()
	}
	for name, lease := range l {
		if leaserecord.IsMemberLease(testFleet, name) {
			lease.Annotations[leaseapi.MemoryAnnotation] = leaseapi.Memory{Live: 100_000_000, Beside: 24_000_000}.String()
		}
	}
}

func (l leases) list() []coordinationv1.Lease {
	var all []coordinationv1.Lease
	for _, name := range slices.Sorted(maps.Keys(l)) {
		all = append(all, *l[name].DeepCopy())
	}
	return all
}

func (l leases) read() *status.Reading { return status.Read(testFleet, l.list(), testNow) }

func acceptAll(shard.Plan) error { return nil }

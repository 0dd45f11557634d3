package status

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const testFleet = "flotilla"

// testNow is when the Leases are read first.
var testNow = time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)

// testPlan returns a plan of generation 3 with four ranges and two groups.
func testPlan(t testing.TB) shard.Plan {
	t.Helper()
	ranges, err := shard.EqualRanges(4)
	if err != nil {
		t.Fatal(err)
	}
	namespaced := shard.Ring{Name: "namespaces", Scope: shard.ScopeNamespaced, Controllers: []string{"deployment", "job"}}
	for i, r := range ranges {
		// With homes, as the planner assigns them, each holder is also the owner.
		namespaced.Shards = append(namespaced.Shards, shard.Shard{ID: shard.ID{Ring: "namespaces", Name: fmt.Sprintf("%02d", i)}, Range: r, Home: fmt.Sprintf("flotilla-%d", i%2)})
	}
	cluster := shard.Ring{Name: "cluster", Scope: shard.ScopeCluster}
	for i, group := range []string{"nodes", "volumes"} {
		cluster.Shards = append(cluster.Shards, shard.Shard{ID: shard.ID{Ring: "cluster", Name: group}, Group: group, Controllers: []string{group + "-controller"}, Pin: fmt.Sprintf("flotilla-%d", i%2)})
	}
	plan := shard.Plan{Generation: 3, Rings: []shard.Ring{namespaced, cluster}}
	if err := plan.Validate(); err != nil {
		t.Fatal(err)
	}
	return plan
}

// scene holds a fleet's Leases by name at a point in time.
type scene struct {
	leases map[string]*coordinationv1.Lease
	plan   shard.Plan
	now    time.Time
}

// newScene returns a fleet of two members in which everything runs where the plan wants it.
func newScene(t testing.TB) *scene {
	t.Helper()
	s := &scene{leases: map[string]*coordinationv1.Lease{}, plan: testPlan(t), now: testNow}
	lease, err := leaseapi.WithPlan(testFleet, nil, s.plan)
	if err != nil {
		t.Fatal(err)
	}
	s.leases[lease.Name] = lease
	s.hold(lease.Name, "flotilla-0", 1)
	for _, name := range []string{"flotilla-0", "flotilla-1"} {
		s.member(name)
	}
	for _, sh := range s.plan.Shards() {
		s.shard(sh.ID, sh.PreferredMember(), 1)
	}
	return s
}

// hold makes the member the holder for half an hour, with a renewal a second ago.
func (s *scene) hold(name, member string, term int32) *coordinationv1.Lease {
	lease := s.leases[name]
	if lease == nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem}}
		s.leases[name] = lease
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To(member + "_0123"), LeaseDurationSeconds: ptr.To[int32](15), LeaseTransitions: ptr.To(term),
		AcquireTime: stampOf(s.now.Add(-30 * time.Minute)), RenewTime: stampOf(s.now.Add(-time.Second)),
	}
	return lease
}

func stampOf(t time.Time) *metav1.MicroTime { return ptr.To(metav1.NewMicroTime(t)) }

func (s *scene) member(name string) *coordinationv1.Lease {
	lease := s.hold(leaserecord.MemberLease(testFleet, name), name, 1)
	lease.Labels = map[string]string{leaseapi.FleetLabel: testFleet}
	maps.Copy(lease.Annotations, map[string]string{
		leaserecord.StateAnnotation: string(membership.Active), leaseapi.PlanAnnotation: s.plan.Digest(), leaseapi.GenerationAnnotation: strconv.FormatInt(s.plan.Generation, 10),
	})
	return lease
}

// shard makes the member hold and run a shard of the plan.
func (s *scene) shard(id shard.ID, member string, term int32) *coordinationv1.Lease {
	lease := s.hold(leaseapi.ShardLease(testFleet, id), member, term)
	lease.Labels = map[string]string{leaseapi.FleetLabel: testFleet, leaseapi.RingLabel: id.Ring, leaseapi.ShardLabel: id.Name}
	maps.Copy(lease.Annotations, map[string]string{
		leaseapi.GenerationAnnotation: strconv.FormatInt(s.plan.Generation, 10), leaseapi.RunningAnnotation: strconv.Itoa(int(term)),
		leaseapi.ControllersAnnotation: strings.Join(s.plan.ControllersOf(id), ","),
	})
	if sh, _ := s.plan.Shard(id); sh.Namespaced() {
		lease.Annotations[leaseapi.RangeAnnotation] = sh.Range.String()
	}
	return lease
}

// older makes a member hold a Lease that is not in the plan and covers the range of shard 00.
func (s *scene) older(member string) *coordinationv1.Lease {
	lease := s.hold("flotilla-namespaces-old", member, 1)
	lease.Labels = map[string]string{leaseapi.FleetLabel: testFleet, leaseapi.RingLabel: "namespaces", leaseapi.ShardLabel: "old"}
	lease.Annotations = map[string]string{leaseapi.RangeAnnotation: s.at("00").Annotations[leaseapi.RangeAnnotation], leaseapi.ControllersAnnotation: "deployment,job"}
	return lease
}

// at returns the Lease of a shard of ring namespaces, of a member, or of the plan.
func (s *scene) at(name string) *coordinationv1.Lease {
	for _, full := range []string{"flotilla-namespaces-" + name, "flotilla-cluster-" + name, "flotilla-member-" + name, "flotilla-" + name} {
		if lease := s.leases[full]; lease != nil {
			return lease
		}
	}
	panic(name)
}

func (s *scene) read() *Reading {
	var all []coordinationv1.Lease
	for _, name := range slices.Sorted(maps.Keys(s.leases)) {
		all = append(all, *s.leases[name].DeepCopy())
	}
	return Read(testFleet, all, s.now)
}

// leaderLock makes the members wait for Lease kube-controller-manager, which was last renewed some
// time ago. An empty holder has released it.
func (s *scene) leaderLock(holder string, ago time.Duration) *coordinationv1.Lease {
	for _, member := range []string{"flotilla-0", "flotilla-1"} {
		s.at(member).Annotations[leaseapi.LeaderLocksAnnotation] = "kube-controller-manager"
	}
	lease := s.hold("kube-controller-manager", "x", 1)
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = ptr.To(holder), stampOf(s.now.Add(-ago))
	return lease
}

// releaseAll releases all shards long ago.
func (s *scene) releaseAll() {
	for _, sh := range s.plan.Shards() {
		s.release(sh.Name, time.Minute)
	}
}

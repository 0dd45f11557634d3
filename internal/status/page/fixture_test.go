package page

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/fleet/history"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const testFleet = "flotilla"

// testNow is the time of the member's clock and of the wall clock.
var testNow = time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)

var testConfig = Config{Fleet: testFleet, Member: "flotilla-0", Version: "v1.37.1"}

// fakeMember implements Source.
type fakeMember struct {
	leases     []election.Observation
	plan       shard.Plan
	planned    bool
	assignment assignment.Assignment
	journal    []fleet.JournalEntry
	refused    error
	// now is the time of the member's clock, or testNow if it is zero.
	now time.Time
}

func (f *fakeMember) Incarnation() string { return "flotilla-0_uid" }
func (f *fakeMember) Observed() ([]election.Observation, time.Time) {
	if f.now.IsZero() {
		return f.leases, testNow
	}
	return f.leases, f.now
}
func (f *fakeMember) Plan() (shard.Plan, bool) { return f.plan, f.planned }
func (f *fakeMember) Refused() error           { return f.refused }
func (f *fakeMember) Ready() error {
	return errors.New("member flotilla-0 does not yet run namespaces/00")
}
func (f *fakeMember) Assignment() assignment.Assignment { return f.assignment }
func (f *fakeMember) Journal() []fleet.JournalEntry     { return f.journal }
func (f *fakeMember) lease(name string) *election.Observation {
	for i := range f.leases {
		if f.leases[i].Name == name {
			return &f.leases[i]
		}
	}
	panic("no Lease " + name)
}

// testPlan returns a plan with this many ranges and two groups.
func testPlan(t testing.TB, ranges int) shard.Plan {
	t.Helper()
	parts, err := shard.EqualRanges(ranges)
	if err != nil {
		t.Fatal(err)
	}
	namespaced := shard.Ring{Name: "namespaces", Scope: shard.ScopeNamespaced, Controllers: []string{"deployment", "job"}}
	for i, r := range parts {
		namespaced.Shards = append(namespaced.Shards, shard.Shard{ID: shard.ID{Ring: "namespaces", Name: fmt.Sprintf("%02d", i)}, Range: r, Weight: int64(900 + i)})
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

// newFake returns a healthy fleet in which each owner holds its shards: flotilla-0, flotilla-1 and
// so on.
func newFake(t testing.TB, ranges, members int) *fakeMember {
	t.Helper()
	f := &fakeMember{plan: testPlan(t, ranges), planned: true}
	planLease, err := leaseapi.WithPlan(testFleet, nil, f.plan)
	if err != nil {
		t.Fatal(err)
	}
	f.add(planLease, "flotilla-0", 1, nil)
	for i := range members {
		name := fmt.Sprintf("flotilla-%d", i)
		f.add(named(leaserecord.MemberLease(testFleet, name), nil), name, 1, map[string]string{
			leaserecord.StateAnnotation: "active", leaseapi.PlanAnnotation: f.plan.Digest(), leaseapi.GenerationAnnotation: "3",
			leaseapi.MemoryAnnotation: leaseapi.Memory{Live: int64(40+i) * 1e6, Beside: 10e6}.String(),
		})
	}
	f.assignment, err = assignment.Of(f.plan, f.plan.Digest(), membership.RosterFrom(testFleet, f.leases, 0, testNow), leaseapi.KnownMembers(testFleet, f.leases), nil, assignment.Assignment{})
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range f.plan.Shards() {
		term := int32(i + 1)
		annotations := map[string]string{
			leaseapi.RunningAnnotation: strconv.Itoa(int(term)), leaseapi.GenerationAnnotation: "3",
			leaseapi.ControllersAnnotation: strings.Join(f.plan.ControllersOf(s.ID), ","),
		}
		annotations[leaseapi.MemoryAnnotation] = leaseapi.ShardMemory{Cached: 2e6, Fixed: 3e6}.String()
		if s.Namespaced() {
			annotations[leaseapi.RangeAnnotation] = s.Range.String()
			annotations[leaseapi.CensusAnnotation] = shard.Census{{Hash: s.Range.Start, Weight: int64(1000 + 10*i), Namespaces: 2}}.String()
		}
		labels := map[string]string{leaseapi.FleetLabel: testFleet, leaseapi.RingLabel: s.ID.Ring, leaseapi.ShardLabel: s.ID.Name}
		f.add(named(leaseapi.ShardLease(testFleet, s.ID), labels), f.assignment.Owner(s.ID), term, annotations)
	}
	f.journal = []fleet.JournalEntry{
		entry(time.Minute, history.Transition{Kind: history.PlanChanged, From: "2", To: "3"}),
		entry(30*time.Second, history.Transition{Kind: history.Active, Member: "flotilla-1"}),
		entry(2*time.Second, history.Transition{
			Kind: history.HandedOver, Shard: shard.ID{Ring: "namespaces", Name: "01"},
			From: "flotilla-0", To: "flotilla-1", Term: 2, Gap: 12 * time.Millisecond,
		}),
	}
	return f
}

func entry(ago time.Duration, t history.Transition) fleet.JournalEntry {
	return fleet.JournalEntry{Transition: t, Seen: testNow.Add(-ago), At: testNow.Add(-ago)}
}

// reassign makes the member compute the assignment again from the current Leases.
func (f *fakeMember) reassign(t testing.TB) {
	t.Helper()
	holders := map[shard.ID]string{}
	for _, s := range f.plan.Shards() {
		holders[s.ID] = leaserecord.MemberOf(f.lease(leaseapi.ShardLease(testFleet, s.ID)).Holder)
	}
	var err error
	f.assignment, err = assignment.Of(f.plan, f.plan.Digest(), membership.RosterFrom(testFleet, f.leases, 0, testNow), leaseapi.KnownMembers(testFleet, f.leases), holders, assignment.Assignment{})
	if err != nil {
		t.Fatal(err)
	}
}

func named(name string, labels map[string]string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// add adds a Lease that was acquired half an hour ago and renewed a second ago.
func (f *fakeMember) add(lease *coordinationv1.Lease, holder string, term int32, annotations map[string]string) {
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To(holder + "_uid"), LeaseTransitions: &term, LeaseDurationSeconds: ptr.To[int32](15),
		AcquireTime: &metav1.MicroTime{Time: testNow.Add(-30 * time.Minute)}, RenewTime: &metav1.MicroTime{Time: testNow.Add(-time.Second)},
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	for k, v := range annotations {
		lease.Annotations[k] = v
	}
	f.leases = append(f.leases, election.Observation{
		Record: leaserecord.From(lease), Exists: true, Lease: lease, Seen: testNow.Add(-time.Second), HolderSeen: testNow.Add(-30 * time.Minute),
	})
}

// change changes the observation of a Lease.
func (f *fakeMember) change(name string, change func(*coordinationv1.Lease)) {
	o := f.lease(name)
	lease := o.Lease.DeepCopy()
	change(lease)
	o.Record, o.Lease = leaserecord.From(lease), lease
}

// busyFake returns a fleet with a drained member whose shards are asked for, an unowned shard, a
// shard of an older plan and one that waits for it, a silent member, and a refused plan.
func busyFake(t testing.TB) *fakeMember {
	t.Helper()
	f := newFake(t, 8, 4)
	f.change("flotilla-member-flotilla-2", func(l *coordinationv1.Lease) { l.Annotations[leaseapi.DrainAnnotation] = "yes" })
	f.lease("flotilla-member-flotilla-3").Seen = testNow.Add(-time.Minute)
	f.change("flotilla-member-flotilla-1", func(l *coordinationv1.Lease) { l.Annotations[leaseapi.RefusedAnnotation] = "4: no such controller" })
	f.change("flotilla-namespaces-00", func(l *coordinationv1.Lease) {
		l.Annotations[leaserecord.NextHolderAnnotation] = "flotilla-0_uid"
	})
	f.change("flotilla-namespaces-03", func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("") })
	f.change("flotilla-namespaces-04", func(l *coordinationv1.Lease) {
		delete(l.Annotations, leaseapi.RunningAnnotation)
		l.Annotations[leaseapi.ReadyAnnotation] = strconv.Itoa(int(*l.Spec.LeaseTransitions))
	})
	f.add(named("flotilla-namespaces-old", map[string]string{leaseapi.FleetLabel: testFleet, leaseapi.RingLabel: "namespaces", leaseapi.ShardLabel: "old"}), "flotilla-0", 9,
		map[string]string{leaseapi.RunningAnnotation: "9", leaseapi.GenerationAnnotation: "2", leaseapi.RangeAnnotation: f.plan.Rings[0].Shards[4].Range.String(), leaseapi.ControllersAnnotation: "deployment,job"})
	f.refused = errors.New("generation 4: no such controller")
	f.reassign(t)
	return f
}

func document(t testing.TB, f *fakeMember) Document {
	t.Helper()
	d, _ := newDocument(testConfig, nil, f, nil, testNow)
	return d
}

func asJSON(t testing.TB, d Document) string {
	t.Helper()
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

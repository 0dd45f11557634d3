package leaseapi

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestSnapshot looks at a shard that runs, one whose holder has been silent, one without a holder,
// a Lease that has a shard's name and nothing else, and one each whose label names a fleet that it
// cannot and that it may belong to.
func TestSnapshot(t *testing.T) {
	now := time.Unix(1000, 0)
	id := func(name string) shard.ID { return shard.ID{Ring: "namespaces", Name: name} }
	lease := func(name, holder string, silence time.Duration, labels map[string]string) election.Observation {
		l := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{RunningAnnotation: "3"}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseTransitions: ptr.To[int32](3), LeaseDurationSeconds: ptr.To[int32](10)},
		}
		return election.Observation{Record: leaserecord.From(l), Exists: true, Seen: now.Add(-silence), Lease: l}
	}
	of := func(name, holder string, silence time.Duration) election.Observation {
		return lease(ShardLease("f", id(name)), holder, silence, ShardLabels("f", id(name)))
	}
	s := NewSnapshot("f", []election.Observation{
		lease(leaserecord.MemberLease("f", "m"), "m_1", 0, nil),
		of("a", "m_1", time.Second), of("b", "n_1", 12*time.Second), of("c", "n_1", 16*time.Second), of("d", "", 0),
		lease(ShardLease("f", id("e")), "stranger_1", 0, nil),
		lease(ShardLease("f", id("g")), "m_1", 0, map[string]string{FleetLabel: "other"}),
		lease(ShardLease("f", id("h")), "m_1", 0, map[string]string{FleetLabel: "f-namespaces"}),
	}, 15*time.Second, now)
	for name, want := range map[string]struct{ exists, shard, held, ready, others bool }{
		"a": {true, true, true, true, false},
		"b": {true, true, true, true, true},
		"c": {true, true, false, false, false},
		"d": {true, true, false, false, false},
		"e": {true, false, true, true, false},
		"f": {},
		"g": {true, true, true, true, false},
		"h": {true, false, true, true, false},
	} {
		o := s.Shard(id(name))
		got := struct{ exists, shard, held, ready, others bool }{o.Exists, s.IsShard(o), s.IsHeld(o), s.IsReady(o), s.IsOthers(o, "m_1")}
		if got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if o := s.OthersShard("m_1"); o.Name != "f-namespaces-b" {
		t.Errorf("another's shard is %q, want f-namespaces-b", o.Name)
	}
	if o := (Snapshot{}).Get("f-plan"); o.Exists || (Snapshot{}).OthersShard("m_1").Exists || len((Snapshot{}).Roster().Members()) > 0 {
		t.Error("there is something in an empty snapshot")
	}
}

package cli

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// TestHappened turns changes from the watch into events. The previous reading, or the lack of
// heartbeats, decides which event each becomes.
func TestHappened(t *testing.T) {
	const shardLease, asker = "flotilla-namespaces-00", "flotilla-1_0123"
	see := func(lease *coordinationv1.Lease, version string, ago time.Duration) election.Observation {
		lease = lease.DeepCopy()
		lease.ResourceVersion = version
		o, _ := election.Observation{}.Saw(lease, testNow.Add(-ago))
		return o
	}
	for name, tc := range map[string]struct {
		make func(l leases) pair
		want string // The only event, as printed.
	}{
		"listed before, and the same": {func(l leases) pair {
			return pair{election.Observation{}, see(l[shardLease], "10", 0)}
		}, ""},
		"not listed before": {func(l leases) pair {
			o := see(l[shardLease], "20", 0)
			delete(l, shardLease)
			return pair{election.Observation{}, o}
		}, "acquired: shard namespaces/00: acquired by flotilla-0_0123, term 3"},
		"deleted": {func(l leases) pair {
			before := see(l[shardLease], "10", time.Second)
			gone, _ := before.Gone("20", testNow)
			return pair{before, gone}
		}, `lease-deleted: shard namespaces/00: Lease deleted, which was held by "flotilla-0_0123" (warning)`},
		"somebody else's": {func(l leases) pair {
			other := l[shardLease].DeepCopy()
			other.Name, other.Labels, *other.Spec.HolderIdentity = "flotilla-x", nil, "you"
			before := see(other, "10", time.Second)
			*other.Spec.HolderIdentity = "me"
			return pair{before, see(other, "20", 0)}
		}, ""},
		"taken over, the asker's, without heartbeats": {func(l leases) pair {
			l[shardLease].Annotations[leaserecord.NextHolderAnnotation] = asker
			before := see(l[shardLease], "10", 20*time.Second)
			beat := see(l["flotilla-member-flotilla-0"], "11", time.Second)
			before.Heartbeat = &beat
			l.hold(shardLease, "flotilla-1", 4)
			return pair{before, see(l[shardLease], "20", 0)}
		}, "taken-over: shard namespaces/00: taken over by flotilla-1_0123 from flotilla-0_0123, which had not renewed for 20s, term 4 (warning)"},
		"taken over before the watch began, with heartbeats": {func(l leases) pair {
			for _, name := range []string{"flotilla-member-flotilla-0", "flotilla-member-flotilla-1"} {
				l[name].Annotations[leaserecord.ProtocolAnnotation] = "2"
			}
			silent := metav1.NewMicroTime(testNow.Add(-20 * time.Second))
			l["flotilla-member-flotilla-0"].Spec.RenewTime = &silent
			read := l[shardLease].DeepCopy()
			l.hold(shardLease, "flotilla-1", 4)
			after := see(l[shardLease], "20", 0)
			l[shardLease] = read
			return pair{election.Observation{}, after}
		}, "taken-over: shard namespaces/00: taken over by flotilla-1_0123 from flotilla-0_0123, which had not renewed for 20s, term 4 (warning)"},
		"handed over, with heartbeats": {func(l leases) pair {
			for _, name := range []string{"flotilla-member-flotilla-0", "flotilla-member-flotilla-1"} {
				l[name].Annotations[leaserecord.ProtocolAnnotation] = "2"
			}
			l[shardLease].Annotations[leaserecord.NextHolderAnnotation] = asker
			before := see(l[shardLease], "10", 20*time.Second)
			beat := see(l["flotilla-member-flotilla-0"], "11", time.Second)
			before.Heartbeat = &beat
			l.hold(shardLease, "flotilla-1", 4)
			return pair{before, see(l[shardLease], "20", 0)}
		}, "handed-over: shard namespaces/00: handed over by flotilla-0_0123 to flotilla-1_0123, term 4"},
	} {
		l := newLeases(t, testPlan(t))
		delete(l[shardLease].Annotations, leaseapi.RunningAnnotation)
		p := tc.make(l)
		r := l.read()
		got := ""
		for _, e := range happened(r, r, []pair{p}) {
			got += eventLine(e)[len(stamp(e.Time))+1:]
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

package fleet

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election/heartbeat"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// countingClock counts the timers that are asked for: a loop that has something to wait for asks
// for one each time that it comes round.
type countingClock struct {
	clock.RealClock
	timers *atomic.Int64
}

// NewTimer implements election.Clock.
func (c countingClock) NewTimer(d time.Duration) clock.Timer {
	c.timers.Add(1)
	return c.RealClock.NewTimer(d)
}

// TestAHeartbeatWakesNobody checks that members at rest do not wake for each heartbeat of another
// one: in a fleet of a hundred there are fifty a second.
func TestAHeartbeatWakesNobody(t *testing.T) {
	const fast, slow, during = 20 * time.Millisecond, time.Second, 20 * time.Second
	lease := leaserecord.MemberLease("flotilla", "other")
	for name, tc := range map[string]struct {
		begin func(s *testFleet, launch func(name string, locks ...string))
		// want is what the members, and who works on the first shard, show of this state.
		want string
	}{
		"at work": {want: "<nil> <nil> true", begin: func(s *testFleet, launch func(string, ...string)) {
			launch("a")
			launch("b")
		}},
		"stopped": {want: "the fleet is stopped", begin: func(s *testFleet, launch func(string, ...string)) {
			launch("a", "main")
			launch("b", "main")
			pass(time.Minute)
			s.setStop(stopText)
		}},
		"waiting for a leader lock": {want: "the leader lock, Lease main, is held by \"stock\"", begin: func(s *testFleet, launch func(string, ...string)) {
			s.store.Put(foreign("main", "stock"))
			launch("a", "main")
			launch("b", "main")
		}},
		"waiting for a shard": {want: "does not yet run", begin: func(s *testFleet, launch func(string, ...string)) {
			launch("a")
			launch("b")
			pass(time.Minute)
			s.takenByOther(leaseapi.ShardLease("flotilla", s.plan.Shards()[0].ID))
		}},
		"waiting for an earlier shard": {want: "<nil> <nil> false", begin: func(s *testFleet, launch func(string, ...string)) {
			launch("a")
			launch("b")
			pass(time.Minute)
			id := s.plan.Shards()[0].ID
			name := leaseapi.ShardLease("flotilla", id)
			s.takenByOther(name)
			earlier := s.store.Get(name).DeepCopy()
			earlier.Name = leaseapi.ShardLease("flotilla", shard.ID{Ring: id.Ring, Name: "99"})
			s.store.Put(earlier)
			s.store.Tamper(name, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("") })
		}},
		"waiting for the plan": {want: "has not joined the fleet", begin: func(s *testFleet, launch func(string, ...string)) {
			held := leasetest.Lease(leaseapi.ShardLease("flotilla", s.plan.Shards()[0].ID), "other_1", 1)
			held.Labels = leaseapi.ShardLabels("flotilla", s.plan.Shards()[0].ID)
			s.store.Put(held)
			launch("a")
			launch("b")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 4, func(t *testing.T, s *testFleet) {
				renew := func() {
					if !s.store.Tamper(lease, func(l *coordinationv1.Lease) { l.Spec.RenewTime = ptr.To(metav1.NowMicro()) }) {
						t.Fatal("the other member's Lease is gone")
					}
				}
				other := leasetest.Lease(lease, "other_1", 1)
				other.Labels = map[string]string{leaseapi.FleetLabel: "flotilla", leaseapi.KindLabel: leaseapi.KindMember}
				other.Annotations[leaserecord.StateAnnotation] = string(membership.Leaving)
				other.Annotations[leaserecord.ProtocolAnnotation] = strconv.Itoa(heartbeat.Protocol)
				s.store.Put(other)
				var timers atomic.Int64
				beats := func(every, during time.Duration) int64 {
					before := timers.Load()
					for range during / every {
						renew()
						pass(every)
					}
					return timers.Load() - before
				}
				tc.begin(s, func(name string, locks ...string) {
					s.launch(name, func(c *Config) { c.Clock, c.LeaderLocks = countingClock{timers: &timers}, locks })
				})
				beats(slow, 2*time.Minute)
				s.mu.Lock()
				_, works := s.workers[s.plan.Shards()[0].ID]
				s.mu.Unlock()
				if is := fmt.Sprint(s.all[0].Ready(), " ", s.all[1].Ready(), " ", works); !strings.Contains(is, tc.want) {
					t.Errorf("the members are not in this state, but: %s; want %s", is, tc.want)
				}
				few := beats(slow, during)
				many := beats(fast, during)
				t.Logf("%d timers with %d heartbeats of another member, %d with %d", few, during/slow, many, during/fast)
				if few == 0 || many > few+int64(during/fast)/4 {
					t.Errorf("two members waited %d times in %v with %d heartbeats of another one, and %d times with %d: want about as often",
						few, during, during/slow, many, during/fast)
				}
			})
		})
	}
}

// takenByOther lets the member "other" take the Lease from its holder.
func (s *testFleet) takenByOther(name string) {
	s.store.Tamper(name, func(l *coordinationv1.Lease) {
		l.Spec.HolderIdentity, l.Spec.LeaseTransitions = ptr.To("other_1"), ptr.To(*l.Spec.LeaseTransitions+1)
	})
}

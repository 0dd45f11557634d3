package fleet

import (
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestStrayAcquisitionIsReleased makes a Lease of a shard that is not in the plan name a live
// member, as an acquisition does that is carried out after its caller gave up. The shard's
// successor must get its part all the same.
func TestStrayAcquisitionIsReleased(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		a := s.launch("a", nil)
		s.launch("b", nil)
		pass(time.Minute)
		s.apply(s.next(func(r *shard.Ring) { merge(r, 0) }))
		pass(10 * time.Second)
		s.allHeld("a", "b")
		stray := foreign("flotilla-namespaces-stray", a.Incarnation())
		stray.Labels = leaseapi.ShardLabels("flotilla", shard.ID{Ring: "namespaces", Name: "stray"})
		stray.Annotations = map[string]string{
			leaseapi.RangeAnnotation: s.plan.Rings[0].Shards[0].Range.String(), leaseapi.ControllersAnnotation: s.plan.Rings[0].Controllers[0],
		}
		s.store.Put(stray)
		pass(election.DefaultTiming().LeaseDuration - time.Second)
		if leaserecord.From(s.store.Get(stray.Name)).IsReleased() {
			t.Error("a Lease that somebody else may have written is released at once")
		}
		pass(3 * time.Second)
		if r := leaserecord.From(s.store.Get(stray.Name)); !r.IsReleased() || a.err != nil {
			t.Errorf("the stray Lease says %+v; a has ended: %v", r, a.err)
		}
		s.allHeld("a", "b")
	})
}

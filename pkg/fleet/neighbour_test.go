package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
)

// TestNeighbourWithALongerName runs fleet flotilla-cloud beside fleet flotilla, with members of the
// same names, and kills one of its members. Leases of the one begin like those of the other, which
// must not judge its members, nor write any Lease for them.
func TestNeighbourWithALongerName(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, s *testFleet) {
		neighbour := newTestFleet(t, testPlan(t, 2))
		neighbour.store = s.store
		cloud := func(c *Config) { c.Fleet = "flotilla-cloud" }
		s.launch("a", nil)
		neighbour.launch("a", cloud)
		dead := neighbour.launch("b", cloud)
		neighbour.launch("c", cloud)
		pass(3 * time.Minute)
		dead.client.Block()
		pass(3 * time.Minute)

		for _, e := range s.events {
			if e.Type == election.EventStruck {
				t.Errorf("fleet flotilla listed %s as ended", e.Holder)
			}
		}
		struck := 0
		for _, e := range neighbour.events {
			if e.Type == election.EventStruck && leaserecord.MemberOf(e.Holder) == "b" {
				struck++
			}
		}
		if struck == 0 {
			t.Error("nobody listed the dead member of fleet flotilla-cloud as ended")
		}
		for _, w := range s.store.History() {
			if w.After == nil {
				continue
			}
			member, is := leaserecord.MemberOfLease("flotilla", w.After.Name)
			neighbours := strings.HasPrefix(w.After.Name, "flotilla-cloud-")
			if is && member != "a" || neighbours != (w.After.Labels[leaserecord.FleetLabel] == "flotilla-cloud") {
				t.Errorf("%s wrote Lease %s of fleet %q", w.Client, w.After.Name, w.After.Labels[leaserecord.FleetLabel])
			}
		}
	})
}

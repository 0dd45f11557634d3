package fleet

import (
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestBoundGroupsStay adds, restarts and drains members: a group that is bound to another must move
// only when its own member goes.
func TestBoundGroupsStay(t *testing.T) {
	inBubble(t, 6, func(t *testing.T, s *testFleet) {
		s.plan.Rings[1].Shards[0].ColocateWith = "nodes" // garbage
		processes := map[string]*process{}
		nodes, garbage := shard.ID{Ring: "cluster", Name: "nodes"}, shard.ID{Ring: "cluster", Name: "garbage"}
		holder := func() string { return leaserecord.MemberOf(s.working()[nodes].incarnation) }
		term := int32(1)
		require := func(when string) {
			t.Helper()
			for _, id := range []shard.ID{nodes, garbage} {
				if got := s.terms()[id]; got != term || leaserecord.MemberOf(s.working()[id].incarnation) != holder() {
					t.Errorf("%s: %s is in term %d on %s, want %d, and beside nodes on %s", when, id, got, s.working()[id].incarnation, term, holder())
				}
			}
		}
		restart := func(name string) {
			processes[name].stop()
			<-processes[name].ended
			pass(30 * time.Second)
			processes[name] = s.launch(name, nil)
			pass(time.Minute)
		}
		for _, name := range []string{"a", "b", "c", "d"} {
			processes[name] = s.launch(name, nil)
			pass(time.Minute)
			require(name + " came")
		}
		for _, name := range []string{"d", "c", "b"} {
			restart(name)
			require(name + " was restarted")
		}
		restart("a") // the groups' member
		term++
		require("a was restarted")
		if holder() != "b" {
			t.Errorf("they went to %s, want b, which was restarted last", holder())
		}
		processes["b"].die()
		pass(time.Minute)
		term++
		require("b died")
		processes["b"] = s.launch("b", nil)
		pass(time.Minute)
		require("b is back")
		drained := holder()
		s.drain(drained, "yes")
		pass(30 * time.Second)
		term++
		require(drained + " was drained")
		s.drain(drained, "")
		pass(time.Minute)
		require(drained + " was undrained")

		plan := s.next(func(*shard.Ring) {})
		plan.Rings[1].Shards[1].Pin = drained // pins nodes, and so garbage
		s.apply(plan)
		pass(time.Minute)
		term++
		require("nodes was pinned")
		if holder() != drained {
			t.Errorf("nodes is on %s, but pinned to %s", holder(), drained)
		}
		s.requireWorked()
	})
}

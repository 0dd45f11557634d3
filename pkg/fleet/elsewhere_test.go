package fleet

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestMovesElsewhere checks how often a member computes the assignment again: at once when a Lease
// of its own shards changes, and about once a second when shards move between others.
func TestMovesElsewhere(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, s *testFleet) {
		processes := map[string]*process{}
		for _, name := range []string{"a", "b"} {
			processes[name] = s.launch(name, nil)
		}
		pass(2 * time.Minute)
		a := processes["a"]
		var own, others shard.ID
		for _, sh := range s.plan.Shards() {
			if a.Assignment().Owner(sh.ID) == "a" {
				own = sh.ID
			} else {
				others = sh.ID
			}
		}
		// touch changes an annotation that may move shards, whoever holds the shard.
		changes := 100
		touch := func(id shard.ID) {
			changes++
			s.store.Tamper(leaseapi.ShardLease("flotilla", id), func(l *coordinationv1.Lease) {
				l.Annotations[leaseapi.GenerationAnnotation] = strconv.Itoa(changes)
			})
			synctest.Wait()
		}
		last := a.assignment.Load()
		computed := func() bool {
			before := last
			last = a.assignment.Load()
			return last != before
		}
		for range 3 {
			pass(time.Second)
			computed()
			touch(own)
			if !computed() {
				t.Errorf("a Lease of a's %s has changed, and a has not looked at it", own)
			}
		}
		times := 0
		var seen *assignment.Assignment
		for range 500 {
			touch(others)
			pass(10 * time.Millisecond)
			if now := a.assignment.Load(); now != seen {
				seen, times = now, times+1
			}
		}
		if times < 4 || times > 12 {
			t.Errorf("a computed %d assignments in 5 s in which a Lease of another's %s changed 500 times, want about 5", times, others)
		}
		touch(others)
		computed()
		pass(1001 * time.Millisecond)
		if !computed() {
			t.Errorf("a has not looked at the last change of another's %s for a second", others)
		}
	})
}

package fleet

import (
	"testing"
	"time"
)

// TestPlannerJudgesOnceAllAreThere makes the weights of one member's ranges grow while another
// member is away. The planner cannot judge them then. It must change the plan when the member is
// back, even if the weights have stayed the same since and the interval is far from over.
func TestPlannerJudgesOnceAllAreThere(t *testing.T) {
	inBubble(t, 9, func(t *testing.T, s *testFleet) {
		processes, before, planner := s.planned(t, rarely)
		away := otherThan(planner)
		processes[away].stop()
		<-processes[away].ended
		ring, _ := before.Ring("namespaces")
		s.mu.Lock()
		for _, r := range ring.Shards {
			for namespace := range s.weights {
				if r.Home == planner && r.Range.ContainsNamespace(namespace) {
					s.weights[namespace] = 50
				}
			}
		}
		s.mu.Unlock()
		pass(10 * time.Minute)
		if now := s.known(t).Generation; now != before.Generation {
			t.Fatalf("generation %d became %d while %s was away", before.Generation, now, away)
		}
		processes[away] = s.launch(away, rarely)
		pass(10 * time.Minute)
		if loads, ratio := s.loads(); ratio > 1.5 || s.known(t).Generation == before.Generation {
			t.Errorf("ten minutes after %s is back, max/mean is %.2f: %v, want 1.5 at most", away, ratio, loads)
		}
	})
}

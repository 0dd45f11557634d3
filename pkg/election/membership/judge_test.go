package membership

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/heartbeat"
)

// TestJudgesTakeTurns asks every live member when it would strike each of several members, as one
// step of a pacemaker does. Exactly one judge may at once, and the others follow one by one.
func TestJudgesTakeTurns(t *testing.T) {
	timing := heartbeat.Timing{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}
	firsts := map[string]bool{}
	for _, n := range []int{2, 3, 10, 30} {
		var live []string
		for i := range n {
			live = append(live, fmt.Sprintf("m-%d", i))
		}
		before := slices.Clone(live)
		for _, judged := range []string{"m-0", "dead", "m-1", "gone", "lost"} {
			var turns, want []time.Duration
			for _, self := range live {
				if self == judged {
					continue
				}
				turns = append(turns, turn(live, self, judged, timing))
				want = append(want, min(time.Duration(len(want))*timing.RetryPeriod/8, timing.LeaseDuration/3))
				if n == 30 && turns[len(turns)-1] == 0 {
					firsts[self] = true
				}
			}
			slices.Sort(turns)
			if !slices.Equal(turns, want) {
				t.Errorf("%d members judge %s after %v, want %v", n, judged, turns, want)
			}
		}
		if !slices.Equal(live, before) {
			t.Errorf("the live members have become %v", live)
		}
	}
	if len(firsts) < 2 {
		t.Errorf("only %v is ever first, want different members", firsts)
	}
	if got := turn(nil, "m-0", "dead", timing); got != 0 {
		t.Errorf("a judge that sees nobody live waits %v, want no wait", got)
	}
}

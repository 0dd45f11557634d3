package sim

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestOverlapByClocks lets the work of a member whose clock is slow go on beside its successor's.
// No seed is known in which work overlaps for so long, so this stands in for a planted bug.
func TestOverlapByClocks(t *testing.T) {
	const slow, fast = 1, 1.2
	allowed := lasts(slow) - lasts(fast)
	for name, tc := range map[string]struct {
		overlaps time.Duration
		want     invariant
	}{
		"no longer than clocks explain": {allowed - time.Millisecond, ""},
		"longer":                        {allowed + time.Millisecond, overlap},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := &simulation{t: t, begin: time.Now()}
				sim.judge.init()
				on := part{id: shard.ID{Ring: "r", Name: "s"}}
				old, next := sim.worksOn(on, "old", slow), sim.worksOn(on, "next", fast)
				sim.mu.Lock()
				sim.judgeBesideLocked(next, old, true)
				sim.mu.Unlock()
				time.Sleep(tc.overlaps) // virtual
				sim.mu.Lock()
				sim.works[on] = slices.DeleteFunc(sim.works[on], func(k *work) bool { return k == old })
				sim.mu.Unlock()
				time.Sleep(time.Minute) // virtual
				sim.mu.Lock()
				defer sim.mu.Unlock()
				if sim.failed != tc.want {
					t.Errorf("convicted by %q, want %q: %q", sim.failed, tc.want, sim.lines)
				}
			})
		})
	}
}

// worksOn adds work of a new member.
func (sim *simulation) worksOn(on part, member string, rate float64) *work {
	s := &seat{name: member, rate: rate}
	sim.seats = append(sim.seats, s)
	b := &barrier{}
	k := &work{process: &process{Member: &fleet.Member{}, sim: sim, seat: s, barrier: b, clock: &skewedClock{barrier: b, begin: sim.begin, rate: rate}}, part: on}
	sim.works[on] = append(sim.works[on], k)
	return k
}

// TestLateWriteBesideASuspendedMember judges a write that arrives after its claim has ended, while
// a member works that has just been suspended. That excuses the write only if that member works
// under an older claim, which it does for a moment on waking.
func TestLateWriteBesideASuspendedMember(t *testing.T) {
	for name, tc := range map[string]struct {
		acquired time.Duration // after the writer's claim
		waking   bool
		want     invariant
	}{
		"under a newer claim":                {time.Second, false, late},
		"under an older claim":               {-time.Second, false, ""},
		"under a claim heard of when waking": {time.Second, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := &simulation{t: t, begin: time.Now()}
				sim.judge.init()
				on := part{id: shard.ID{Ring: "r", Name: "s"}}
				writer, k := sim.worksOn(on, "writer", 1).process, sim.worksOn(on, "suspended", 1)
				sim.works[on] = []*work{k}
				k.process.resumed, k.term, k.began = time.Now(), 7, time.Now()
				c := &claim{process: writer, id: on.id, term: 6, acquired: sim.begin}
				own := &claim{process: k.process, id: on.id, term: k.term, acquired: c.acquired.Add(tc.acquired), waking: tc.waking}
				sim.claims[on.id] = []*claim{c, own}
				sim.mu.Lock()
				defer sim.mu.Unlock()
				sim.judgeWriteBesideLocked(on, written{process: writer, claim: c, sent: sim.begin}, k)
				if sim.failed != tc.want {
					t.Errorf("convicted by %q, want %q: %q", sim.failed, tc.want, sim.lines)
				}
			})
		})
	}
}

// TestClaimHeardOfOnWaking checks that a claim counts as possibly as old as the pause for as long
// as an answer from before it may be in transit, and no longer.
func TestClaimHeardOfOnWaking(t *testing.T) {
	for name, tc := range map[string]struct {
		resumed bool
		after   time.Duration
		want    bool
	}{
		"never suspended":     {false, time.Second, false},
		"just resumed":        {true, longestWire, true},
		"resumed long before": {true, longestWire + 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := &simulation{t: t, begin: time.Now()}
				sim.judge.init()
				on := part{id: shard.ID{Ring: "r", Name: "s"}}
				holder := sim.worksOn(on, "holder", 1).process
				if tc.resumed {
					holder.touch(false)
				}
				time.Sleep(tc.after) // virtual
				sim.mu.Lock()
				defer sim.mu.Unlock()
				sim.observeClaimLocked(holder, fleet.Event{ID: on.id, Event: election.Event{Type: election.EventAcquired, Term: 7}})
				if c := sim.claimLocked(holder, on.id, 7); c == nil || c.waking != tc.want {
					t.Errorf("the claim is %+v, want waking %t", c, tc.want)
				}
			})
		})
	}
}

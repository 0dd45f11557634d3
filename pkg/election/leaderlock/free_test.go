package leaderlock

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/flotilla-kube/flotilla/pkg/election"
)

// TestFreeSince covers freeSince for a Lease that names the fleet, in term 5, from second 20 on.
func TestFreeSince(t *testing.T) {
	held := lockSeen(lockSelf, 5, 20)
	for name, tc := range map[string]struct {
		before election.Observation
		want   int
	}{
		"nothing was known":                     {election.Observation{}, 20},
		"it was absent":                         {lockAbsent(3, 4), 3},
		"it was absent, others held it since":   {lockAbsent(3, 2), 20},
		"it was released":                       {lockSeen("", 4, 19), 19},
		"it was released, others held it since": {lockSeen("", 3, 2), 20},
		"its holder died":                       {lockSeen("stock-a", 4, 5), 5},
		"its holder died, others held it since": {lockSeen("stock-a", 3, 5), 20},
		"its holder was alive a moment ago":     {lockSeen("stock-a", 4, 6), 20},
	} {
		t.Run(name, func(t *testing.T) {
			if got, want := freeSince(tc.before, held, 15*s), lockEpoch.Add(time.Duration(tc.want)*s); !got.Equal(want) {
				t.Errorf("free since %v, want %v", got.Sub(lockEpoch), want.Sub(lockEpoch))
			}
		})
	}
}

// TestLeaderLockFreeSince checks that every member knows how long the Lease has been free, even one
// that did not acquire it.
func TestLeaderLockFreeSince(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare, free func(h *harness)
		// since is when the Lease became free, after the beginning.
		since time.Duration
	}{
		"absent":   {func(*harness) {}, func(*harness) {}, 0},
		"released": {func(h *harness) { h.put("stock-a", 4) }, func(h *harness) { h.nameHolder("") }, 10*s + 5*time.Millisecond},
		"expired":  {func(h *harness) { h.put("stock-a", 4) }, func(*harness) {}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, h *harness) {
				tc.prepare(h)
				a, b := h.leaderLock("a", quietly), h.leaderLock("b", quietly)
				h.Sleep(10 * s)
				tc.free(h)
				h.Sleep(10 * s)
				for _, g := range []*lockNode{a, b} {
					g.expectHeld(true, true, false)
					if since := g.lock.FreeSince().Sub(h.Begin); (since - tc.since).Abs() > 10*time.Millisecond {
						t.Errorf("%s: free since %v, want %v", g.name, since, tc.since)
					}
				}
			})
		})
	}
}

// nameHolder writes a holder into the leader lock's Lease.
func (h *harness) nameHolder(holder string) {
	h.Store.Tamper(lockName, func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity = holder })
}

// An API server that coordinates elections writes spec.strategy and spec.preferredHolder on a Lease
// that the fleet holds. The right continues, and members leave these fields as they are.
func TestLeaderLockWithPreferredHolder(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.put("", 4)
		a, b := h.leaderLock("a", quietly), h.leaderLock("b", quietly)
		h.Sleep(20 * s)
		h.Store.Tamper(lockName, func(l *coordinationv1.Lease) {
			strategy, preferred := coordinationv1.OldestEmulationVersion, "stock-a"
			l.Spec.Strategy, l.Spec.PreferredHolder = &strategy, &preferred
		})
		for range 600 {
			h.Sleep(100 * time.Millisecond)
			a.expectHeld(true, true, false)
			b.expectHeld(true, true, false)
		}
		h.expectRecord(lockSelf, 5)
		if spec := h.Store.Get(lockName).Spec; spec.PreferredHolder == nil || *spec.PreferredHolder != "stock-a" || spec.Strategy == nil {
			t.Errorf("strategy %v, preferredHolder %v", spec.Strategy, spec.PreferredHolder)
		}
	})
}

package leaderlock

import (
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	coordinationv1 "k8s.io/api/coordination/v1"
)

// TestFreeSince has the Lease name the fleet in term 5 from second 20 on.
func TestFreeSince(t *testing.T) {
	held := lockSeen(lockSelf, 5, 20)
	for name, tc := range map[string]struct {
		before election.Observation
		want   int
	}{
		"nothing was known":                          {election.Observation{}, 20},
		"it was absent":                              {lockAbsent(3, 4), 3},
		"it was absent, and others came and went":    {lockAbsent(3, 2), 20},
		"it was released":                            {lockSeen("", 4, 19), 19},
		"it was released, and taken, and released":   {lockSeen("", 3, 2), 20},
		"its holder died":                            {lockSeen("stock-a", 4, 5), 5},
		"its holder died long ago, another one came": {lockSeen("stock-a", 3, 5), 20},
		"its holder was alive a moment ago":          {lockSeen("stock-a", 4, 6), 20},
	} {
		t.Run(name, func(t *testing.T) {
			if got, want := freeSince(tc.before, held, 15*s), lockEpoch.Add(time.Duration(tc.want)*s); !got.Equal(want) {
				t.Errorf("free since %v, want %v", got.Sub(lockEpoch), want.Sub(lockEpoch))
			}
		})
	}
}

// Every member knows since when the Lease has been free, also one that did not acquire it.
func TestLeaderLockFreeSince(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare, free func(w *world)
		// since is how long after the beginning the Lease has been free.
		since time.Duration
	}{
		"absent":   {func(*world) {}, func(*world) {}, 0},
		"released": {func(w *world) { w.put("stock-a", 4) }, func(w *world) { w.nameHolder("") }, 10*s + 5*time.Millisecond},
		"expired":  {func(w *world) { w.put("stock-a", 4) }, func(*world) {}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				tc.prepare(w)
				a, b := w.leaderLock("a", quietly), w.leaderLock("b", quietly)
				w.sleep(10 * s)
				tc.free(w)
				w.sleep(10 * s)
				for _, g := range []*lockNode{a, b} {
					g.expectHeld(true, true, false)
					if since := g.lock.FreeSince().Sub(w.begin); (since - tc.since).Abs() > 10*time.Millisecond {
						t.Errorf("%s: free since %v, want %v", g.name, since, tc.since)
					}
				}
			})
		})
	}
}

// nameHolder names another holder in the leader lock's Lease.
func (w *world) nameHolder(holder string) {
	w.store.Tamper(lockName, func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity = holder })
}

// An API server that coordinates elections writes spec.strategy and spec.preferredHolder on a Lease
// that the fleet holds. The right goes on, and what it wrote stays.
func TestLeaderLockWithPreferredHolder(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.put("", 4)
		a, b := w.leaderLock("a", quietly), w.leaderLock("b", quietly)
		w.sleep(20 * s)
		w.store.Tamper(lockName, func(l *coordinationv1.Lease) {
			strategy, preferred := coordinationv1.OldestEmulationVersion, "stock-a"
			l.Spec.Strategy, l.Spec.PreferredHolder = &strategy, &preferred
		})
		for range 600 {
			w.sleep(100 * time.Millisecond)
			a.expectHeld(true, true, false)
			b.expectHeld(true, true, false)
		}
		w.expectRecord(lockSelf, 5)
		if spec := w.store.Get(lockName).Spec; spec.PreferredHolder == nil || *spec.PreferredHolder != "stock-a" || spec.Strategy == nil {
			t.Errorf("strategy %v, preferredHolder %v", spec.Strategy, spec.PreferredHolder)
		}
	})
}

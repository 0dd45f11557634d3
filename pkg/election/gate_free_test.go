package election

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// TestFreeSince has the Lease name the fleet in term 5 from second 20 on.
func TestFreeSince(t *testing.T) {
	held := gateSeen(gateSelf, 5, 20)
	for name, tc := range map[string]struct {
		before Observation
		want   int
	}{
		"nothing was known":                          {Observation{}, 20},
		"it was absent":                              {gateAbsent(3, 4), 3},
		"it was absent, and others came and went":    {gateAbsent(3, 2), 20},
		"it was released":                            {gateSeen("", 4, 19), 19},
		"it was released, and taken, and released":   {gateSeen("", 3, 2), 20},
		"its holder died":                            {gateSeen("stock-a", 4, 5), 5},
		"its holder died long ago, another one came": {gateSeen("stock-a", 3, 5), 20},
		"its holder was alive a moment ago":          {gateSeen("stock-a", 4, 6), 20},
	} {
		t.Run(name, func(t *testing.T) {
			if got, want := freeSince(tc.before, held, 15*s), gateEpoch.Add(time.Duration(tc.want)*s); !got.Equal(want) {
				t.Errorf("free since %v, want %v", got.Sub(gateEpoch), want.Sub(gateEpoch))
			}
		})
	}
}

// Every member knows since when the Lease has been free, also one that did not acquire it.
func TestGateFreeSince(t *testing.T) {
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
				a, b := w.gate("a", quietly), w.gate("b", quietly)
				w.sleep(10 * s)
				tc.free(w)
				w.sleep(10 * s)
				for _, g := range []*gateNode{a, b} {
					g.expectHeld(true, true, false)
					if since := g.gate.FreeSince().Sub(w.begin); (since - tc.since).Abs() > 10*time.Millisecond {
						t.Errorf("%s: free since %v, want %v", g.name, since, tc.since)
					}
				}
			})
		})
	}
}

// nameHolder names another holder in the gate's Lease.
func (w *world) nameHolder(holder string) {
	w.store.Tamper(gateName, func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity = holder })
}

// An API server that coordinates elections writes spec.strategy and spec.preferredHolder on a Lease
// that the fleet holds. The right goes on, and what it wrote stays.
func TestGateWithPreferredHolder(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.put("", 4)
		a, b := w.gate("a", quietly), w.gate("b", quietly)
		w.sleep(20 * s)
		w.store.Tamper(gateName, func(l *coordinationv1.Lease) {
			strategy, preferred := coordinationv1.OldestEmulationVersion, "stock-a"
			l.Spec.Strategy, l.Spec.PreferredHolder = &strategy, &preferred
		})
		for range 600 {
			w.sleep(100 * time.Millisecond)
			a.expectHeld(true, true, false)
			b.expectHeld(true, true, false)
		}
		w.expectRecord(gateSelf, 5)
		if spec := w.store.Get(gateName).Spec; spec.PreferredHolder == nil || *spec.PreferredHolder != "stock-a" || spec.Strategy == nil {
			t.Errorf("strategy %v, preferredHolder %v", spec.Strategy, spec.PreferredHolder)
		}
	})
}

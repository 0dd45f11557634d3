package election

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
)

const s = time.Second

func TestAcquiresFreeLeaseAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		n := w.node("a")
		w.sleep(1 * s)
		w.expect(`
			0.0 a acquired 8
			0.0 a started 8`)
		claim := n.claimant.Claim()
		if claim.Name() != leaseName || claim.Identity() != "a_1" || claim.Term() != 8 {
			t.Errorf("Claim() = %s %s %d, want %s a_1 8", claim.Name(), claim.Identity(), claim.Term(), leaseName)
		}
		got := w.store.Get(leaseName).Spec
		if *got.HolderIdentity != "a_1" || *got.LeaseTransitions != 8 || *got.LeaseDurationSeconds != 15 || !got.AcquireTime.Time.Equal(w.begin) {
			t.Errorf("Lease is %+v, want a_1, 8, 15s, acquired at the start", got)
		}
	})
}

func TestCreatesAbsentLease(t *testing.T) {
	t.Run("after the lease duration", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.node("a")
			w.sleep(20 * s)
			w.expect(`
				0.0 a waiting (absent)
				15.0 a acquired 1
				15.0 a started 1`)
		})
	})
	t.Run("at once where nobody else can", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.node("a", creating)
			w.sleep(1 * s)
			w.expect(`
				0.0 a acquired 1
				0.0 a started 1`)
		})
	})
}

// The stamps of the Lease are decades old, and it is left alone all the same until it has stood still for its duration.
func TestTakesOverByObservedTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("b_1", 7))
		w.node("a")
		w.sleep(10 * s)
		w.store.Tamper(leaseName, func(l *coordinationv1.Lease) { l.Spec.RenewTime.Time = l.Spec.RenewTime.Add(s) })
		w.sleep(7 * s)
		// Others may write to the Lease of a dead holder; that is no sign of life.
		w.store.Tamper(leaseName, func(l *coordinationv1.Lease) { l.Annotations = map[string]string{"next": "a"} })
		w.sleep(7900 * time.Millisecond)
		w.expect(`
			0.0 a waiting (held)`)
		w.sleep(s)
		w.expect(`
			25.0 a acquired 8
			25.0 a started 8`)
		if got := w.store.Get(leaseName).Annotations["next"]; got != "a" {
			t.Errorf("Annotation next is %q after the takeover, want a: what others wrote must stay", got)
		}
	})
}

func TestRenewsEveryRetryPeriod(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		n := w.node("a")
		w.sleep(61 * s)
		var renewals int
		for _, write := range w.store.History() {
			if write.Client == "a" {
				renewals++
			}
		}
		if renewals != 31 { // at 0, 2, … 60
			t.Errorf("%d writes in 61 s, want 31", renewals)
		}
		claim := n.claimant.Claim()
		if got := claim.LastRenew().Sub(w.begin); got != 60*s {
			t.Errorf("LastRenew() is %v after the start, want 60s", got)
		}
		if claim.Deadline().Sub(w.begin) != 70*s || claim.Expiry().Sub(w.begin) != 75*s {
			t.Errorf("Deadline(), Expiry() = %v, %v, want 70s, 75s", claim.Deadline().Sub(w.begin), claim.Expiry().Sub(w.begin))
		}
	})
}

// The claim ends before anybody else may take over, and the work has the time in between.
func TestRenewDeadlineEndsClaim(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		a := w.node("a", lingering(3*s))
		w.sleep(s)
		w.node("b")
		w.sleep(2 * s)
		a.client.Block()
		a.watch.Block()
		w.sleep(37 * s)
		w.expect(`
			0.0 a acquired 8
			0.0 a started 8
			1.0 b waiting (held)
			9.0 a failed 8
			12.0 a ended 8 (renew-deadline)
			15.0 a work returns: claim on f-ns-01, term 8, ended: renew-deadline, valid false
			15.0 a returned 8
			17.0 b acquired 9
			17.0 b started 9
			20.0 a failed 9
			25.0 a failed 9
			30.0 a failed 9
			35.0 a failed 9
			40.0 a failed 9`)
	})
}

func TestStopsThenReleases(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		a := w.node("a", lingering(22500*time.Millisecond), drainingWithin(30*s)) // longer than the Lease lasts unless renewed
		w.sleep(s)
		w.node("b")
		w.sleep(4 * s)
		draining := a.claimant.Claim().Draining()
		a.stop()
		w.sleep(s)
		w.expect(`
			0.0 a acquired 8
			0.0 a started 8
			1.0 b waiting (held)
			5.0 a draining 8
			27.5 a work returns: claim is draining, valid true
			27.5 a ended 8 (drained)
			27.5 a released 8
			27.5 b acquired 9
			27.5 b started 9`)
		if !closed(draining) {
			t.Error("Draining() is open after the drain")
		}
	})
}

func TestReleasedLeaseKeepsItsTerm(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		for want := range int32(3) {
			n := w.node("a")
			w.sleep(s)
			n.stop()
			got := w.store.Get(leaseName).Spec
			if *got.HolderIdentity != "" || *got.LeaseTransitions != 8+want || *got.LeaseDurationSeconds != 1 || time.Since(got.RenewTime.Time) > 100*time.Millisecond {
				t.Errorf("Lease is %+v, want released now, with term %d", got, 8+want)
			}
		}
	})
}

func TestEndsOnAnotherHolder(t *testing.T) {
	for name, tc := range map[string]struct {
		tamper func(*coordinationv1.Lease)
		want   string
	}{
		"another holder": {
			func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity = "b_1"; *l.Spec.LeaseTransitions = 9 },
			`1.0 a ended 8 (other-holder)
			2.0 a work returns: claim on f-ns-01, term 8, ended: other-holder "b_1", valid false
			2.0 a returned 8
			2.0 a waiting (held)
			16.0 a acquired 10
			16.0 a started 10`,
		},
		"cleared": {
			func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity = "" },
			`1.0 a ended 8 (cleared)
			2.0 a work returns: claim on f-ns-01, term 8, ended: cleared, valid false
			2.0 a returned 8
			2.0 a acquired 9
			2.0 a started 9`,
		},
		"another term": {
			func(l *coordinationv1.Lease) { *l.Spec.LeaseTransitions = 3 },
			`1.0 a ended 8 (term-changed)
			2.0 a work returns: claim on f-ns-01, term 8, ended: term-changed, valid false
			2.0 a returned 8
			2.0 a acquired 9
			2.0 a started 9`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.store.Put(lease("", 7))
				w.node("a", lingering(s))
				w.sleep(s)
				w.expect(`
					0.0 a acquired 8
					0.0 a started 8`)
				w.store.Tamper(leaseName, tc.tamper)
				w.sleep(20 * s)
				w.expect(tc.want)
			})
		})
	}
}

// a cannot see that b has taken its Lease, drains, and must find out before it clears the holder.
func TestReleaseNeverClearsSuccessor(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		a := w.node("a")
		w.sleep(s)
		a.watch.Block("watch")
		w.store.Tamper(leaseName, func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity = "b_1"; *l.Spec.LeaseTransitions = 9 })
		a.stop()
		if got := w.holder(leaseName); got != "b_1" {
			t.Errorf("Holder is %q after a has stopped, want b_1", got)
		}
		for _, write := range w.store.History() {
			if write.Client == "a" && RecordFrom(write.Before).Holder == "b_1" {
				t.Error("a wrote to the Lease that b held")
			}
		}
	})
}

// As above, but b comes between the check and the write.
func TestReleaseIsConditional(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		a := w.node("a")
		w.sleep(s)
		a.client.Delay(1, 500*time.Millisecond, 0, "update")
		a.watch.Block("watch")
		a.cancel()
		w.sleep(100 * time.Millisecond)
		w.store.Tamper(leaseName, func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity = "b_1"; *l.Spec.LeaseTransitions = 9 })
		<-a.stopped
		if got := w.holder(leaseName); got != "b_1" {
			t.Errorf("Holder is %q after a has stopped, want b_1", got)
		}
	})
}

// The holder creates its Lease again and the claim goes on; nobody else does meanwhile.
func TestDeletedLeaseHeals(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		a := w.node("a")
		w.sleep(s)
		w.node("b")
		w.sleep(s / 2)
		a.watch.Block("watch") // It must find out by its renewal.
		w.store.Remove(leaseName)
		w.sleep(28500 * time.Millisecond)
		w.expect(`
			0.0 a acquired 8
			0.0 a started 8
			1.0 b waiting (held)
			1.5 b waiting (absent)
			2.0 a conflict 8
			2.0 b waiting (held)`)
		if got := RecordFrom(w.store.Get(leaseName)); got.Holder != "a_1" || got.Transitions != 8 {
			t.Errorf("Lease is held by %s, term %d, want a_1, 8", got.Holder, got.Transitions)
		}
	})
}

// Without its holder a deleted Lease is created by the next one, with a higher term, and not before a lease duration.
func TestDeletedLeaseOfDeadHolder(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("b_1", 7))
		w.node("a")
		w.sleep(5 * s)
		w.store.Remove(leaseName)
		w.sleep(20 * s)
		w.expect(`
			0.0 a waiting (held)
			5.0 a waiting (absent)
			20.0 a acquired 8
			20.0 a started 8`)
	})
}

func TestNonsenseDurationHeals(t *testing.T) {
	for name, duration := range map[string]*int32{"none": nil, "one": ptr.To[int32](1), "a year": ptr.To[int32](365 * 86400)} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.store.Put(lease("", 7))
				a := w.node("a")
				b := w.node("b", func(n *node, _ *ClaimantConfig) { n.quiet = true })
				b.claimant.SetWish(Leave)
				w.sleep(s)
				b.claimant.SetWish(Want)
				a.client.Block() // a cannot mend it for as long as its claim lasts.
				w.store.Tamper(leaseName, func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = duration })
				w.sleep(8 * s)
				if got := w.holder(leaseName); got != "a_1" {
					t.Errorf("Holder is %s while a's claim lasts, want a_1", got)
				}
				a.client.Unblock()
				w.sleep(4 * s)
				if got := *w.store.Get(leaseName).Spec.LeaseDurationSeconds; got != 15 {
					t.Errorf("leaseDurationSeconds is %d, want 15", got)
				}
				if a.claimant.Claim() == nil {
					t.Error("a has lost its claim")
				}
			})
		})
	}
}

func TestConflictStorm(t *testing.T) {
	t.Run("others annotate the Lease all the time", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.store.Put(lease("", 7))
			a := w.node("a", func(n *node, _ *ClaimantConfig) { n.quiet = true })
			a.watch.LagWatch(s) // What it knows is always old.
			w.sleep(s)
			for i := range 600 {
				w.store.Tamper(leaseName, func(l *coordinationv1.Lease) {
					l.Annotations = map[string]string{"next": strings.Repeat("x", i%7)}
				})
				w.sleep(100 * time.Millisecond)
			}
			if claim := a.claimant.Claim(); claim == nil || claim.Term() != 8 {
				t.Errorf("Claim() = %+v after a minute of conflicts, want term 8", claim)
			}
		})
	})
	t.Run("every write is refused", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.store.Put(lease("", 7))
			tries := 0
			a := w.node("a", func(_ *node, cfg *ClaimantConfig) {
				cfg.OnEvent = func(e Event) {
					if e.Type == EventConflict {
						tries++
					}
				}
			})
			w.sleep(s)
			a.client.Conflict(1000)
			w.sleep(12 * s)
			if a.claimant.Claim() != nil {
				t.Error("a holds on although it has not renewed")
			}
			if tries < 5 || tries > 60 {
				t.Errorf("%d conflicts until the deadline, want a few dozen at most", tries)
			}
		})
	})
}

func TestStuckWork(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		a := w.node("a", lingering(30*s))
		w.sleep(3 * s)
		a.client.Block()
		w.sleep(38 * s)
		w.expect(`
			0.0 a acquired 8
			0.0 a started 8
			9.0 a failed 8
			12.0 a ended 8 (renew-deadline)
			17.0 a stuck 8 (renew-deadline) since 5s`)
		a.client.Unblock()
		w.sleep(4 * s)
		w.expect(`
			42.0 a work returns: claim on f-ns-01, term 8, ended: renew-deadline, valid false
			42.0 a returned 8
			42.0 a acquired 9
			42.0 a started 9`)
	})
}

// TestDrainIsBounded has work that was asked to stop go on. Its claimant says so once, goes on
// renewing, and never releases the Lease before the work has returned: nobody else gets it while
// the process lives.
func TestDrainIsBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		within time.Duration
		want   string
	}{
		"by default":    {0, "20.0 a stuck 8 () since 15s"},
		"as configured": {20 * s, "25.0 a stuck 8 () since 20s"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.store.Put(lease("", 7))
				a := w.node("a", lingering(60*s), drainingWithin(tc.within))
				w.sleep(s)
				w.node("b")
				w.sleep(4 * s)
				a.cancel()
				w.sleep(58 * s)
				w.expect(`
					0.0 a acquired 8
					0.0 a started 8
					1.0 b waiting (held)
					5.0 a draining 8
					` + tc.want)
				w.sleep(3 * s)
				w.expect(`
					65.0 a work returns: claim is draining, valid true
					65.0 a ended 8 (drained)
					65.0 a released 8
					65.0 b acquired 9
					65.0 b started 9`)
			})
		})
	}
}

// TestDrainTimeoutMayChange shortens the time while the work drains.
func TestDrainTimeoutMayChange(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		var within atomic.Int64
		within.Store(int64(30 * s))
		a := w.node("a", lingering(60*s), func(_ *node, cfg *ClaimantConfig) {
			cfg.DrainTimeout = func() time.Duration { return time.Duration(within.Load()) }
		})
		w.sleep(s)
		a.claimant.SetWish(Leave)
		w.sleep(500 * time.Millisecond)
		within.Store(int64(3 * s))
		a.claimant.SetWish(Leave)
		w.sleep(10 * s)
		w.expect(`
			0.0 a acquired 8
			0.0 a started 8
			1.0 a draining 8
			4.0 a stuck 8 () since 3s`)
	})
}

func TestWorkThatReturnsByItself(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		w.node("a", func(_ *node, cfg *ClaimantConfig) {
			cfg.Work = func(context.Context, *Claim) { time.Sleep(s) } // virtual
		})
		w.sleep(3500 * time.Millisecond)
		w.expect(`
			0.0 a acquired 8
			0.0 a started 8
			1.0 a ended 8 (work-returned)
			3.0 a acquired 9
			3.0 a started 9`)
	})
}

func TestLostAnswers(t *testing.T) {
	t.Run("of an acquisition", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.store.Put(lease("", 7))
			a := w.node("a", func(n *node, _ *ClaimantConfig) { n.client.DropReply(1, "update") })
			w.sleep(10 * s)
			w.expect(`
				5.0 a failed 8
				5.0 a acquired 9
				5.0 a started 9`)
			a.stop()
		})
	})
	t.Run("of an acquisition that is not wanted any more", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.store.Put(lease("", 7))
			a := w.node("a", func(n *node, _ *ClaimantConfig) { n.client.DropReply(1, "update") })
			w.sleep(s)
			a.stop()
			w.expect(`
				5.0 a failed 8
				5.0 a released 8`)
		})
	})
	t.Run("of a renewal", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.store.Put(lease("", 7))
			a := w.node("a")
			w.sleep(s)
			a.client.DropReply(1, "update")
			w.sleep(20 * s)
			w.expect(`
				0.0 a acquired 8
				0.0 a started 8
				7.0 a failed 8`)
		})
	})
	t.Run("of a renewal, with short timings", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.store.Put(lease("", 7))
			a := w.node("a", func(_ *node, cfg *ClaimantConfig) {
				cfg.Timing = Timing{LeaseDuration: 6 * s, RenewDeadline: 4 * s, RetryPeriod: s}
				cfg.Jitter = func(d time.Duration) time.Duration { return d + d/5 }
			})
			w.sleep(s / 2)
			a.client.DropReply(1, "update")
			w.sleep(20 * s)
			w.expect(`
				0.0 a acquired 8
				0.0 a started 8
				3.0 a failed 8`)
		})
	})
	t.Run("of a release", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.store.Put(lease("", 7))
			a := w.node("a")
			w.sleep(s)
			a.client.DropReply(1, "update")
			a.stop()
			if got := w.holder(leaseName); got != "" {
				t.Errorf("Holder is %q, want none", got)
			}
		})
	})
}

func TestRevoked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		a := w.node("a", lingering(2*s))
		w.sleep(s)
		close(a.revoked)
		w.sleep(9 * s)
		w.expect(`
			0.0 a acquired 8
			0.0 a started 8
			1.0 a ended 8 (revoked)
			3.0 a work returns: claim on f-ns-01, term 8, ended: revoked, valid false
			3.0 a returned 8
			3.0 a released 8`)
	})
}

// A planned stop must not wait for ever on an API server that has gone: the Lease expires by itself.
func TestStopsWithoutServer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		a := w.node("a")
		w.sleep(3 * s)
		a.client.Block()
		a.stop()
		if got := time.Since(w.begin); got > 20*s {
			t.Errorf("Run returned after %v, want soon after the Lease has expired", got)
		}
	})
}

// A suspended process finds its claim invalid at once, whatever its timers say, and its work gets time to return.
func TestSuspend(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		a := w.node("a", lingering(s))
		w.sleep(s)
		claim := a.claimant.Claim()
		if !claim.Valid(a.clock.Now()) {
			t.Error("Claim is invalid before the suspend")
		}
		a.clock.jump(time.Minute)
		if claim.Valid(a.clock.Now()) {
			t.Error("Claim is valid after the suspend")
		}
		w.sleep(10 * s)
		w.expect(`
			0.0 a acquired 8
			0.0 a started 8
			2.0 a ended 8 (renew-deadline)
			3.0 a work returns: claim on f-ns-01, term 8, ended: renew-deadline, valid false
			3.0 a returned 8
			3.0 a acquired 9
			3.0 a started 9`)
	})
}

// The answer to an acquisition comes so late that nothing is left of the claim: the work must not start.
func TestLateAcquisition(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		a := w.node("a", func(n *node, _ *ClaimantConfig) { n.client.Delay(1, 0, s, "update") })
		w.sleep(s / 2)
		a.clock.jump(10 * s)
		w.sleep(s)
		w.expect(`
			1.0 a acquired 8
			1.0 a ended 8 (renew-deadline)
			1.0 a acquired 9
			1.0 a started 9`)
	})
}

func TestWishes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		a := w.node("a", lingering(2*s))
		w.sleep(s)
		a.claimant.SetWish(Leave)
		w.sleep(s)
		a.claimant.SetWish(Want) // The drain is carried through.
		w.sleep(2 * s)
		a.claimant.SetWish(Leave)
		w.sleep(3 * s)
		w.expect(`
			0.0 a acquired 8
			0.0 a started 8
			1.0 a draining 8
			3.0 a work returns: claim is draining, valid true
			3.0 a ended 8 (drained)
			3.0 a acquired 9
			3.0 a started 9
			4.0 a draining 9
			6.0 a work returns: claim is draining, valid true
			6.0 a ended 9 (drained)
			6.0 a released 9`)
		a.stop()
	})
}

func TestMarks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		w.store.Tamper(leaseName, func(l *coordinationv1.Lease) {
			l.Annotations = map[string]string{"foreign": "stays", "gone": "x"}
		})
		rng := "0x0"
		a := w.node("a", func(_ *node, cfg *ClaimantConfig) {
			cfg.Labels = map[string]string{"flotilla.dev/ring": "namespaces"}
			cfg.Annotations = func() map[string]string { return map[string]string{"range": rng, "gone": ""} }
		})
		w.sleep(s)
		check := func(rng string) {
			t.Helper()
			got := w.store.Get(leaseName)
			if got.Labels["flotilla.dev/ring"] != "namespaces" || got.Annotations["range"] != rng || got.Annotations["foreign"] != "stays" {
				t.Errorf("Lease has labels %v, annotations %v, want ring, range %s and what was there", got.Labels, got.Annotations, rng)
			}
			if _, ok := got.Annotations["gone"]; ok {
				t.Error("An annotation with an empty value was not removed")
			}
		}
		check("0x0")
		rng = "0x1"
		a.client.Conflict(1)
		a.claimant.Touch()
		w.sleep(100 * time.Millisecond)
		check("0x1")
	})
}

func TestNewClaimantNamesWhatIsWrong(t *testing.T) {
	_, err := NewClaimant(ClaimantConfig{})
	for _, field := range []string{"Name", "Identity", "Client", "Observer", "Clock", "Work", "OnStuck", "Timing.LeaseDuration"} {
		if err == nil || !strings.Contains(err.Error(), "ClaimantConfig."+field+" is ") {
			t.Errorf("NewClaimant(nothing) = %v, want it to name %s", err, field)
		}
	}
}

package election

import (
	"context"
	"fmt"
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
	inWorld(t, func(t *testing.T, w *world) {
		w.node("a")
		w.sleep(20 * s)
		w.expect(`
			0.0 a waiting (absent)
			15.0 a acquired 1
			15.0 a started 1`)
	})
}

// However long the Lease stands still, it is left alone until its holder is listed as ended.
func TestTakesOverFromWhoHasEnded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("b_1", 7))
		w.node("a")
		w.sleep(10 * s)
		w.store.Tamper(leaseName, func(l *coordinationv1.Lease) { l.Annotations = map[string]string{"next": "a"} })
		w.strike("c_1")
		w.sleep(50 * s)
		w.expect(`
			0.0 a waiting (held)`)
		w.strike("b_1")
		w.sleep(s)
		w.expect(`
			60.0 a acquired 8
			60.0 a started 8`)
		if got := w.store.Get(leaseName).Annotations["next"]; got != "a" {
			t.Errorf("Annotation next is %q after the takeover, want a: what others wrote must stay", got)
		}
	})
}

// A Lease whose holder is no member is left alone until it has stood still for a lease duration by
// this process's clock; its stamps are decades old.
func TestTakesOverByObservedTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("somebody", 7))
		w.node("a")
		w.sleep(10 * s)
		w.store.Tamper(leaseName, func(l *coordinationv1.Lease) { l.Spec.RenewTime.Time = l.Spec.RenewTime.Add(s) })
		w.sleep(7 * s)
		// A change of annotations is no sign of life.
		w.store.Tamper(leaseName, func(l *coordinationv1.Lease) { l.Annotations = map[string]string{"next": "a"} })
		w.sleep(7900 * time.Millisecond)
		w.expect(`
			0.0 a waiting (held)`)
		w.sleep(s)
		w.expect(`
			25.0 a acquired 8
			25.0 a started 8`)
	})
}

// A claim lives by the heartbeat, and writes nothing.
func TestClaimFollowsHeartbeat(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		n := w.node("a")
		w.sleep(61 * s)
		var writes int
		for _, write := range w.store.History() {
			if write.Client == "a" {
				writes++
			}
		}
		if writes != 1 {
			t.Errorf("%d writes in 61 s, want that of the acquisition", writes)
		}
		claim := n.claimant.Claim()
		if got := claim.LastRenew().Sub(w.begin); got != 60*s {
			t.Errorf("LastRenew() is %v after the start, want 60s", got)
		}
		if claim.Deadline().Sub(w.begin) != 70*s || claim.Expiry().Sub(w.begin) != 75*s {
			t.Errorf("Deadline(), Expiry() = %v, %v, want 70s, 75s", claim.Deadline().Sub(w.begin), claim.Expiry().Sub(w.begin))
		}
		if _, held := n.claimant.Turned(); !held {
			t.Error("Turned() knows of no claim")
		}
	})
}

// Without a right nothing is acquired, and what is held ends.
func TestClaimEndsWithTheRight(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		a := w.node("a", lingering(s))
		w.sleep(5 * s)
		a.beats.finish()
		w.sleep(2 * s) // The loop comes round.
		w.expect(`
			0.0 a acquired 8
			0.0 a started 8
			5.0 a ended 8 (no-right)
			6.0 a work returns: claim on f-ns-01, term 8, ended: no-right, valid false
			6.0 a returned 8
			6.0 a waiting (no-right)`)
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
		a.beats.stop()
		w.sleep(14 * s)
		w.strike("a_1")
		w.sleep(20 * s)
		w.expect(`
			0.0 a acquired 8
			0.0 a started 8
			1.0 b waiting (held)
			12.0 a ended 8 (renew-deadline)
			15.0 a work returns: claim on f-ns-01, term 8, ended: renew-deadline, valid false
			15.0 a returned 8
			15.0 a waiting (no-right)
			17.0 a waiting (no-right)
			17.0 b acquired 9
			17.0 b started 9`)
	})
}

func TestStopsThenReleases(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		a := w.node("a", lingering(22500*time.Millisecond), drainingWithin(30*s))
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
			if !RecordFrom(w.store.Get(leaseName)).IsReleased() {
				t.Error("The Lease does not say that its holder has released it")
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
			2.0 a waiting (held)
			16.0 a acquired 9
			16.0 a started 9`,
		},
		"another term": {
			func(l *coordinationv1.Lease) { *l.Spec.LeaseTransitions = 3 },
			`1.0 a ended 8 (term-changed)
			2.0 a work returns: claim on f-ns-01, term 8, ended: term-changed, valid false
			2.0 a returned 8
			2.0 a waiting (held)
			16.0 a acquired 9
			16.0 a started 9`,
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
				w.sleep(15 * s)
				w.strike("b_1")
				w.sleep(4 * s)
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
		w.node("a")
		w.sleep(s)
		w.node("b")
		w.sleep(s / 2)
		w.store.Remove(leaseName)
		w.sleep(28500 * time.Millisecond)
		w.expect(`
			0.0 a acquired 8
			0.0 a started 8
			1.0 b waiting (held)
			1.5 b waiting (absent)
			1.5 b waiting (held)`)
		if got := RecordFrom(w.store.Get(leaseName)); got.Holder != "a_1" || got.Transitions != 8 {
			t.Errorf("Lease is held by %s, term %d, want a_1, 8", got.Holder, got.Transitions)
		}
	})
}

// Without its holder a deleted Lease is created by the next one, with a higher term, and not before
// a lease duration.
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

func TestNonsenseDurationChangesNothing(t *testing.T) {
	for name, duration := range map[string]*int32{"none": nil, "one": ptr.To[int32](1), "a year": ptr.To[int32](365 * 86400)} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.store.Put(lease("", 7))
				a := w.node("a", func(n *node, _ *ClaimantConfig) { n.quiet = true })
				w.sleep(s)
				w.node("b", func(n *node, _ *ClaimantConfig) { n.quiet = true })
				w.store.Tamper(leaseName, func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = duration })
				w.sleep(60 * s)
				if claim := a.claimant.Claim(); claim == nil || !claim.Valid(a.clock.Now()) || w.holder(leaseName) != "a_1" {
					t.Errorf("a has lost its claim, and %q holds the Lease", w.holder(leaseName))
				}
				w.strike("a_1")
				w.sleep(100 * time.Millisecond)
				if got := w.holder(leaseName); got != "b_1" {
					t.Errorf("Holder is %q after a has been listed as ended, want b_1", got)
				}
			})
		})
	}
}

func TestConflictStorm(t *testing.T) {
	t.Run("others annotate the Lease all the time", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.store.Put(lease("", 7))
			var said atomic.Int64
			a := w.node("a", func(n *node, cfg *ClaimantConfig) {
				n.quiet = true
				cfg.Annotations = func() map[string]string { return map[string]string{"said": fmt.Sprint(said.Load())} }
			})
			a.watch.LagWatch(s) // What it knows is always old.
			w.sleep(s)
			for i := range 600 {
				w.store.Tamper(leaseName, func(l *coordinationv1.Lease) {
					l.Annotations["next"] = strings.Repeat("x", i%7)
				})
				if i%10 == 0 {
					said.Add(1)
					a.claimant.Touch()
				}
				w.sleep(100 * time.Millisecond)
			}
			if claim := a.claimant.Claim(); claim == nil || claim.Term() != 8 {
				t.Errorf("Claim() = %+v after a minute of conflicts, want term 8", claim)
			}
			if got := w.store.Get(leaseName).Annotations["said"]; got != "60" {
				t.Errorf("the Lease says %s a second after the 60th change", got)
			}
		})
	})
	t.Run("every write is refused", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.store.Put(lease("", 7))
			var tries, said atomic.Int64
			a := w.node("a", func(_ *node, cfg *ClaimantConfig) {
				cfg.Annotations = func() map[string]string { return map[string]string{"said": fmt.Sprint(said.Load())} }
				cfg.OnEvent = func(e Event) {
					if e.Type == EventConflict {
						tries.Add(1)
					}
				}
			})
			w.sleep(s)
			a.client.Conflict(1000)
			said.Add(1)
			a.claimant.Touch()
			w.sleep(12 * s)
			if a.claimant.Claim() == nil {
				t.Error("a has lost its claim over annotations")
			}
			if got := tries.Load(); got < 5 || got > 60 {
				t.Errorf("%d conflicts in 12 s, want a few dozen at most", got)
			}
		})
	})
}

func TestStuckWork(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		a := w.node("a", lingering(30*s))
		w.sleep(3 * s)
		a.beats.stop()
		w.sleep(38 * s)
		w.expect(`
			0.0 a acquired 8
			0.0 a started 8
			12.0 a ended 8 (renew-deadline)
			17.0 a stuck 8 (renew-deadline) since 5s`)
		w.sleep(4 * s)
		w.expect(`
			42.0 a work returns: claim on f-ns-01, term 8, ended: renew-deadline, valid false
			42.0 a returned 8
			42.0 a waiting (no-right)`)
	})
}

// TestDrainIsBounded has work that was asked to stop go on. Its claimant says so once, holds on,
// and never releases the Lease before the work has returned: nobody else gets it while
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
		a.claimant.SetDesired(Released)
		w.sleep(500 * time.Millisecond)
		within.Store(int64(3 * s))
		a.claimant.SetDesired(Released)
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
			3.0 a waiting (held)
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
				5.0 a waiting (held)
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
	t.Run("of a change of annotations", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.store.Put(lease("", 7))
			var said atomic.Int64
			a := w.node("a", func(_ *node, cfg *ClaimantConfig) {
				cfg.Annotations = func() map[string]string { return map[string]string{"said": fmt.Sprint(said.Load())} }
			})
			w.sleep(s)
			a.client.DropReply(1, "update")
			said.Add(1)
			a.claimant.Touch()
			w.sleep(20 * s)
			w.expect(`
				0.0 a acquired 8
				0.0 a started 8
				6.0 a failed 8`)
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

// TestLostClaimGivesUpItsRequest: the release does not wait for the answer to a request that the
// lost claim had under way.
func TestLostClaimGivesUpItsRequest(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		var said atomic.Int64
		a := w.node("a", lingering(s), func(_ *node, cfg *ClaimantConfig) {
			cfg.Annotations = func() map[string]string { return map[string]string{"said": fmt.Sprint(said.Load())} }
		})
		w.sleep(s)
		a.client.Drop(1, "update")
		said.Add(1)
		a.claimant.Touch()
		w.sleep(s)
		close(a.revoked)
		w.sleep(9 * s)
		w.expect(`
			0.0 a acquired 8
			0.0 a started 8
			2.0 a ended 8 (revoked)
			3.0 a work returns: claim on f-ns-01, term 8, ended: revoked, valid false
			3.0 a returned 8
			3.0 a released 8`)
	})
}

// TestPauseAfterFailure: an API server that fails is asked again after RetryPeriod.
func TestPauseAfterFailure(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		w.node("a", func(n *node, _ *ClaimantConfig) { n.client.Fail(2, "update") })
		w.sleep(9 * s)
		w.expect(`
			0.0 a failed 8
			2.0 a failed 8
			4.0 a acquired 8
			4.0 a started 8`)
	})
}

// A planned stop must not wait for ever on an API server that has gone: others list the incarnation
// as ended.
func TestStopsWithoutServer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		a := w.node("a")
		w.sleep(3 * s)
		a.client.Block()
		a.beats.stop()
		a.stop()
		if got := time.Since(w.begin); got > 18*s {
			t.Errorf("Run returned after %v, want a lease duration after the last heartbeat, at 17s", got)
		}
	})
}

// A suspended process finds its claim invalid at once, whatever its timers say, and its work gets
// time to return.
func TestSuspend(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		a := w.node("a", lingering(s))
		w.sleep(s)
		claim := a.claimant.Claim()
		if !claim.Valid(a.clock.Now()) {
			t.Error("Claim is invalid before the suspend")
		}
		a.beats.stop()
		a.clock.Jump(time.Minute)
		if claim.Valid(a.clock.Now()) {
			t.Error("Claim is valid after the suspend")
		}
		w.sleep(10 * s)
		w.expect(`
			0.0 a acquired 8
			0.0 a started 8
			1.0 a ended 8 (renew-deadline)
			2.0 a work returns: claim on f-ns-01, term 8, ended: renew-deadline, valid false
			2.0 a returned 8
			2.0 a waiting (no-right)`)
	})
}

// The answer to an acquisition comes so late that nothing is left of the claim: the work must not
// start.
func TestLateAcquisition(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		a := w.node("a", func(n *node, _ *ClaimantConfig) { n.client.Delay(1, 0, s, "update") })
		w.sleep(s / 2)
		a.beats.stop()
		a.clock.Jump(10 * s)
		w.sleep(s)
		w.expect(`
			1.0 a acquired 8
			1.0 a ended 8 (renew-deadline)
			1.0 a waiting (no-right)`)
	})
}

func TestDesired(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.store.Put(lease("", 7))
		a := w.node("a", lingering(2*s))
		w.sleep(s)
		a.claimant.SetDesired(Released)
		w.sleep(s)
		a.claimant.SetDesired(Held) // The drain is carried through.
		w.sleep(2 * s)
		a.claimant.SetDesired(Released)
		w.sleep(3 * s)
		w.expect(`
			0.0 a acquired 8
			0.0 a started 8
			1.0 a draining 8
			3.0 a work returns: claim is draining, valid true
			3.0 a ended 8 (drained)
			3.0 a waiting (held)
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
			l.Annotations["foreign"], l.Annotations["gone"] = "stays", "x"
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
		// What somebody takes away is written again.
		w.store.Tamper(leaseName, func(l *coordinationv1.Lease) { delete(l.Annotations, "range") })
		w.sleep(3 * s)
		check("0x1")
	})
}

func TestNewClaimantNamesWhatIsWrong(t *testing.T) {
	_, err := NewClaimant(ClaimantConfig{})
	for _, field := range []string{"Name", "Identity", "Client", "Observer", "Clock", "Heartbeat", "Work", "OnStuck", "Timing.LeaseDuration"} {
		if err == nil || !strings.Contains(err.Error(), "ClaimantConfig."+field+" is ") {
			t.Errorf("NewClaimant(nothing) = %v, want it to name %s", err, field)
		}
	}
}

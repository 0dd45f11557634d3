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

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
)

const s = time.Second

func TestAcquiresFreeLeaseAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("", 7))
		n := h.node("a")
		h.Sleep(1 * s)
		h.Expect(`
			0.0 a acquired 8
			0.0 a started 8`)
		claim := n.claimant.Claim()
		if claim.Name() != leaseName || claim.Identity() != "a_1" || claim.Term() != 8 {
			t.Errorf("Claim() = %s %s %d, want %s a_1 8", claim.Name(), claim.Identity(), claim.Term(), leaseName)
		}
		got := h.Store.Get(leaseName).Spec
		if *got.HolderIdentity != "a_1" || *got.LeaseTransitions != 8 || *got.LeaseDurationSeconds != 15 || !got.AcquireTime.Time.Equal(h.Begin) {
			t.Errorf("Lease is %+v, want a_1, 8, 15s, acquired at the start", got)
		}
	})
}

func TestCreatesAbsentLease(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.node("a")
		h.Sleep(20 * s)
		h.Expect(`
			0.0 a waiting (absent)
			15.0 a acquired 1
			15.0 a started 1`)
	})
}

// However long the Lease is unchanged, nobody acquires it until its holder is listed as ended.
func TestTakesOverFromEndedHolder(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("b_1", 7))
		h.node("a")
		h.Sleep(10 * s)
		h.Store.Tamper(leaseName, func(l *coordinationv1.Lease) { l.Annotations = map[string]string{"next": "a"} })
		h.strike("c_1")
		h.Sleep(50 * s)
		h.Expect(`
			0.0 a waiting (held)`)
		h.strike("b_1")
		h.Sleep(s)
		h.Expect(`
			60.0 a acquired 8
			60.0 a started 8`)
		if got := h.Store.Get(leaseName).Annotations["next"]; got != "a" {
			t.Errorf("Annotation next is %q after the takeover, want a: others' annotations must stay", got)
		}
	})
}

// Nobody acquires a Lease whose holder is not a member until it has been unchanged for a lease
// duration by this process's clock. Its own timestamps are decades old.
func TestTakesOverByObservedTime(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("somebody", 7))
		h.node("a")
		h.Sleep(10 * s)
		h.Store.Tamper(leaseName, func(l *coordinationv1.Lease) { l.Spec.RenewTime.Time = l.Spec.RenewTime.Add(s) })
		h.Sleep(7 * s)
		// A change of annotations is not a heartbeat.
		h.Store.Tamper(leaseName, func(l *coordinationv1.Lease) { l.Annotations = map[string]string{"next": "a"} })
		h.Sleep(7900 * time.Millisecond)
		h.Expect(`
			0.0 a waiting (held)`)
		h.Sleep(s)
		h.Expect(`
			25.0 a acquired 8
			25.0 a started 8`)
	})
}

// The heartbeat keeps a claim alive; the claim writes nothing.
func TestClaimFollowsHeartbeat(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("", 7))
		n := h.node("a")
		h.Sleep(61 * s)
		var writes int
		for _, write := range h.Store.History() {
			if write.Client == "a" {
				writes++
			}
		}
		if writes != 1 {
			t.Errorf("%d writes in 61 s, want only the acquisition", writes)
		}
		claim := n.claimant.Claim()
		if got := claim.LastRenew().Sub(h.Begin); got != 60*s {
			t.Errorf("LastRenew() is %v after the start, want 60s", got)
		}
		if claim.Deadline().Sub(h.Begin) != 70*s || claim.Expiry().Sub(h.Begin) != 75*s {
			t.Errorf("Deadline(), Expiry() = %v, %v, want 70s, 75s", claim.Deadline().Sub(h.Begin), claim.Expiry().Sub(h.Begin))
		}
		if _, held := n.claimant.Turned(); !held {
			t.Error("Turned() reports no claim")
		}
	})
}

// Without a right a claimant acquires nothing, and its claim ends.
func TestClaimEndsWithTheRight(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("", 7))
		a := h.node("a", lingering(s))
		h.Sleep(5 * s)
		a.beats.finish()
		h.Sleep(2 * s) // The loop wakes by itself.
		h.Expect(`
			0.0 a acquired 8
			0.0 a started 8
			5.0 a ended 8 (no-right)
			6.0 a work returns: claim on f-ns-01, term 8, ended: no-right, valid false
			6.0 a returned 8
			6.0 a waiting (no-right)`)
	})
}

// The claim ends before others may take over, and the work has the time in between to return.
func TestRenewDeadlineEndsClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("", 7))
		a := h.node("a", lingering(3*s))
		h.Sleep(s)
		h.node("b")
		h.Sleep(2 * s)
		a.beats.stop()
		h.Sleep(14 * s)
		h.strike("a_1")
		h.Sleep(20 * s)
		h.Expect(`
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
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("", 7))
		a := h.node("a", lingering(22500*time.Millisecond), drainingWithin(30*s))
		h.Sleep(s)
		h.node("b")
		h.Sleep(4 * s)
		draining := a.claimant.Claim().Draining()
		a.Stop()
		h.Sleep(s)
		h.Expect(`
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
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("", 7))
		for want := range int32(3) {
			n := h.node("a")
			h.Sleep(s)
			n.Stop()
			got := h.Store.Get(leaseName).Spec
			if *got.HolderIdentity != "" || *got.LeaseTransitions != 8+want || *got.LeaseDurationSeconds != 1 || time.Since(got.RenewTime.Time) > 100*time.Millisecond {
				t.Errorf("Lease is %+v, want released now, with term %d", got, 8+want)
			}
			if !leaserecord.From(h.Store.Get(leaseName)).IsReleased() {
				t.Error("The Lease is not marked as released by its holder")
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
			inBubble(t, func(t *testing.T, h *harness) {
				h.Store.Put(lease("", 7))
				h.node("a", lingering(s))
				h.Sleep(s)
				h.Expect(`
					0.0 a acquired 8
					0.0 a started 8`)
				h.Store.Tamper(leaseName, tc.tamper)
				h.Sleep(15 * s)
				h.strike("b_1")
				h.Sleep(4 * s)
				h.Expect(tc.want)
			})
		})
	}
}

// a cannot see that b has taken its Lease, and drains. It must find out before it clears the
// holder.
func TestReleaseNeverClearsSuccessor(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("", 7))
		a := h.node("a")
		h.Sleep(s)
		a.watch.Block("watch")
		h.Store.Tamper(leaseName, func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity = "b_1"; *l.Spec.LeaseTransitions = 9 })
		a.Stop()
		if got := h.Holder(leaseName); got != "b_1" {
			t.Errorf("Holder is %q after a has stopped, want b_1", got)
		}
		for _, write := range h.Store.History() {
			if write.Client == "a" && leaserecord.From(write.Before).Holder == "b_1" {
				t.Error("a wrote to the Lease that b held")
			}
		}
	})
}

// As above, but b comes between the check and the write.
func TestReleaseIsConditional(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("", 7))
		a := h.node("a")
		h.Sleep(s)
		a.client.Delay(1, 500*time.Millisecond, 0, "update")
		a.watch.Block("watch")
		a.Cancel()
		h.Sleep(100 * time.Millisecond)
		h.Store.Tamper(leaseName, func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity = "b_1"; *l.Spec.LeaseTransitions = 9 })
		<-a.Stopped
		if got := h.Holder(leaseName); got != "b_1" {
			t.Errorf("Holder is %q after a has stopped, want b_1", got)
		}
	})
}

// The holder recreates its Lease, and its claim continues. Nobody else creates it meanwhile.
func TestDeletedLeaseHeals(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("", 7))
		h.node("a")
		h.Sleep(s)
		h.node("b")
		h.Sleep(s / 2)
		h.Store.Remove(leaseName)
		h.Sleep(28500 * time.Millisecond)
		h.Expect(`
			0.0 a acquired 8
			0.0 a started 8
			1.0 b waiting (held)
			1.5 b waiting (absent)
			1.5 b waiting (held)`)
		if got := leaserecord.From(h.Store.Get(leaseName)); got.Holder != "a_1" || got.Transitions != 8 {
			t.Errorf("Lease is held by %s, term %d, want a_1, 8", got.Holder, got.Transitions)
		}
	})
}

// If its holder is dead, the next holder creates a deleted Lease, with a higher term and only after
// a lease duration.
func TestDeletedLeaseOfDeadHolder(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("b_1", 7))
		h.node("a")
		h.Sleep(5 * s)
		h.Store.Remove(leaseName)
		h.Sleep(20 * s)
		h.Expect(`
			0.0 a waiting (held)
			5.0 a waiting (absent)
			20.0 a acquired 8
			20.0 a started 8`)
	})
}

func TestNonsenseDurationChangesNothing(t *testing.T) {
	for name, duration := range map[string]*int32{"none": nil, "one": ptr.To[int32](1), "a year": ptr.To[int32](365 * 86400)} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, h *harness) {
				h.Store.Put(lease("", 7))
				a := h.node("a", func(n *node, _ *ClaimantConfig) { n.quiet = true })
				h.Sleep(s)
				h.node("b", func(n *node, _ *ClaimantConfig) { n.quiet = true })
				h.Store.Tamper(leaseName, func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = duration })
				h.Sleep(60 * s)
				if claim := a.claimant.Claim(); claim == nil || !claim.Valid(a.clock.Now()) || h.Holder(leaseName) != "a_1" {
					t.Errorf("a has lost its claim, and %q holds the Lease", h.Holder(leaseName))
				}
				h.strike("a_1")
				h.Sleep(100 * time.Millisecond)
				if got := h.Holder(leaseName); got != "b_1" {
					t.Errorf("Holder is %q after a has been listed as ended, want b_1", got)
				}
			})
		})
	}
}

func TestConflictStorm(t *testing.T) {
	t.Run("others annotate the Lease all the time", func(t *testing.T) {
		inBubble(t, func(t *testing.T, h *harness) {
			h.Store.Put(lease("", 7))
			var said atomic.Int64
			a := h.node("a", func(n *node, cfg *ClaimantConfig) {
				n.quiet = true
				cfg.Annotations = func() map[string]string { return map[string]string{"said": fmt.Sprint(said.Load())} }
			})
			a.watch.LagWatch(s) // Its knowledge is always out of date.
			h.Sleep(s)
			for i := range 600 {
				h.Store.Tamper(leaseName, func(l *coordinationv1.Lease) {
					l.Annotations["next"] = strings.Repeat("x", i%7)
				})
				if i%10 == 0 {
					said.Add(1)
					a.claimant.Touch()
				}
				h.Sleep(100 * time.Millisecond)
			}
			if claim := a.claimant.Claim(); claim == nil || claim.Term() != 8 {
				t.Errorf("Claim() = %+v after a minute of conflicts, want term 8", claim)
			}
			if got := h.Store.Get(leaseName).Annotations["said"]; got != "60" {
				t.Errorf("the Lease says %s a second after the 60th change", got)
			}
		})
	})
	t.Run("every write is refused", func(t *testing.T) {
		inBubble(t, func(t *testing.T, h *harness) {
			h.Store.Put(lease("", 7))
			var tries, said atomic.Int64
			a := h.node("a", func(_ *node, cfg *ClaimantConfig) {
				cfg.Annotations = func() map[string]string { return map[string]string{"said": fmt.Sprint(said.Load())} }
				cfg.OnEvent = func(e Event) {
					if e.Type == EventConflict {
						tries.Add(1)
					}
				}
			})
			h.Sleep(s)
			a.client.Conflict(1000)
			said.Add(1)
			a.claimant.Touch()
			h.Sleep(12 * s)
			if a.claimant.Claim() == nil {
				t.Error("a has lost its claim over annotations")
			}
			if got := tries.Load(); got < 5 || got > 60 {
				t.Errorf("%d conflicts in 12 s, want a few dozen at most", got)
			}
		})
	})
}

// TestReleaseThatIsRefused leaves more on the Lease than an API server accepts.
func TestReleaseThatIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("", 7))
		a := h.node("a", func(_ *node, cfg *ClaimantConfig) {
			cfg.Leave = func(int32) map[string]string { return map[string]string{"left": strings.Repeat("x", 300<<10)} }
		})
		h.Sleep(s)
		a.claimant.SetDesired(Released)
		h.Sleep(s)
		left := leaserecord.From(h.Store.Get(leaseName))
		if !left.IsReleased() || left.Annotations["left"] != "" {
			t.Errorf("the Lease is held by %q, released in term %q, and has %d bytes left, want it released without them",
				left.Holder, left.Annotations[leaserecord.ReleasedAnnotation], len(left.Annotations["left"]))
		}
	})
}

func TestStuckWork(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("", 7))
		a := h.node("a", lingering(30*s))
		h.Sleep(3 * s)
		a.beats.stop()
		h.Sleep(38 * s)
		h.Expect(`
			0.0 a acquired 8
			0.0 a started 8
			12.0 a ended 8 (renew-deadline)
			17.0 a stuck 8 (renew-deadline) since 5s`)
		h.Sleep(4 * s)
		h.Expect(`
			42.0 a work returns: claim on f-ns-01, term 8, ended: renew-deadline, valid false
			42.0 a returned 8
			42.0 a waiting (no-right)`)
	})
}

// TestDrainIsBounded has work ignore a planned stop. Its claimant reports that once, keeps the
// claim, and does not release the Lease before the work has returned: nobody else gets it while the
// process lives.
func TestDrainIsBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		within time.Duration
		want   string
	}{
		"by default":    {0, "20.0 a stuck 8 () since 15s"},
		"as configured": {20 * s, "25.0 a stuck 8 () since 20s"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, h *harness) {
				h.Store.Put(lease("", 7))
				a := h.node("a", lingering(60*s), drainingWithin(tc.within))
				h.Sleep(s)
				h.node("b")
				h.Sleep(4 * s)
				a.Cancel()
				h.Sleep(58 * s)
				h.Expect(`
					0.0 a acquired 8
					0.0 a started 8
					1.0 b waiting (held)
					5.0 a draining 8
					` + tc.want)
				h.Sleep(3 * s)
				h.Expect(`
					65.0 a work returns: claim is draining, valid true
					65.0 a ended 8 (drained)
					65.0 a released 8
					65.0 b acquired 9
					65.0 b started 9`)
			})
		})
	}
}

// TestLostWhileDraining has somebody clear a Lease whose work has been asked to stop and goes on. The
// work gets no more time by that. If it had not been asked, it would have had a lease duration after
// the last heartbeat, until 27 s.
func TestLostWhileDraining(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("", 7))
		a := h.node("a", lingering(60*s))
		h.Sleep(5 * s)
		a.claimant.SetDesired(Released)
		h.Sleep(8 * s)
		h.Store.Put(lease("", 8))
		h.Sleep(30 * s)
		h.Expect(`
			0.0 a acquired 8
			0.0 a started 8
			5.0 a draining 8
			13.0 a ended 8 (cleared)
			20.0 a stuck 8 (cleared) since 7s`)
	})
}

// TestDrainTimeoutMayChangeWhileLost shortens the timeout of work that was asked to stop, after its
// claim has been lost: to a time that is to come, and to one that has passed already.
func TestDrainTimeoutMayChangeWhileLost(t *testing.T) {
	for name, tc := range map[string]struct {
		cleared, shortened, to time.Duration
		want                   string
	}{
		"to come": {13 * s, 14 * s, 12 * s, "17.0 a stuck 8 (cleared) since 4s"},
		"passed":  {21 * s, 22 * s, 15 * s, "22.0 a stuck 8 (cleared) since 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, h *harness) {
				h.Store.Put(lease("", 7))
				var within atomic.Int64
				within.Store(int64(20 * s))
				a := h.node("a", lingering(90*s), drainingWithinNow(&within))
				h.Sleep(5 * s)
				a.claimant.SetDesired(Released)
				h.Sleep(tc.cleared - 5*s)
				h.Store.Put(lease("", 8))
				h.Sleep(tc.shortened - tc.cleared - s/2)
				within.Store(int64(tc.to))
				a.claimant.SetDesired(Released)
				h.Sleep(30 * s)
				h.Expect(fmt.Sprintf(`
					0.0 a acquired 8
					0.0 a started 8
					5.0 a draining 8
					%.1f a ended 8 (cleared)
					%s`, tc.cleared.Seconds(), tc.want))
			})
		})
	}
}

// TestDrainTimeoutMayChange shortens the timeout while the work drains.
func TestDrainTimeoutMayChange(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("", 7))
		var within atomic.Int64
		within.Store(int64(30 * s))
		a := h.node("a", lingering(60*s), drainingWithinNow(&within))
		h.Sleep(s)
		a.claimant.SetDesired(Released)
		h.Sleep(500 * time.Millisecond)
		within.Store(int64(3 * s))
		a.claimant.SetDesired(Released)
		h.Sleep(10 * s)
		h.Expect(`
			0.0 a acquired 8
			0.0 a started 8
			1.0 a draining 8
			4.0 a stuck 8 () since 3s`)
	})
}

func TestWorkThatReturnsByItself(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("", 7))
		h.node("a", func(_ *node, cfg *ClaimantConfig) {
			cfg.Work = func(context.Context, *Claim) { time.Sleep(s) } // virtual
		})
		h.Sleep(3500 * time.Millisecond)
		h.Expect(`
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
		inBubble(t, func(t *testing.T, h *harness) {
			h.Store.Put(lease("", 7))
			a := h.node("a", func(n *node, _ *ClaimantConfig) { n.client.DropReply(1, "update") })
			h.Sleep(10 * s)
			h.Expect(`
				5.0 a failed 8
				5.0 a waiting (held)
				5.0 a acquired 9
				5.0 a started 9`)
			requireBefore(t, a, "", 7)
			a.Stop()
		})
	})
	t.Run("of two acquisitions", func(t *testing.T) {
		inBubble(t, func(t *testing.T, h *harness) {
			h.Store.Put(lease("", 7))
			a := h.node("a", func(n *node, _ *ClaimantConfig) { n.client.DropReply(2, "update") })
			h.Sleep(15 * s)
			requireBefore(t, a, "", 7)
			// What was unanswered once must not be taken for what is there later.
			h.Store.Put(lease("", 12))
			h.Sleep(5 * s)
			requireBefore(t, a, "", 12)
			a.Stop()
		})
	})
	t.Run("of an unwanted acquisition", func(t *testing.T) {
		inBubble(t, func(t *testing.T, h *harness) {
			h.Store.Put(lease("", 7))
			a := h.node("a", func(n *node, _ *ClaimantConfig) { n.client.DropReply(1, "update") })
			h.Sleep(s)
			a.Stop()
			h.Expect(`
				5.0 a failed 8
				5.0 a released 8`)
		})
	})
	t.Run("of an unwanted acquisition that the watch shows late", func(t *testing.T) {
		inBubble(t, func(t *testing.T, h *harness) {
			h.Store.Put(lease("", 7))
			a := h.node("a", func(n *node, _ *ClaimantConfig) { n.desired = Released })
			h.Sleep(s)
			a.client.DropReply(1, "update")
			a.watch.LagWatch(10 * s)
			a.claimant.SetDesired(Held)
			h.Sleep(s)
			a.Stop()
			if got := h.Holder(leaseName); got != "" {
				t.Errorf("Holder is %q after the end, want none", got)
			}
			h.Expect(`
				6.0 a failed 8
				6.0 a released 8`)
		})
	})
	t.Run("of an unwanted acquisition that was not carried out", func(t *testing.T) {
		inBubble(t, func(t *testing.T, h *harness) {
			h.Store.Put(lease("", 7))
			a := h.node("a", func(n *node, _ *ClaimantConfig) { n.client.Drop(1, "update") })
			h.Sleep(s)
			stopped, reads := time.Now(), 0
			a.client.Script(func(verb string) leasetest.Fault {
				if verb == "get" {
					reads++
				}
				return leasetest.Fault{}
			})
			a.Stop()
			h.Expect(`5.0 a failed 8`)
			if reads != 1 {
				t.Errorf("the Lease was read %d times after the failure, want once", reads)
			}
			if took := time.Since(stopped); took > 5*s {
				t.Errorf("Run took %v to end, want until the Lease was read", took)
			}
		})
	})
	t.Run("of a request to the holder", func(t *testing.T) {
		testRequest(t, func(a *node) { a.client.DropReply(1, "update") }, "")
	})
	t.Run("of a request to the holder that fails", func(t *testing.T) {
		testRequest(t, func(a *node) { a.client.Fail(1, "update") }, `
			1.0 a failed 7`)
	})
	t.Run("of a change of annotations", func(t *testing.T) {
		inBubble(t, func(t *testing.T, h *harness) {
			h.Store.Put(lease("", 7))
			var said atomic.Int64
			a := h.node("a", func(_ *node, cfg *ClaimantConfig) {
				cfg.Annotations = func() map[string]string { return map[string]string{"said": fmt.Sprint(said.Load())} }
			})
			h.Sleep(s)
			a.client.DropReply(1, "update")
			said.Add(1)
			a.claimant.Touch()
			h.Sleep(20 * s)
			h.Expect(`
				0.0 a acquired 8
				0.0 a started 8
				6.0 a failed 8`)
		})
	})
	t.Run("of a release", func(t *testing.T) {
		inBubble(t, func(t *testing.T, h *harness) {
			h.Store.Put(lease("", 7))
			a := h.node("a")
			h.Sleep(s)
			a.client.DropReply(1, "update")
			a.Stop()
			if got := h.Holder(leaseName); got != "" {
				t.Errorf("Holder is %q, want none", got)
			}
		})
	})
}

// testRequest has a node ask the holder for its Lease, in spite of a fault. The holder lets go, and
// the node must acquire the Lease at once.
func testRequest(t *testing.T, fault func(*node), said string) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("b_1", 7))
		a := h.node("a")
		h.Sleep(s)
		fault(a)
		a.claimant.SetAsk(true)
		h.Sleep(s)
		h.Store.Put(lease("", 7))
		h.Sleep(s)
		h.Expect(`
			0.0 a waiting (held)` + said + `
			2.0 a acquired 8
			2.0 a started 8`)
	})
}

// requireBefore requires that the node's claim knows the Lease as it was before the first attempt
// to acquire it.
func requireBefore(t *testing.T, n *node, holder string, term int32) {
	t.Helper()
	claim := n.claimant.Claim()
	if claim == nil {
		t.Fatal("there is no claim")
	}
	if before := claim.Before(); before.Holder != holder || before.Transitions != term {
		t.Errorf("Before has holder %q in term %d, want %q in term %d", before.Holder, before.Transitions, holder, term)
	}
}

func TestRevoked(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("", 7))
		a := h.node("a", lingering(2*s))
		h.Sleep(s)
		close(a.revoked)
		h.Sleep(9 * s)
		h.Expect(`
			0.0 a acquired 8
			0.0 a started 8
			1.0 a ended 8 (revoked)
			3.0 a work returns: claim on f-ns-01, term 8, ended: revoked, valid false
			3.0 a returned 8
			3.0 a released 8`)
	})
}

// TestEndedClaimGivesUpItsRequest checks that the release does not wait for the answer to the
// request of a claim that has ended.
func TestEndedClaimGivesUpItsRequest(t *testing.T) {
	t.Run("lost", func(t *testing.T) {
		testEndedClaim(t, func(a *node) { close(a.revoked) }, `
			2.0 a ended 8 (revoked)
			3.0 a work returns: claim on f-ns-01, term 8, ended: revoked, valid false
			3.0 a returned 8
			3.0 a released 8`)
	})
	t.Run("as planned", func(t *testing.T) {
		testEndedClaim(t, func(a *node) { a.claimant.SetDesired(Released) }, `
			2.0 a draining 8
			3.0 a work returns: claim is draining, valid true
			3.0 a ended 8 (drained)
			3.0 a released 8`)
	})
}

func testEndedClaim(t *testing.T, end func(*node), want string) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("", 7))
		var said atomic.Int64
		a := h.node("a", lingering(s), func(_ *node, cfg *ClaimantConfig) {
			cfg.Annotations = func() map[string]string { return map[string]string{"said": fmt.Sprint(said.Load())} }
		})
		h.Sleep(s)
		a.client.Drop(1, "update")
		said.Add(1)
		a.claimant.Touch()
		h.Sleep(s)
		end(a)
		h.Sleep(9 * s)
		h.Expect(`
			0.0 a acquired 8
			0.0 a started 8` + want)
	})
}

// TestPauseAfterFailure checks that a failed request is retried after RetryPeriod.
func TestPauseAfterFailure(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("", 7))
		h.node("a", func(n *node, _ *ClaimantConfig) { n.client.Fail(2, "update") })
		h.Sleep(9 * s)
		h.Expect(`
			0.0 a failed 8
			2.0 a failed 8
			4.0 a acquired 8
			4.0 a started 8`)
	})
}

// A planned stop must not wait forever for an unreachable API server: others list the incarnation
// as ended.
func TestStopsWithoutServer(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("", 7))
		a := h.node("a")
		h.Sleep(3 * s)
		a.client.Block()
		a.beats.stop()
		a.Stop()
		if got := time.Since(h.Begin); got > 18*s {
			t.Errorf("Run returned after %v, want a lease duration after the last heartbeat, at 17s", got)
		}
	})
}

// A process that resumes finds its claim invalid at once, whatever its timers say, and its work
// gets time to return.
func TestSuspend(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("", 7))
		a := h.node("a", lingering(s))
		h.Sleep(s)
		claim := a.claimant.Claim()
		if !claim.Valid(a.clock.Now()) {
			t.Error("Claim is invalid before the suspend")
		}
		a.beats.stop()
		a.clock.Jump(time.Minute)
		if claim.Valid(a.clock.Now()) {
			t.Error("Claim is valid after the suspend")
		}
		h.Sleep(10 * s)
		h.Expect(`
			0.0 a acquired 8
			0.0 a started 8
			1.0 a ended 8 (renew-deadline)
			2.0 a work returns: claim on f-ns-01, term 8, ended: renew-deadline, valid false
			2.0 a returned 8
			2.0 a waiting (no-right)`)
	})
}

// The answer to an acquisition arrives after the claim's deadline: the work must not start.
func TestLateAcquisition(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("", 7))
		a := h.node("a", func(n *node, _ *ClaimantConfig) { n.client.Delay(1, 0, s, "update") })
		h.Sleep(s / 2)
		a.beats.stop()
		a.clock.Jump(10 * s)
		h.Sleep(s)
		h.Expect(`
			1.0 a acquired 8
			1.0 a ended 8 (renew-deadline)
			1.0 a waiting (no-right)`)
	})
}

func TestDesired(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("", 7))
		a := h.node("a", lingering(2*s))
		h.Sleep(s)
		a.claimant.SetDesired(Released)
		h.Sleep(s)
		a.claimant.SetDesired(Held) // The drain is completed.
		h.Sleep(2 * s)
		a.claimant.SetDesired(Released)
		h.Sleep(3 * s)
		h.Expect(`
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
		a.Stop()
	})
}

// TestRequestIsWithdrawn asks the holder for the Lease, and changes its mind twice: because it is
// not ready any more, and because it does not want the Lease any more.
func TestRequestIsWithdrawn(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("b_1", 7))
		n := h.node("a")
		asker := func() string { return leaserecord.From(h.Store.Get(leaseName)).NextHolder() }
		expect := func(when, want string) {
			t.Helper()
			h.Sleep(3 * s)
			if got := asker(); got != want {
				t.Errorf("%s: asked for by %q, want %q", when, got, want)
			}
		}
		n.claimant.SetAsk(true)
		expect("asking", "a_1")
		n.claimant.SetAsk(false)
		expect("not ready any more", "")
		n.claimant.SetAsk(true)
		expect("asking again", "a_1")
		n.claimant.SetDesired(Retained)
		expect("not wanted any more", "")
		n.claimant.SetDesired(Held)
		expect("wanted again", "a_1")
		// Another member has asked meanwhile: its request stays.
		h.Store.Tamper(leaseName, func(l *coordinationv1.Lease) { l.Annotations[leaserecord.NextHolderAnnotation] = "c_1" })
		n.claimant.SetAsk(false)
		expect("another has asked", "c_1")
	})
}

func TestMarks(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("", 7))
		h.Store.Tamper(leaseName, func(l *coordinationv1.Lease) {
			l.Annotations["foreign"], l.Annotations["gone"] = "stays", "x"
		})
		rng := "0x0"
		a := h.node("a", func(_ *node, cfg *ClaimantConfig) {
			cfg.Labels = map[string]string{"flotilla.dev/ring": "namespaces"}
			cfg.Annotations = func() map[string]string { return map[string]string{"range": rng, "gone": ""} }
		})
		h.Sleep(s)
		check := func(rng string) {
			t.Helper()
			got := h.Store.Get(leaseName)
			if got.Labels["flotilla.dev/ring"] != "namespaces" || got.Annotations["range"] != rng || got.Annotations["foreign"] != "stays" {
				t.Errorf("Lease has labels %v, annotations %v, want ring, range %s and the foreign annotation", got.Labels, got.Annotations, rng)
			}
			if _, ok := got.Annotations["gone"]; ok {
				t.Error("An annotation with an empty value was not removed")
			}
		}
		check("0x0")
		rng = "0x1"
		a.client.Conflict(1)
		a.claimant.Touch()
		h.Sleep(100 * time.Millisecond)
		check("0x1")
		// The claimant restores an annotation that somebody removes.
		h.Store.Tamper(leaseName, func(l *coordinationv1.Lease) { delete(l.Annotations, "range") })
		h.Sleep(3 * s)
		check("0x1")
	})
}

func TestNewClaimantNamesInvalidFields(t *testing.T) {
	_, err := NewClaimant(ClaimantConfig{})
	for _, field := range []string{"Name", "Identity", "Client", "Observer", "Clock", "Heartbeat", "Work", "OnStuck", "Timing.LeaseDuration"} {
		if err == nil || !strings.Contains(err.Error(), "ClaimantConfig."+field+" is ") {
			t.Errorf("NewClaimant(nothing) = %v, want it to name %s", err, field)
		}
	}
}

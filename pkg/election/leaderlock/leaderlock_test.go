package leaderlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
)

func TestLeaderLockLife(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		a := h.leaderLock("a")
		h.Sleep(14 * s)
		a.expectHeld(false, false, false)
		h.Sleep(2 * s)
		a.expectHeld(true, true, false)
		h.expectRecord(lockSelf, 1)
		first := h.record()
		if first.Duration != 15*s || !first.AcquireTime.Equal(first.RenewTime) || len(first.Labels)+len(first.Annotations) != 0 {
			t.Errorf("The Lease created is %+v", first)
		}
		b := h.leaderLock("b")
		h.Sleep(s)
		b.expectHeld(true, true, false)
		h.Expect(`
			0.0 a waiting (absent)
			15.0 a acquired 1
			16.0 b acquired 1`)
		h.Sleep(5 * time.Minute)
		a.expectHeld(true, true, false)
		b.expectHeld(true, true, false)
		if r := h.record(); r.Transitions != 1 || !r.AcquireTime.Equal(first.AcquireTime) || time.Since(r.RenewTime) > 3*s {
			t.Errorf("The Lease is %+v after five minutes", r)
		}
		if err := a.lock.Release(t.Context(), h.Store.Get(lockName)); !errors.Is(err, ErrBusy) {
			t.Errorf("Release() before Run has returned = %v, want ErrBusy", err)
		}
		a.Stop()
		a.expectHeld(true, false, false)
		if a.err != nil {
			t.Errorf("Run() = %v after a planned end, want nil", a.err)
		}
		h.expectRecord(lockSelf, 1)
		b.Stop()
		if err := b.lock.Release(t.Context(), h.Store.Get(lockName)); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}
		h.expectRecord("", 1)
		if got := h.record().Duration; got != s {
			t.Errorf("A released Lease has duration %v, want 1s", got)
		}
	})
}

// TestTurned checks that a held leader lock's loop turns often enough for each heartbeat, also
// while it has nothing to do, and that Turned shows a loop that hangs.
func TestTurned(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		var hang atomic.Bool
		hangs := make(chan struct{})
		a := h.leaderLock("a", func(_ *lockNode, cfg *Config) {
			observe := cfg.OnEvent
			cfg.OnEvent = func(e election.Event) {
				if hang.Load() {
					<-hangs
				}
				observe(e)
			}
		})
		half := election.DefaultTiming().RetryPeriod / 2
		h.Sleep(10 * s)
		if at, held := a.lock.Turned(); held {
			t.Errorf("Turned() = %v before the leader lock is held", at)
		}
		h.Sleep(10 * s)
		for range 50 {
			h.Sleep(100 * time.Millisecond)
			if at, held := a.lock.Turned(); !held || time.Since(at) > half {
				t.Errorf("Turned() = %v ago, %t; want at most %v", time.Since(at), held, half)
			}
		}
		hang.Store(true)
		h.Sleep(20 * s)
		if at, held := a.lock.Turned(); !held || time.Since(at) < 10*s {
			t.Errorf("the loop hangs, and Turned() = %v ago, %t", time.Since(at), held)
		}
		hang.Store(false)
		close(hangs)
		a.Stop()
		if at, held := a.lock.Turned(); held {
			t.Errorf("Turned() = %v after Run", at)
		}
	})
}

func TestLeaderLockWaitsForStockLeader(t *testing.T) {
	for name, tc := range map[string]struct {
		leave func(h *harness)
		took  time.Duration
	}{
		"that releases": {func(h *harness) {
			h.Store.Tamper(lockName, func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity = "" })
		}, 15 * time.Millisecond}, // The watch's 5ms and one request.
		"that dies": {func(*harness) {}, 13*s + 15*time.Millisecond}, // Last renewed 2s before.
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, h *harness) {
				h.put("stock-a", 4)
				a, b := h.leaderLock("a", quietly), h.leaderLock("b", quietly)
				for range 20 {
					h.Sleep(2 * s)
					h.Store.Tamper(lockName, func(l *coordinationv1.Lease) { *l.Spec.RenewTime = metav1.NewMicroTime(time.Now()) })
				}
				h.Sleep(2 * s)
				a.expectHeld(false, false, false)
				left := time.Now()
				tc.leave(h)
				select {
				case <-a.lock.Held():
				case <-b.lock.Held():
				}
				if took := time.Since(left); took > tc.took {
					t.Errorf("Acquired after %v, want %v", took, tc.took)
				}
				t.Logf("acquired after %v", time.Since(left))
				h.Sleep(100 * time.Millisecond)
				t.Logf("held by all after less than %v", time.Since(left))
				a.expectHeld(true, true, false)
				b.expectHeld(true, true, false)
				h.expectRecord(lockSelf, 5)
			})
		})
	}
}

// TestMembersOfDifferentTimings has members with short and with long Leases, as in a rolling
// restart that changes the flags. A stock candidate waits for as long as the last renewal declares, whoever
// wrote it, and finds the Lease valid for no longer.
func TestMembersOfDifferentTimings(t *testing.T) {
	slow := func(_ *lockNode, c *Config) { c.Timing = slowTiming }
	t.Run("reading", func(t *testing.T) {
		inBubble(t, func(t *testing.T, h *harness) {
			h.put("", 4)
			a := h.leaderLock("a", quietly)
			h.Sleep(s)
			b := h.leaderLock("b", quietly, slow)
			b.client.Conflict(10_000) // All that it knows comes from renewals by a.
			h.Sleep(30 * s)
			b.expectHeld(true, true, false)
			a.Stop()
			ends := h.record().RenewTime.Add(15 * s)
			for time.Now().Before(ends.Add(30 * s)) {
				if until := b.lock.ValidUntil(); until.After(ends) {
					t.Fatalf("b's right lasts until %v, and a candidate waits until %v", until.Sub(h.Begin), ends.Sub(h.Begin))
				}
				h.Sleep(100 * time.Millisecond)
			}
		})
	})
	t.Run("writing", func(t *testing.T) {
		inBubble(t, func(t *testing.T, h *harness) {
			h.put("", 4)
			b := h.leaderLock("b", quietly, slow)
			h.Sleep(s)
			a := h.leaderLock("a", quietly)
			b.client.Block() // It sees nothing of what a writes.
			for range 300 {
				h.Sleep(100 * time.Millisecond)
				if r := h.record(); b.lock.ValidUntil().After(r.RenewTime.Add(r.Duration)) {
					t.Fatalf("b's right lasts until %v, and a candidate waits for %v after %v", b.lock.ValidUntil().Sub(h.Begin), r.Duration, r.RenewTime.Sub(h.Begin))
				}
			}
			b.expectHeld(true, true, false)
			a.expectHeld(true, true, false)
			if r := h.record(); r.Duration != slowTiming.LeaseDuration || time.Since(r.RenewTime) > 3*s {
				t.Errorf("a writes %+v", r)
			}
			a.Stop()
			b.client.Unblock()
		})
	})
	t.Run("nonsense", func(t *testing.T) {
		inBubble(t, func(t *testing.T, h *harness) {
			h.put("", 4)
			h.leaderLock("a", quietly)
			h.Sleep(s)
			h.Store.Tamper(lockName, func(l *coordinationv1.Lease) { *l.Spec.LeaseDurationSeconds = 1_000_000 })
			h.Sleep(10 * s)
			if r := h.record(); r.Duration != mostLonger*15*s || time.Since(r.RenewTime) > 3*s {
				t.Errorf("a writes %+v", r)
			}
		})
	})
}

// A member that cannot write keeps its right through others' renewals, counted from its own earlier
// reads.
func TestLeaderLockIsKeptByReading(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.put("", 4)
		a, b := h.leaderLock("a", quietly), h.leaderLock("b", quietly)
		h.Sleep(s)
		a.client.Conflict(10_000)
		for range 600 {
			h.Sleep(100 * time.Millisecond)
			a.expectHeld(true, true, false)
			if left := a.left(); left > 10*s {
				t.Errorf("The right lasts %v", left)
			}
		}
		b.client.Block()
		h.Sleep(11 * s)
		a.expectLost(election.ReasonRenewDeadline)
		b.expectLost(election.ReasonRenewDeadline)
	})
}

// TestLeaderLockOutlastsErrors has the API server answer with errors: five in a row must not end a
// process.
func TestLeaderLockOutlastsErrors(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.put("", 4)
		a := h.leaderLock("a", quietly)
		h.Sleep(s)
		a.expectHeld(true, true, false)
		for range 20 {
			a.client.Fail(5, "get")
			h.Sleep(30 * s)
			a.expectHeld(true, true, false)
		}
		var sent atomic.Int32
		a.client.Script(func(string) leasetest.Fault {
			sent.Add(1)
			return leasetest.Fault{Error: true}
		})
		h.Sleep(11 * s)
		a.expectLost(election.ReasonRenewDeadline)
		if n := sent.Load(); n > 16 {
			t.Errorf("%d requests before the right was lost", n)
		}
	})
}

// Watch events of renewals extend nothing: they may be arbitrarily late.
func TestLeaderLockIsNotKeptByWatching(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.put("", 4)
		a, b := h.leaderLock("a", quietly), h.leaderLock("b", quietly)
		h.Sleep(20 * s)
		a.client.Block()
		until := a.lock.ValidUntil()
		h.Sleep(time.Until(until) - time.Millisecond)
		if got := a.lock.ValidUntil(); !got.Equal(until) {
			t.Errorf("The right was extended by %v without an answer", got.Sub(until))
		}
		h.Sleep(time.Millisecond)
		a.expectLost(election.ReasonRenewDeadline)
		b.expectHeld(true, true, false)
	})
}

// The right counts from the start of a request, not from when it was executed or answered.
func TestLeaderLockCountsFromStart(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.put("", 4)
		slow := func(p *lockNode, _ *Config) {
			p.quiet = true
			p.client.Script(func(string) leasetest.Fault { return leasetest.Fault{Out: s, Back: 3 * s} })
		}
		a := h.leaderLock("a", slow)
		h.Sleep(4500 * time.Millisecond)
		a.expectHeld(true, true, false)
		if got, want := a.lock.ValidUntil().Sub(h.Begin), 10*s+5*time.Millisecond; got != want { // 5ms: the watch
			t.Errorf("The right lasts until %v, want %v", got, want)
		}
		// A read and a write take 8s together, so writes are far apart, but close enough to keep
		// the right.
		h.Sleep(time.Minute)
		if a.left() > 6*s {
			t.Errorf("The right lasts %v", a.left())
		}
	})
}

// A suspended process that resumes learns from its clock alone that its right has ended.
func TestLeaderLockOfSuspendedProcess(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.put("", 4)
		a := h.leaderLock("a", quietly)
		h.Sleep(20 * s)
		a.clock.Jump(10 * s)
		a.expectHeld(true, false, false)
		h.Sleep(3 * s)
		a.expectLost(election.ReasonRenewDeadline)
	})
}

func TestLeaderLockLostToOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*coordinationv1.Lease)
		reason election.Reason
	}{
		"another holder":          {func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity = "stock-a" }, election.ReasonOtherHolder},
		"another holder and term": {func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity, *l.Spec.LeaseTransitions = "stock-a", 6 }, election.ReasonOtherHolder},
		"another term":            {func(l *coordinationv1.Lease) { *l.Spec.LeaseTransitions = 7 }, election.ReasonTermChanged},
		"cleared in another term": {func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity, *l.Spec.LeaseTransitions = "", 6 }, election.ReasonTermChanged},
		"nonsense":                {func(l *coordinationv1.Lease) { l.Spec = coordinationv1.LeaseSpec{LeaseTransitions: ptr.To[int32](-3)} }, election.ReasonTermChanged},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, h *harness) {
				h.put("", 4)
				a := h.leaderLock("a", quietly)
				h.Sleep(21 * s)
				h.Store.Tamper(lockName, tc.change)
				h.Sleep(5 * time.Millisecond)
				a.expectLost(tc.reason)
				before := len(h.Store.History())
				h.Sleep(time.Minute)
				if got := len(h.Store.History()); got != before {
					t.Errorf("A lost leader lock has written %d times", got-before)
				}
			})
		})
	}
}

// If the fleet's Lease is cleared or deleted, a member writes it again in the same term. Meanwhile
// the right is suspended; then it continues for all members.
func TestLeaderLockIsRestored(t *testing.T) {
	for name, harm := range map[string]func(*harness){
		"cleared": func(h *harness) {
			h.Store.Tamper(lockName, func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity = "" })
		},
		"deleted": func(h *harness) { h.Store.Remove(lockName) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, h *harness) {
				h.put("", 4)
				var all []*lockNode
				for i := range 3 {
					all = append(all, h.leaderLock(string(rune('a'+i)), quietly))
				}
				h.Sleep(21 * s)
				before := h.record()
				harm(h)
				h.Sleep(6 * time.Millisecond)
				for _, p := range all {
					p.expectHeld(true, false, false)
				}
				h.Sleep(30 * time.Millisecond)
				for _, p := range all {
					p.expectHeld(true, true, false)
				}
				after := h.record()
				if !termOf(after).equal(termOf(before)) || after.RenewTime.Unix() <= before.RenewTime.Unix() {
					t.Errorf("Restored as %+v, was %+v", after, before)
				}
				h.Sleep(time.Minute)
				for _, p := range all {
					p.expectHeld(true, true, false)
				}
			})
		})
	}
}

// The Lease is cleared, and a stock leader takes it before a can write it again: the right is
// suspended, then lost, and never valid in between.
func TestLeaderLockClearedAndTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.put("", 4)
		a := h.leaderLock("a")
		h.Sleep(21 * s)
		h.Store.Tamper(lockName, func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity = "" })
		h.Sleep(6 * time.Millisecond) // The update of a is in flight.
		h.Store.Tamper(lockName, func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity, *l.Spec.LeaseTransitions = "stock-a", 6 })
		h.Sleep(20 * time.Millisecond)
		a.expectLost(election.ReasonOtherHolder)
		h.Expect(`
			0.0 a acquired 5
			21.0 a suspended 5 (cleared)
			21.0 a ended 5 (other-holder)`)
		h.expectRecord("stock-a", 6)
	})
}

func TestLeaderLockRelease(t *testing.T) {
	stopped := func(t *testing.T, h *harness) *lockNode {
		h.put("", 4)
		a := h.leaderLock("a", quietly)
		h.Sleep(21 * s)
		a.Stop()
		return a
	}
	inBubble(t, func(t *testing.T, h *harness) {
		a := stopped(t, h)
		read := h.Store.Get(lockName)
		h.Store.Tamper(lockName, func(l *coordinationv1.Lease) { l.Spec.RenewTime.Time = time.Now() })
		if err := a.lock.Release(t.Context(), read); !errors.Is(err, ErrBusy) {
			t.Errorf("Release() of a leader lock that another member renews = %v, want ErrBusy", err)
		}
		h.expectRecord(lockSelf, 5)
		h.put("stock-a", 6)
		if err := a.lock.Release(t.Context(), h.Store.Get(lockName)); err != nil {
			t.Errorf("Release() of a Lease of somebody else = %v, want nil", err)
		}
		h.expectRecord("stock-a", 6)
		h.put(lockSelf, 7)
		ctx, cancel := context.WithTimeout(t.Context(), s)
		defer cancel()
		a.client.Block()
		if err := a.lock.Release(ctx, h.Store.Get(lockName)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Release() without an API server = %v, want DeadlineExceeded", err)
		}
	})
}

// With little time between reads and the deadline, every member writes by itself and keeps its
// right.
func TestLeaderLockWithTightTiming(t *testing.T) {
	for _, timing := range []election.Timing{
		{LeaseDuration: 15 * s, RenewDeadline: 10 * s, RetryPeriod: 5 * s},
		{LeaseDuration: 15 * s, RenewDeadline: 10 * s, RetryPeriod: 3 * s},
		{LeaseDuration: 40 * s, RenewDeadline: 15 * s, RetryPeriod: 10 * s},
	} {
		inBubble(t, func(t *testing.T, h *harness) {
			h.put("", 4)
			var all []*lockNode
			for i := range 3 {
				all = append(all, h.leaderLock(string(rune('a'+i)), quietly, func(_ *lockNode, cfg *Config) {
					cfg.Timing, cfg.Jitter = timing, nil
				}))
			}
			h.Sleep(5 * time.Minute)
			for _, p := range all {
				p.expectHeld(true, true, false)
			}
		})
	}
}

// TestLeaderLockLoad counts the requests of eight members: about one update per RetryPeriod in
// total, and one read each.
func TestLeaderLockLoad(t *testing.T) {
	const members, periods = 8, 300
	inBubble(t, func(t *testing.T, h *harness) {
		h.put("", 4)
		rng := rand.New(rand.NewPCG(1, 1))
		var mu sync.Mutex
		jitter := func(d time.Duration) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return d + upTo(rng, d/5)
		}
		var all []*lockNode
		for i := range members {
			all = append(all, h.leaderLock(string(rune('a'+i)), quietly, func(_ *lockNode, cfg *Config) { cfg.Jitter = jitter }))
		}
		h.Sleep(200 * time.Millisecond)
		starting, _ := counts(all)
		for _, p := range all {
			p.expectHeld(true, true, false)
		}
		least := 10 * s
		for range periods * 20 {
			h.Sleep(100 * time.Millisecond)
			for _, p := range all {
				least = min(least, p.left())
			}
		}
		updates, reads := counts(all)
		written := 0
		for _, write := range h.Store.History() {
			if write.Client != "" {
				written++
			}
		}
		perPeriod := func(n int) float64 { return float64(n) / periods }
		t.Logf("%d members at start: %d updates sent; then per RetryPeriod: %.2f updates sent, %.2f executed, %.2f reads; least time left %v",
			members, starting, perPeriod(updates), perPeriod(written), perPeriod(reads), least)
		if got := perPeriod(updates); got > 1.5 {
			t.Errorf("%.2f updates per RetryPeriod, want about 1", got)
		}
		if got := perPeriod(reads); got > members+1 {
			t.Errorf("%.2f reads per RetryPeriod, want about %d", got, members)
		}
		if least < 6*s-100*time.Millisecond {
			t.Errorf("A right had only %v left", least)
		}
	})
}

// counts returns the requests sent since the last call.
func counts(all []*lockNode) (updates, reads int) {
	for _, p := range all {
		p.mu.Lock()
		updates += p.sent["update"]
		reads += p.sent["get"]
		clear(p.sent)
		p.mu.Unlock()
	}
	return updates, reads
}

// No two renewals look the same to client-go's elector, which truncates times to seconds, however
// the members' clocks differ. A standby that cannot distinguish two would count from the first.
func TestLeaderLockRenewalsDiffer(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.put("", 4)
		for i := range 8 {
			h.leaderLock(string(rune('a'+i)), quietly, func(p *lockNode, _ *Config) { p.clock.Jump(-2 * s * time.Duration(i)) })
		}
		h.Sleep(5 * time.Minute)
		seen := map[string]bool{}
		for _, write := range h.Store.History() {
			record, err := json.Marshal(resourcelock.LeaseSpecToLeaderElectionRecord(&write.After.Spec))
			if err != nil {
				t.Fatal(err)
			}
			if seen[string(record)] {
				t.Errorf("At %v %s repeated an earlier record: %s", write.Time.Sub(h.Begin), write.Client, record)
			}
			seen[string(record)] = true
		}
	})
}

func TestNewErrors(t *testing.T) {
	_, err := New(Config{Timing: election.Timing{LeaseDuration: s, RenewDeadline: s}})
	for _, want := range []string{"Name is empty", "Identity is empty", "Client is nil", "Observer is nil", "Clock is nil", "RenewDeadline is 1s", "RetryPeriod is 0s"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("New() = %v, want %q in it", err, want)
		}
	}
	inBubble(t, func(t *testing.T, h *harness) {
		cfg := Config{Name: "elsewhere", Identity: lockSelf, Client: h.Store.Client("a"), Observer: h.observer(h.Store.Client("a"), &leasetest.JumpClock{}), Clock: &leasetest.JumpClock{}, Timing: election.DefaultTiming()}
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), `"elsewhere"`) {
			t.Errorf("New() of a Lease that is not watched = %v", err)
		}
	})
}

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
	inWorld(t, func(t *testing.T, w *world) {
		a := w.leaderLock("a")
		w.sleep(14 * s)
		a.expectHeld(false, false, false)
		w.sleep(2 * s)
		a.expectHeld(true, true, false)
		w.expectRecord(lockSelf, 1)
		first := w.record()
		if first.Duration != 15*s || !first.AcquireTime.Equal(first.RenewTime) || len(first.Labels)+len(first.Annotations) != 0 {
			t.Errorf("The Lease created is %+v", first)
		}
		b := w.leaderLock("b")
		w.sleep(s)
		b.expectHeld(true, true, false)
		w.expect(`
			0.0 a waiting (absent)
			15.0 a acquired 1
			16.0 b acquired 1`)
		w.sleep(5 * time.Minute)
		a.expectHeld(true, true, false)
		b.expectHeld(true, true, false)
		if r := w.record(); r.Transitions != 1 || !r.AcquireTime.Equal(first.AcquireTime) || time.Since(r.RenewTime) > 3*s {
			t.Errorf("The Lease is %+v after five minutes", r)
		}
		if err := a.lock.Release(t.Context()); !errors.Is(err, ErrBusy) {
			t.Errorf("Release() before Run has returned = %v, want ErrBusy", err)
		}
		a.stop()
		a.expectHeld(true, false, false)
		if a.err != nil {
			t.Errorf("Run() = %v after a planned end, want nil", a.err)
		}
		w.expectRecord(lockSelf, 1)
		b.stop()
		if err := b.lock.Release(t.Context()); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}
		w.expectRecord("", 1)
		if got := w.record().Duration; got != s {
			t.Errorf("A released Lease has duration %v, want 1s", got)
		}
	})
}

func TestLeaderLockWaitsForStockLeader(t *testing.T) {
	for name, tc := range map[string]struct {
		leave func(w *world)
		took  time.Duration
	}{
		"that releases": {func(w *world) {
			w.store.Tamper(lockName, func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity = "" })
		}, 15 * time.Millisecond}, // The watch's 5ms and one request.
		"that dies": {func(*world) {}, 13*s + 15*time.Millisecond}, // Last renewed 2s before.
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.put("stock-a", 4)
				a, b := w.leaderLock("a", quietly), w.leaderLock("b", quietly)
				for range 20 {
					w.sleep(2 * s)
					w.store.Tamper(lockName, func(l *coordinationv1.Lease) { *l.Spec.RenewTime = metav1.NewMicroTime(time.Now()) })
				}
				w.sleep(2 * s)
				a.expectHeld(false, false, false)
				left := time.Now()
				tc.leave(w)
				select {
				case <-a.lock.Held():
				case <-b.lock.Held():
				}
				if took := time.Since(left); took > tc.took {
					t.Errorf("Acquired after %v, want %v", took, tc.took)
				}
				t.Logf("acquired after %v", time.Since(left))
				w.sleep(100 * time.Millisecond)
				t.Logf("held by all after less than %v", time.Since(left))
				a.expectHeld(true, true, false)
				b.expectHeld(true, true, false)
				w.expectRecord(lockSelf, 5)
			})
		})
	}
}

// A member that cannot write keeps its right by what others write, counted from its own earlier
// reads.
func TestLeaderLockIsKeptByReading(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.put("", 4)
		a, b := w.leaderLock("a", quietly), w.leaderLock("b", quietly)
		w.sleep(s)
		a.client.Conflict(10_000)
		for range 600 {
			w.sleep(100 * time.Millisecond)
			a.expectHeld(true, true, false)
			if left := a.left(); left > 10*s {
				t.Errorf("The right lasts %v", left)
			}
		}
		b.client.Block()
		w.sleep(11 * s)
		a.expectLost(election.ReasonRenewDeadline)
		b.expectLost(election.ReasonRenewDeadline)
	})
}

// TestLeaderLockOutlastsErrors has an API server that answers and fails: five times in a row are no
// reason to end a process.
func TestLeaderLockOutlastsErrors(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.put("", 4)
		a := w.leaderLock("a", quietly)
		w.sleep(s)
		a.expectHeld(true, true, false)
		for range 20 {
			a.client.Fail(5, "get")
			w.sleep(30 * s)
			a.expectHeld(true, true, false)
		}
		var sent atomic.Int32
		a.client.Script(func(string) leasetest.Fault {
			sent.Add(1)
			return leasetest.Fault{Error: true}
		})
		w.sleep(11 * s)
		a.expectLost(election.ReasonRenewDeadline)
		if n := sent.Load(); n > 16 {
			t.Errorf("%d requests before the right was lost", n)
		}
	})
}

// A watch that brings renewals extends nothing: it may be late by any time.
func TestLeaderLockIsNotKeptByWatching(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.put("", 4)
		a, b := w.leaderLock("a", quietly), w.leaderLock("b", quietly)
		w.sleep(20 * s)
		a.client.Block()
		until := a.lock.ValidUntil()
		w.sleep(time.Until(until) - time.Millisecond)
		if got := a.lock.ValidUntil(); !got.Equal(until) {
			t.Errorf("The right was extended by %v without an answer", got.Sub(until))
		}
		w.sleep(time.Millisecond)
		a.expectLost(election.ReasonRenewDeadline)
		b.expectHeld(true, true, false)
	})
}

// The right counts from the start of a request, and not from when it was carried out or answered.
func TestLeaderLockCountsFromStart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.put("", 4)
		slow := func(p *lockNode, _ *Config) {
			p.quiet = true
			p.client.Script(func(string) leasetest.Fault { return leasetest.Fault{Out: s, Back: 3 * s} })
		}
		a := w.leaderLock("a", slow)
		w.sleep(4500 * time.Millisecond)
		a.expectHeld(true, true, false)
		if got, want := a.lock.ValidUntil().Sub(w.begin), 10*s+5*time.Millisecond; got != want { // 5ms: the watch
			t.Errorf("The right lasts until %v, want %v", got, want)
		}
		// A read and a write take 8s: from start to start of two writes passes more than is good,
		// but not too much.
		w.sleep(time.Minute)
		if a.left() > 6*s {
			t.Errorf("The right lasts %v", a.left())
		}
	})
}

// A suspended process learns from the clock alone.
func TestLeaderLockOfSuspendedProcess(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.put("", 4)
		a := w.leaderLock("a", quietly)
		w.sleep(20 * s)
		a.clock.Jump(10 * s)
		a.expectHeld(true, false, false)
		w.sleep(3 * s)
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
			inWorld(t, func(t *testing.T, w *world) {
				w.put("", 4)
				a := w.leaderLock("a", quietly)
				w.sleep(21 * s)
				w.store.Tamper(lockName, tc.change)
				w.sleep(5 * time.Millisecond)
				a.expectLost(tc.reason)
				before := len(w.store.History())
				w.sleep(time.Minute)
				if got := len(w.store.History()); got != before {
					t.Errorf("A lost leader lock has written %d times", got-before)
				}
			})
		})
	}
}

// A Lease that was cleared or deleted under the fleet is written again in the same term. Meanwhile
// the right is suspended, and it goes on for all members.
func TestLeaderLockIsRestored(t *testing.T) {
	for name, harm := range map[string]func(*world){
		"cleared": func(w *world) {
			w.store.Tamper(lockName, func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity = "" })
		},
		"deleted": func(w *world) { w.store.Remove(lockName) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.put("", 4)
				var all []*lockNode
				for i := range 3 {
					all = append(all, w.leaderLock(string(rune('a'+i)), quietly))
				}
				w.sleep(21 * s)
				before := w.record()
				harm(w)
				w.sleep(6 * time.Millisecond)
				for _, p := range all {
					p.expectHeld(true, false, false)
				}
				w.sleep(30 * time.Millisecond)
				for _, p := range all {
					p.expectHeld(true, true, false)
				}
				after := w.record()
				if !termOf(after).equal(termOf(before)) || after.RenewTime.Unix() <= before.RenewTime.Unix() {
					t.Errorf("Restored as %+v, was %+v", after, before)
				}
				w.sleep(time.Minute)
				for _, p := range all {
					p.expectHeld(true, true, false)
				}
			})
		})
	}
}

// Cleared, and taken by a stock leader before the fleet knew: lost, with not a moment of a right in
// between.
func TestLeaderLockClearedAndTaken(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.put("", 4)
		a := w.leaderLock("a")
		w.sleep(21 * s)
		w.store.Tamper(lockName, func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity = "" })
		w.sleep(6 * time.Millisecond) // The update of a is on its way.
		w.store.Tamper(lockName, func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity, *l.Spec.LeaseTransitions = "stock-a", 6 })
		w.sleep(20 * time.Millisecond)
		a.expectLost(election.ReasonOtherHolder)
		w.expect(`
			0.0 a acquired 5
			21.0 a suspended 5 (cleared)
			21.0 a ended 5 (other-holder)`)
		w.expectRecord("stock-a", 6)
	})
}

func TestLeaderLockRelease(t *testing.T) {
	stopped := func(t *testing.T, w *world) *lockNode {
		w.put("", 4)
		a := w.leaderLock("a", quietly)
		w.sleep(21 * s)
		a.stop()
		return a
	}
	inWorld(t, func(t *testing.T, w *world) {
		a := stopped(t, w)
		a.client.Delay(1, 0, 50*time.Millisecond, "get")
		time.AfterFunc(20*time.Millisecond, func() {
			w.store.Tamper(lockName, func(l *coordinationv1.Lease) { l.Spec.RenewTime.Time = time.Now() })
		})
		if err := a.lock.Release(t.Context()); !errors.Is(err, ErrBusy) {
			t.Errorf("Release() of a leader lock that another member renews = %v, want ErrBusy", err)
		}
		w.expectRecord(lockSelf, 5)
		w.put("stock-a", 6)
		if err := a.lock.Release(t.Context()); err != nil {
			t.Errorf("Release() of a Lease of somebody else = %v, want nil", err)
		}
		w.expectRecord("stock-a", 6)
		w.store.Remove(lockName)
		if err := a.lock.Release(t.Context()); err != nil {
			t.Errorf("Release() of no Lease = %v, want nil", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), s)
		defer cancel()
		a.client.Block()
		if err := a.lock.Release(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Release() without an API server = %v, want DeadlineExceeded", err)
		}
	})
}

// With little time between reads and the deadline, members write by themselves, and one failure is
// survived where a claim would survive it.
func TestLeaderLockWithTightTiming(t *testing.T) {
	for _, timing := range []election.Timing{
		{LeaseDuration: 15 * s, RenewDeadline: 10 * s, RetryPeriod: 5 * s},
		{LeaseDuration: 15 * s, RenewDeadline: 10 * s, RetryPeriod: 3 * s},
		{LeaseDuration: 40 * s, RenewDeadline: 15 * s, RetryPeriod: 10 * s},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			w.put("", 4)
			var all []*lockNode
			for i := range 3 {
				all = append(all, w.leaderLock(string(rune('a'+i)), quietly, func(_ *lockNode, cfg *Config) {
					cfg.Timing, cfg.Jitter = timing, nil
				}))
			}
			w.sleep(5 * time.Minute)
			for _, p := range all {
				p.expectHeld(true, true, false)
			}
		})
	}
}

// TestLeaderLockLoad counts what eight members cost: about one update per RetryPeriod together, and
// one read each.
func TestLeaderLockLoad(t *testing.T) {
	const members, periods = 8, 300
	inWorld(t, func(t *testing.T, w *world) {
		w.put("", 4)
		rng := rand.New(rand.NewPCG(1, 1))
		var mu sync.Mutex
		jitter := func(d time.Duration) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return d + upTo(rng, d/5)
		}
		var all []*lockNode
		for i := range members {
			all = append(all, w.leaderLock(string(rune('a'+i)), quietly, func(_ *lockNode, cfg *Config) { cfg.Jitter = jitter }))
		}
		w.sleep(200 * time.Millisecond)
		starting, _ := counts(all)
		for _, p := range all {
			p.expectHeld(true, true, false)
		}
		least := 10 * s
		for range periods * 20 {
			w.sleep(100 * time.Millisecond)
			for _, p := range all {
				least = min(least, p.left())
			}
		}
		updates, reads := counts(all)
		written := 0
		for _, write := range w.store.History() {
			if write.Client != "" {
				written++
			}
		}
		perPeriod := func(n int) float64 { return float64(n) / periods }
		t.Logf("%d members at start: %d updates sent; then per RetryPeriod: %.2f updates sent, %.2f carried out, %.2f reads; least time left %v",
			members, starting, perPeriod(updates), perPeriod(written), perPeriod(reads), least)
		if got := perPeriod(updates); got > 1.5 {
			t.Errorf("%.2f updates per RetryPeriod, want about 1", got)
		}
		if got := perPeriod(reads); got > members+1 {
			t.Errorf("%.2f reads per RetryPeriod, want about %d", got, members)
		}
		if least < 6*s-100*time.Millisecond {
			t.Errorf("A right was down to %v", least)
		}
	})
}

// counts returns what was sent since the last call.
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

// No two renewals look the same to client-go's elector, which cuts times to seconds, however the
// members' clocks differ. A standby that takes one for the other would count from the first.
func TestLeaderLockRenewalsDiffer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.put("", 4)
		for i := range 8 {
			w.leaderLock(string(rune('a'+i)), quietly, func(p *lockNode, _ *Config) { p.clock.Jump(-2 * s * time.Duration(i)) })
		}
		w.sleep(5 * time.Minute)
		seen := map[string]bool{}
		for _, write := range w.store.History() {
			record, err := json.Marshal(resourcelock.LeaseSpecToLeaderElectionRecord(&write.After.Spec))
			if err != nil {
				t.Fatal(err)
			}
			if seen[string(record)] {
				t.Errorf("At %v %s wrote what was written before: %s", write.Time.Sub(w.begin), write.Client, record)
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
	inWorld(t, func(t *testing.T, w *world) {
		cfg := Config{Name: "elsewhere", Identity: lockSelf, Client: w.store.Client("a"), Observer: w.observer(w.store.Client("a"), &leasetest.JumpClock{}), Clock: &leasetest.JumpClock{}, Timing: election.DefaultTiming()}
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), `"elsewhere"`) {
			t.Errorf("New() of a Lease that is not watched = %v", err)
		}
	})
}

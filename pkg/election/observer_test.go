package election

import (
	"context"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
)

func versioned(l *coordinationv1.Lease, version string) *coordinationv1.Lease {
	l.ResourceVersion = version
	return l
}

func TestObservationSaw(t *testing.T) {
	first, changed := Observation{}.Saw(versioned(lease("a_1", 4), "10"), at(0))
	if !changed || !first.Exists || !first.Seen.Equal(at(0)) || !first.HolderSeen.Equal(at(0)) || first.HighTerm != 4 {
		t.Fatalf("Saw() = %+v, %t, want a Lease seen now", first, changed)
	}
	renewed := versioned(lease("a_1", 4), "11")
	renewed.Spec.RenewTime = &metav1.MicroTime{Time: at(1)}
	annotated := versioned(lease("a_1", 4), "11")
	annotated.Annotations = map[string]string{"next": "b"}
	for name, tc := range map[string]struct {
		lease                  *coordinationv1.Lease
		changed                bool
		seen, holderSeen, term float64
	}{
		"older":            {versioned(lease("b_1", 5), "9"), false, 0, 0, 4},
		"the same":         {versioned(lease("b_1", 5), "10"), false, 0, 0, 4},
		"renewed":          {renewed, true, 2, 0, 4},
		"annotated":        {annotated, true, 0, 0, 4},
		"another holder":   {versioned(lease("b_1", 5), "11"), true, 2, 2, 5},
		"another term":     {versioned(lease("a_1", 5), "11"), true, 2, 2, 5},
		"terms go back":    {versioned(lease("a_1", 1), "11"), true, 2, 2, 4},
		"longer version":   {versioned(lease("b_1", 5), "100"), true, 2, 2, 5},
		"unusable version": {versioned(lease("b_1", 5), "x"), true, 2, 2, 5},
	} {
		t.Run(name, func(t *testing.T) {
			got, changed := first.Saw(tc.lease, at(2))
			if changed != tc.changed || !got.Seen.Equal(at(tc.seen)) || !got.HolderSeen.Equal(at(tc.holderSeen)) || got.HighTerm != int32(tc.term) {
				t.Errorf("Saw() = %+v, %t, want changed %t, seen %v, holder seen %v, high term %v", got, changed, tc.changed, at(tc.seen), at(tc.holderSeen), tc.term)
			}
		})
	}
}

func TestObservationGone(t *testing.T) {
	first, _ := Observation{}.Saw(versioned(lease("a_1", 4), "10"), at(0))
	if _, changed := first.Gone("9", at(1)); changed {
		t.Error("Gone() believes a deletion that is older than the Lease")
	}
	gone, changed := first.Gone("11", at(1))
	if !changed || gone.Exists || !gone.Seen.Equal(at(1)) || gone.HighTerm != 4 || gone.Holder != "" || gone.Name != leaseName {
		t.Errorf("Gone() = %+v, %t, want it absent since now, with its name and highest term", gone, changed)
	}
	if _, changed := gone.Gone("12", at(2)); changed {
		t.Error("Gone() reports a change that was known")
	}
	if _, changed := gone.Saw(versioned(lease("a_1", 4), "10"), at(2)); changed {
		t.Error("Saw() restores a Lease that was deleted later")
	}
	if back, changed := gone.Saw(versioned(lease("b_1", 1), "12"), at(2)); !changed || !back.Exists || back.HighTerm != 4 {
		t.Errorf("Saw() = %+v, %t, want the new Lease, with the highest term of both", back, changed)
	}
	last, _ := Observation{}.Saw(versioned(lease("a_1", math.MaxInt32), "10"), at(0))
	if gone, _ := last.Gone("11", at(1)); gone.HighTerm != 0 {
		t.Errorf("after a Lease with the last term was deleted, the highest is %d, want 0: nobody could ever acquire it", gone.HighTerm)
	}
	if gone, changed := first.Gone("", at(1)); !changed || gone.ResourceVersion != "10" {
		t.Errorf("Gone(no version) = %+v, %t, want it absent", gone, changed)
	}
}

func TestObservationExpired(t *testing.T) {
	for name, tc := range map[string]struct {
		obs  Observation
		want time.Time // zero means never
	}{
		"nothing known": {Observation{}, time.Time{}},
		"absent":        {absent(10, 0), at(25)},
		"free":          {seen("", 1, 10), at(10)},
		"held":          {seen(other, 1, 10), at(25)},
	} {
		t.Run(name, func(t *testing.T) {
			for second := range 40 {
				now := at(float64(second))
				if got, want := tc.obs.Expired(now, 15*time.Second), !tc.want.IsZero() && !now.Before(tc.want); got != want {
					t.Errorf("Expired() at second %d = %t, want %t", second, got, want)
				}
			}
		})
	}
}

// watching returns an observer that runs until the test ends.
func (h *harness) watching(client *leasetest.Client) *Observer {
	h.T.Helper()
	o := h.observer(client, &leasetest.JumpClock{})
	ctx, cancel := context.WithCancel(klog.NewContext(h.T.Context(), klog.Logger{}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.Run(ctx)
	}()
	h.T.Cleanup(func() { cancel(); <-done })
	return o
}

// TestLastSignOfReplacedHolder checks the estimate: the next incarnation acquires a member's Lease
// only after its duration.
func TestLastSignOfReplacedHolder(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	next := Observation{
		Record: leaserecord.Record{Name: "f-member-a", Holder: "a_2", Duration: 15 * time.Second, AcquireTime: began},
		Exists: true, HolderSeen: began,
	}
	of := func(holder string) Observation {
		return Observation{Record: leaserecord.Record{Name: "f-x", Holder: holder, RenewTime: began.Add(-time.Hour)}, Exists: true, Heartbeat: &next}
	}
	want := began.Add(-15 * time.Second)
	if sign, stamp := of("a_1").LastSign(), of("a_1").LastStamp(); !sign.Equal(want) || !stamp.Equal(want) {
		t.Errorf("last sign %v, last stamp %v, want %v", sign, stamp, want)
	}
	next.Renewed, next.RenewTime = began.Add(time.Minute), began.Add(time.Minute)
	if sign, stamp := of("a_2").LastSign(), of("a_2").LastStamp(); !sign.Equal(next.Renewed) || !stamp.Equal(next.Renewed) {
		t.Errorf("of the current holder: last sign %v, last stamp %v, want %v", sign, stamp, next.Renewed)
	}
}

func TestObserverSeesChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(lease("a_1", 4))
		client := h.Store.Client("o")
		client.Block("list", "watch")
		o := h.watching(client)
		changed, stop := o.Subscribe(func(name string) bool { return name == leaseName })
		defer stop()
		h.Sleep(s)
		if o.HasSynced() || o.Get(leaseName).Known() || len(o.List()) != 0 {
			t.Errorf("Get() = %+v before the first list, want nothing known", o.Get(leaseName))
		}
		client.Unblock()
		synctest.Wait()
		<-changed
		if got := o.Get(leaseName); !o.HasSynced() || !got.Exists || got.Holder != "a_1" || got.Seen.Sub(h.Begin) != s {
			t.Errorf("Get() = %+v, want a_1, seen after 1s", got)
		}
		if got := o.Get("f-other"); !got.Known() || got.Exists || got.Seen.Sub(h.Begin) != s || got.Name != "f-other" {
			t.Errorf("Get(f-other) = %+v, want absent since 1s", got)
		}
		h.Sleep(s)
		h.Store.Tamper(leaseName, func(l *coordinationv1.Lease) { *l.Spec.LeaseTransitions = 5 })
		synctest.Wait()
		<-changed
		if got := o.Get(leaseName); got.Transitions != 5 || got.Seen.Sub(h.Begin) != 2*s {
			t.Errorf("Get() = %+v, want term 5, seen after 2s", got)
		}
		h.Sleep(s)
		h.Store.Remove(leaseName)
		synctest.Wait()
		<-changed
		if got := o.Get(leaseName); got.Exists || got.Seen.Sub(h.Begin) != 3*s || got.HighTerm != 5 {
			t.Errorf("Get() = %+v, want absent since 3s, high term 5", got)
		}
		foreign := lease("x", 1)
		foreign.Name = "kube-scheduler"
		h.Store.Put(foreign)
		synctest.Wait()
		if len(o.List()) != 0 || o.Watches("kube-scheduler") || closed(changed) {
			t.Error("The observer keeps a Lease that is not the fleet's")
		}
	})
}

func TestObserverNeverGoesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		client := h.Store.Client("o")
		h.Store.Put(lease("a_1", 4))
		o := h.watching(client)
		h.Sleep(s)
		client.LagWatch(5 * s)
		h.Store.Tamper(leaseName, func(l *coordinationv1.Lease) { *l.Spec.LeaseTransitions = 5 })
		h.Store.Tamper(leaseName, func(l *coordinationv1.Lease) { *l.Spec.LeaseTransitions = 6 })
		o.Observe(h.Store.Get(leaseName)) // Its own write, known before the watch delivers anything.
		for range 10 {
			h.Sleep(s)
			if got := o.Get(leaseName); got.Transitions != 6 || got.Seen.Sub(h.Begin) != s {
				t.Fatalf("Get() = %+v after %v, want term 6, seen after 1s", got, time.Since(h.Begin))
			}
		}
		// A request found it missing, but a newer Lease was observed since the request was sent.
		o.Missing(leaseName, "1")
		if !o.Get(leaseName).Exists {
			t.Error("Missing() believes an answer that is older than the Lease")
		}
		version := o.Get(leaseName).ResourceVersion
		h.Store.Remove(leaseName)
		o.Missing(leaseName, version)
		if o.Get(leaseName).Exists {
			t.Error("Missing() does not believe the latest answer")
		}
		h.Store.Put(lease("b_1", 1))
		o.Observe(h.Store.Get(leaseName))
		h.Sleep(10 * s) // The older deletion arrives.
		if got := o.Get(leaseName); !got.Exists || got.Holder != "b_1" {
			t.Errorf("Get() = %+v, want b_1: the deletion was before", got)
		}
	})
}

func TestObserverSurvivesBrokenWatches(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		client := h.Store.Client("o")
		h.Store.Put(lease("a_1", 4))
		o := h.watching(client)
		h.Sleep(s)
		for i := range int32(10) {
			client.Block()
			h.Store.BreakWatches()
			h.Store.Tamper(leaseName, func(l *coordinationv1.Lease) { *l.Spec.LeaseTransitions = 5 + i })
			h.Sleep(10 * s)
			client.Unblock()
			h.Sleep(5 * s) // The longest that the observer may wait before it retries.
			if got := o.Get(leaseName).Transitions; got != 5+i {
				t.Fatalf("Term %d is known 5s after the server is back, want %d", got, 5+i)
			}
		}
		h.Store.BreakWatches()
		h.Store.Remove(leaseName)
		h.Sleep(5 * s)
		if o.Get(leaseName).Exists {
			t.Error("A deletion during a break was missed")
		}
	})
}

func TestObserverListIsSorted(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		for _, name := range []string{"f-b", "f-c", "f-a", "g-a"} {
			l := lease("x", 1)
			l.Name = name
			h.Store.Put(l)
		}
		o := h.watching(h.Store.Client("o"))
		h.Sleep(s)
		var names []string
		for _, obs := range o.List() {
			names = append(names, obs.Name)
		}
		if got := strings.Join(names, " "); got != "f-a f-b f-c" {
			t.Errorf("List() = %s, want f-a f-b f-c", got)
		}
	})
}

func TestNewObserverNamesInvalidFields(t *testing.T) {
	_, err := NewObserver(ObserverConfig{})
	for _, field := range []string{"Fleet", "Client", "Clock"} {
		if err == nil || !strings.Contains(err.Error(), "ObserverConfig."+field+" is ") {
			t.Errorf("NewObserver(nothing) = %v, want it to name %s", err, field)
		}
	}
}

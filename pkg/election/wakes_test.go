package election

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
)

// subscribedObserver returns the subscriptions of an observer to n shards' Leases, every fourth of
// which member a holds, and a function that delivers a's heartbeat with its list of ended
// incarnations.
func subscribedObserver(tb testing.TB, n int) (wakes []<-chan struct{}, beat func(ended string)) {
	tb.Helper()
	o, err := NewObserver(ObserverConfig{Fleet: "f", Client: leasetest.NewStore().Client("reader"), Clock: NewClock()})
	if err != nil {
		tb.Fatal(err)
	}
	for i := range n {
		l := versioned(lease([]string{"a_1", "b_1", "", "ab_1"}[i%4], 1), "1")
		l.Name = fmt.Sprintf("f-namespaces-%03d", i)
		o.Observe(l)
		changed, stop := o.subscribeLease(l.Name)
		tb.Cleanup(stop)
		wakes = append(wakes, changed)
	}
	version := 0
	return wakes, func(ended string) {
		version++
		l := versioned(lease("a_1", 1), strconv.Itoa(version))
		l.Name = leaserecord.MemberLease("f", "a")
		l.Spec.RenewTime = &metav1.MicroTime{Time: time.Unix(int64(version), 0)}
		if ended != "" {
			l.Annotations = map[string]string{leaserecord.EndedAnnotation: ended}
		}
		o.Observe(l)
	}
}

// TestAHeartbeatWakesNoClaim checks that only a changed list of ended incarnations wakes claims, and
// only those on Leases that the member holds.
func TestAHeartbeatWakesNoClaim(t *testing.T) {
	wakes, beat := subscribedObserver(t, 20)
	woken := func() (n int) {
		for _, wake := range wakes {
			select {
			case <-wake:
				n++
			default:
			}
		}
		return n
	}
	for _, step := range []struct {
		ended string
		want  int
	}{{"", 0}, {"", 0}, {"a_0", 5}, {"a_0", 0}, {"a_0,a_1", 5}, {"", 5}} {
		beat(step.ended)
		if n := woken(); n != step.want {
			t.Errorf("a heartbeat that lists %q as ended has woken %d claims, want %d", step.ended, n, step.want)
		}
	}
}

// TestAClaimWakesForItsLease checks that a claim wakes for its own Lease only, until it
// unsubscribes.
func TestAClaimWakesForItsLease(t *testing.T) {
	o, err := NewObserver(ObserverConfig{Fleet: "f", Client: leasetest.NewStore().Client("reader"), Clock: NewClock()})
	if err != nil {
		t.Fatal(err)
	}
	changed, stop := o.subscribeLease("f-one")
	write := func(name string, version int) bool {
		l := versioned(lease("a_1", 1), strconv.Itoa(version))
		l.Name = name
		o.Observe(l)
		select {
		case <-changed:
			return true
		default:
			return false
		}
	}
	if !write("f-one", 1) || write("f-two", 2) || write("f-one", 1) {
		t.Error("want a wake-up for a change of the one Lease, and for nothing else")
	}
	stop()
	if write("f-one", 3) || len(o.ofLease) != 0 {
		t.Error("woken after unsubscribing, or still subscribed")
	}
}

// TestDesiredAgainWakesNoClaim checks that Released again, which a member sets repeatedly for
// others' shards, wakes no claimant without a claim.
func TestDesiredAgainWakesNoClaim(t *testing.T) {
	c := &Claimant{wake: make(chan struct{}, 1)}
	woken := func() bool {
		select {
		case <-c.wake:
			return true
		default:
			return false
		}
	}
	for i, step := range []struct {
		desired Desired
		claim   *Claim
		want    bool
	}{
		{desired: Released}, {desired: Held, want: true}, {desired: Held, want: true}, {desired: Released, want: true}, {desired: Released},
		{desired: Released, claim: &Claim{}, want: true}, // the drain timeout may have changed
	} {
		c.setClaim(step.claim)
		if c.SetDesired(step.desired); woken() != step.want {
			t.Errorf("step %d: woken is not %t", i, step.want)
		}
	}
}

// BenchmarkHeartbeat measures what another member's heartbeat costs a member with a thousand
// claimants.
func BenchmarkHeartbeat(b *testing.B) {
	_, beat := subscribedObserver(b, 1000)
	b.ReportAllocs()
	for b.Loop() {
		beat("")
	}
}

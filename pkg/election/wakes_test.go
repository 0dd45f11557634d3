package election

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
)

// crowd is an observer with a claim's subscription for each of n shards, and a function that has
// the heartbeat of a member arrive, with those that it lists as ended.
func crowd(tb testing.TB, n int) (wakes []<-chan struct{}, beat func(ended string)) {
	tb.Helper()
	o, err := NewObserver(ObserverConfig{Fleet: "f", Client: leasetest.NewStore().Client("reader"), Clock: NewClock()})
	if err != nil {
		tb.Fatal(err)
	}
	for i := range n {
		changed, stop := o.subscribeLease(fmt.Sprintf("f-namespaces-%03d", i))
		tb.Cleanup(stop)
		wakes = append(wakes, changed)
	}
	version := 0
	return wakes, func(ended string) {
		version++
		l := versioned(lease("a_1", 1), strconv.Itoa(version))
		l.Name = MemberLease("f", "a")
		l.Spec.RenewTime = &metav1.MicroTime{Time: time.Unix(int64(version), 0)}
		if ended != "" {
			l.Annotations = map[string]string{EndedAnnotation: ended}
		}
		o.Observe(l)
	}
}

// TestAHeartbeatWakesNoClaim: but one that lists somebody as ended wakes all, whose holder that may
// be.
func TestAHeartbeatWakesNoClaim(t *testing.T) {
	wakes, beat := crowd(t, 20)
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
	}{{"", 0}, {"", 0}, {"b_1", 20}, {"b_1", 0}, {"", 20}} {
		if beat(step.ended); woken() != step.want {
			t.Errorf("a heartbeat that lists %q as ended did not wake %d claims", step.ended, step.want)
		}
	}
}

// TestAClaimWakesForItsLease: for its own and for no other, until it has unsubscribed.
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
		t.Error("want to be woken by a change of the one Lease, and by nothing else")
	}
	stop()
	if write("f-one", 3) || len(o.ofLease) != 0 {
		t.Error("woken after the end, or not forgotten")
	}
}

// TestDesiredAgainWakesNoClaim: a member wants none of the shards of others, and says so over and
// over.
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
		{desired: Released, claim: &Claim{}, want: true}, // the time that it may take to drain may have changed
	} {
		c.setClaim(step.claim)
		if c.SetDesired(step.desired); woken() != step.want {
			t.Errorf("step %d: woken is not %t", i, step.want)
		}
	}
}

// BenchmarkHeartbeat is what the heartbeat of another member costs one with a thousand shards to
// claim.
func BenchmarkHeartbeat(b *testing.B) {
	_, beat := crowd(b, 1000)
	b.ReportAllocs()
	for b.Loop() {
		beat("")
	}
}

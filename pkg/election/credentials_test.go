package election

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

func (m *memberNode) publish(id string, lifetime time.Duration) {
	m.t.Helper()
	if err := m.membership.Publish(m.t.Context(), Credential{ID: id, Lifetime: lifetime}); err != nil {
		m.t.Error(err)
	}
}

func (w *world) expectAnnotation(member, key, want string) {
	w.t.Helper()
	if got := w.store.Get(MemberLease("f", member)).Annotations[key]; got != want {
		w.t.Errorf("%s of %s is %q, want %q", key, member, got, want)
	}
}

func (w *world) expectMarked(member string, want bool) {
	w.t.Helper()
	if _, got := w.store.Get(MemberLease("f", member)).Labels[MarkedLabel]; got != want {
		w.t.Errorf("%s has the label of marked Leases: %t, want %t", member, got, want)
	}
}

func TestCredentialsAreOnTheLeaseAsLongAsTheyLive(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.member("a_1", 0)
		w.sleep(s)
		a.publish("JTI=2", time.Hour)
		w.expectAnnotation("a", CredentialsAnnotation, "JTI=2") // when Publish returns
		a.publish("JTI=1", 2*time.Hour)
		w.expectAnnotation("a", CredentialsAnnotation, "JTI=1,JTI=2")
		w.sleep(time.Hour)
		w.expectAnnotation("a", CredentialsAnnotation, "JTI=1,JTI=2")
		w.sleep(10 * time.Minute)
		w.expectAnnotation("a", CredentialsAnnotation, "JTI=1")
		w.sleep(time.Hour)
		w.expectAnnotation("a", CredentialsAnnotation, "")
		for _, id := range []string{"", "JTI=1,JTI=2"} {
			if err := a.membership.Publish(t.Context(), Credential{ID: id, Lifetime: time.Hour}); err == nil {
				t.Errorf("Publish() of the id %q succeeded", id)
			}
		}
		a.stop()
	})
}

func TestFencedCredentialsStayAsLongAsTheyMayLive(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		first := w.member("a_1", 0)
		w.sleep(s)
		first.publish("JTI=1", time.Hour)
		w.expectMarked("a", false)
		first.client.Block()
		second := w.member("a_2", 0)
		w.sleep(time.Minute)
		second.publish("JTI=2", 24*time.Hour)
		w.expectAnnotation("a", FencedAnnotation, "a_1")
		w.expectAnnotation("a", FencedCredentialsAnnotation, "JTI=1")
		w.expectAnnotation("a", CredentialsAnnotation, "JTI=2")
		w.expectMarked("a", true)
		w.sleep(time.Hour)
		// Another mark makes all of it stay longer.
		w.store.Tamper("f-member-a", func(lease *coordinationv1.Lease) {
			lease.Annotations[FencedAnnotation] += ",a_0"
			lease.Annotations[FencedCredentialsAnnotation] += ",JTI=0"
		})
		w.sleep(time.Hour + 50*time.Minute)
		w.expectAnnotation("a", FencedCredentialsAnnotation, "JTI=1,JTI=0")
		w.sleep(20 * time.Minute)
		w.expectAnnotation("a", FencedAnnotation, "")
		w.expectAnnotation("a", FencedCredentialsAnnotation, "")
		w.expectMarked("a", false)
		first.client.Unblock()
		second.stop()
	})
}

func TestRevokedMembershipIsLostAndReleased(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.member("a_1", 0)
		w.sleep(s)
		a.membership.Revoke()
		a.membership.Revoke()
		w.sleep(s)
		if !closed(a.membership.Lost()) || a.err == nil {
			t.Errorf("Lost: %t, Run() = %v; want it lost", closed(a.membership.Lost()), a.err)
		}
		if holder := *w.store.Get("f-member-a").Spec.HolderIdentity; holder != "" {
			t.Errorf("the Lease is still held by %s", holder)
		}
	})
}

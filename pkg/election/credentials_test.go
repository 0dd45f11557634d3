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

func (h *harness) expectAnnotation(member, key, want string) {
	h.t.Helper()
	if got := h.store.Get(MemberLease("f", member)).Annotations[key]; got != want {
		h.t.Errorf("%s of %s is %q, want %q", key, member, got, want)
	}
}

func (h *harness) expectMarked(member string, want bool) {
	h.t.Helper()
	if _, got := h.store.Get(MemberLease("f", member)).Labels[MarkedLabel]; got != want {
		h.t.Errorf("%s has the label of marked Leases: %t, want %t", member, got, want)
	}
}

func TestCredentialsStayOnTheLeaseUntilTheyExpire(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		a := h.member("a_1", 0)
		h.sleep(s)
		a.publish("JTI=2", time.Hour)
		h.expectAnnotation("a", CredentialsAnnotation, "JTI=2") // when Publish returns
		a.publish("JTI=1", 2*time.Hour)
		h.expectAnnotation("a", CredentialsAnnotation, "JTI=1,JTI=2")
		h.sleep(time.Hour)
		h.expectAnnotation("a", CredentialsAnnotation, "JTI=1,JTI=2")
		h.sleep(10 * time.Minute)
		h.expectAnnotation("a", CredentialsAnnotation, "JTI=1")
		h.sleep(time.Hour)
		h.expectAnnotation("a", CredentialsAnnotation, "")
		for _, id := range []string{"", "JTI=1,JTI=2"} {
			if err := a.membership.Publish(t.Context(), Credential{ID: id, Lifetime: time.Hour}); err == nil {
				t.Errorf("Publish() of the id %q succeeded", id)
			}
		}
		a.stop()
	})
}

func TestFencedCredentialsStayUntilTheyMustHaveExpired(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		first := h.member("a_1", 0)
		h.sleep(s)
		first.publish("JTI=1", time.Hour)
		h.expectMarked("a", false)
		first.client.Block()
		second := h.member("a_2", 0)
		h.sleep(time.Minute)
		second.publish("JTI=2", 24*time.Hour)
		h.expectAnnotation("a", FencedAnnotation, "a_1")
		h.expectAnnotation("a", FencedCredentialsAnnotation, "JTI=1")
		h.expectAnnotation("a", CredentialsAnnotation, "JTI=2")
		h.expectMarked("a", true)
		h.sleep(time.Hour)
		// Another mark extends the time for all of them.
		h.store.Tamper("f-member-a", func(lease *coordinationv1.Lease) {
			lease.Annotations[FencedAnnotation] += ",a_0"
			lease.Annotations[FencedCredentialsAnnotation] += ",JTI=0"
		})
		h.sleep(time.Hour + 50*time.Minute)
		h.expectAnnotation("a", FencedCredentialsAnnotation, "JTI=1,JTI=0")
		h.sleep(20 * time.Minute)
		h.expectAnnotation("a", FencedAnnotation, "")
		h.expectAnnotation("a", FencedCredentialsAnnotation, "")
		h.expectMarked("a", false)
		first.client.Unblock()
		second.stop()
	})
}

func TestRevokedMembershipIsLostAndReleased(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		a := h.member("a_1", 0)
		h.sleep(s)
		a.membership.Revoke()
		a.membership.Revoke()
		h.sleep(s)
		if !closed(a.membership.Lost()) || a.err == nil {
			t.Errorf("Lost: %t, Run() = %v; want it lost", closed(a.membership.Lost()), a.err)
		}
		if holder := *h.store.Get("f-member-a").Spec.HolderIdentity; holder != "" {
			t.Errorf("the Lease is still held by %s", holder)
		}
	})
}

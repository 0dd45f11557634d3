package membership

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
)

func (m *memberNode) publish(id string, lifetime time.Duration) {
	m.T.Helper()
	if err := m.membership.Publish(m.T.Context(), Credential{ID: id, Lifetime: lifetime}); err != nil {
		m.T.Error(err)
	}
}

func (h *harness) expectAnnotation(member, key, want string) {
	h.T.Helper()
	if got := h.Store.Get(leaserecord.MemberLease("f", member)).Annotations[key]; got != want {
		h.T.Errorf("%s of %s is %q, want %q", key, member, got, want)
	}
}

func (h *harness) expectMarked(member string, want bool) {
	h.T.Helper()
	if _, got := h.Store.Get(leaserecord.MemberLease("f", member)).Labels[leaserecord.MarkedLabel]; got != want {
		h.T.Errorf("%s has the label of marked Leases: %t, want %t", member, got, want)
	}
}

func TestCredentialsStayOnTheLeaseUntilTheyExpire(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		a := h.member("a_1", 0)
		h.Sleep(s)
		a.publish("JTI=2", time.Hour)
		h.expectAnnotation("a", leaserecord.CredentialsAnnotation, "JTI=2") // when Publish returns
		a.publish("JTI=1", 2*time.Hour)
		h.expectAnnotation("a", leaserecord.CredentialsAnnotation, "JTI=1,JTI=2")
		h.Sleep(time.Hour)
		h.expectAnnotation("a", leaserecord.CredentialsAnnotation, "JTI=1,JTI=2")
		h.Sleep(10 * time.Minute)
		h.expectAnnotation("a", leaserecord.CredentialsAnnotation, "JTI=1")
		h.Sleep(time.Hour)
		h.expectAnnotation("a", leaserecord.CredentialsAnnotation, "")
		for _, id := range []string{"", "JTI=1,JTI=2"} {
			if err := a.membership.Publish(t.Context(), Credential{ID: id, Lifetime: time.Hour}); err == nil {
				t.Errorf("Publish() of the id %q succeeded", id)
			}
		}
		a.Stop()
	})
}

func TestFencedCredentialsStayUntilTheyMustHaveExpired(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		first := h.member("a_1", 0)
		h.Sleep(s)
		first.publish("JTI=1", time.Hour)
		h.expectMarked("a", false)
		first.client.Block()
		second := h.member("a_2", 0)
		h.Sleep(time.Minute)
		second.publish("JTI=2", 24*time.Hour)
		h.expectAnnotation("a", leaserecord.FencedAnnotation, "a_1")
		h.expectAnnotation("a", leaserecord.FencedCredentialsAnnotation, "JTI=1")
		h.expectAnnotation("a", leaserecord.CredentialsAnnotation, "JTI=2")
		h.expectMarked("a", true)
		h.Sleep(time.Hour)
		// Another mark extends the time for all of them.
		h.Store.Tamper("f-member-a", func(lease *coordinationv1.Lease) {
			lease.Annotations[leaserecord.FencedAnnotation] += ",a_0"
			lease.Annotations[leaserecord.FencedCredentialsAnnotation] += ",JTI=0"
		})
		h.Sleep(time.Hour + 50*time.Minute)
		h.expectAnnotation("a", leaserecord.FencedCredentialsAnnotation, "JTI=1,JTI=0")
		h.Sleep(20 * time.Minute)
		h.expectAnnotation("a", leaserecord.FencedAnnotation, "")
		h.expectAnnotation("a", leaserecord.FencedCredentialsAnnotation, "")
		h.expectMarked("a", false)
		first.client.Unblock()
		second.Stop()
	})
}

func TestRevokedMembershipIsLostAndReleased(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		a := h.member("a_1", 0)
		h.Sleep(s)
		a.membership.Revoke()
		a.membership.Revoke()
		h.Sleep(s)
		if !isClosed(a.membership.Lost()) || a.err == nil {
			t.Errorf("Lost: %t, Run() = %v; want it lost", isClosed(a.membership.Lost()), a.err)
		}
		if holder := *h.Store.Get("f-member-a").Spec.HolderIdentity; holder != "" {
			t.Errorf("the Lease is still held by %s", holder)
		}
	})
}

// TestUnmarkedStrikeAfterAMarkedOne starts a member whose last incarnation was struck without a
// mark. An earlier one, which sorts after it, has its mark, and both are still listed as ended.
func TestUnmarkedStrikeAfterAMarkedOne(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		for n, holder := range []string{"a_1", "a_9"} {
			h.Store.Put(leasetest.Lease(shardLease(n+1), holder, 7))
		}
		struck := leasetest.Lease("f-member-a", "", 3)
		struck.Annotations = map[string]string{
			leaserecord.ProtocolAnnotation: "2", leaserecord.EndedAnnotation: "a_1,a_9",
			leaserecord.FencedAnnotation: "a_9", leaserecord.FencedCredentialsAnnotation: "JTI=9", leaserecord.CredentialsAnnotation: "JTI=1",
		}
		struck.Labels = map[string]string{leaserecord.MarkedLabel: "true"}
		h.Store.Put(struck)
		a := h.member("a_2", 0)
		h.Sleep(10 * s)
		h.expectAnnotation("a", leaserecord.FencedCredentialsAnnotation, "JTI=9,JTI=1")
		h.expectAnnotation("a", leaserecord.FencedAnnotation, "a_9,a_1")
		h.expectAnnotation("a", leaserecord.CredentialsAnnotation, "")
		a.Stop()
	})
}

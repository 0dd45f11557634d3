package membership

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
)

// memberNode is a process with a membership.
type memberNode struct {
	*node
	membership *Membership
	err        error
}

func (h *harness) member(incarnation string, delay time.Duration) *memberNode {
	h.T.Helper()
	n := h.newNode(incarnation, nil)
	m := &memberNode{node: n}
	var err error
	m.membership, err = New(Config{
		Fleet: "f", Incarnation: incarnation, Client: n.client, Observer: n.observer, Clock: n.clock, Timing: election.DefaultTiming(),
		RebalanceDelay: delay, Annotations: func() map[string]string { return map[string]string{"plan": "plan-1"} }, OnEvent: n.event,
		Jitter: func(d time.Duration) time.Duration { return d },
	})
	if err != nil {
		h.T.Fatal(err)
	}
	n.Process = h.Run(m.run, n.observer.Run)
	return m
}

// run returns once the membership is lost or ctx has ended, as a process does.
func (m *memberNode) run(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-m.membership.Lost():
			stop()
		case <-ctx.Done():
		}
	}()
	m.err = m.membership.Run(ctx)
}

// roster describes the roster as n sees it: incarnation, state, since and plan of each member, and
// the active members.
func (n *node) roster() string {
	r := RosterFrom("f", n.observer.List(), election.DefaultTiming().LeaseDuration, n.clock.Now())
	var parts []string
	for _, m := range r.Members() {
		parts = append(parts, fmt.Sprintf("%s=%s/%.0f/%s", m.Incarnation, m.State, m.Since.Sub(n.Begin).Seconds(), m.Annotations["plan"]))
	}
	return strings.Join(parts, " ") + " active: " + strings.Join(r.Active(), " ")
}

func (n *node) expectRoster(want string) {
	n.T.Helper()
	if got := n.roster(); got != want {
		n.T.Errorf("Roster of %s is %q, want %q", n.name, got, want)
	}
}

func TestMembershipLife(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		a := h.member("a_1", 30*s)
		h.Sleep(s)
		<-a.membership.Joined()
		a.expectRoster("a_1=active/0/plan-1 active: a") // There is no other member.
		b := h.member("b_1", 30*s)
		h.Sleep(s)
		a.expectRoster("a_1=active/0/plan-1 b_1=joining/1/plan-1 active: a")
		h.Sleep(28 * s)
		b.expectRoster("a_1=active/1/plan-1 b_1=joining/1/plan-1 active: a")
		h.Sleep(s)
		b.expectRoster("a_1=active/1/plan-1 b_1=active/1/plan-1 active: a b")
		a.membership.Leave()
		h.Sleep(s)
		b.expectRoster("a_1=leaving/1/plan-1 b_1=active/1/plan-1 active: b")
		h.Sleep(60 * s)
		b.expectRoster("a_1=leaving/1/plan-1 b_1=active/1/plan-1 active: b")
		a.Stop()
		b.expectRoster("b_1=active/1/plan-1 active: b")
		if a.err != nil || isClosed(a.membership.Lost()) {
			t.Errorf("Run() = %v, lost %t after a planned end, want nil, false", a.err, isClosed(a.membership.Lost()))
		}
		if got := h.Holder("f-member-a"); got != "" {
			t.Errorf("Holder of a's Lease is %q after it has left, want none", got)
		}
	})
}

// Once the only active member has died, a joining one must become active at once.
func TestMemberBecomesActiveWhenOthersHaveDied(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		a := h.member("a_1", time.Hour)
		h.Sleep(s)
		b := h.member("b_1", time.Hour)
		h.Sleep(1500 * time.Millisecond) // a renews at 2
		a.client.Block()
		h.Sleep(14 * s)
		b.expectRoster("a_1=active/1/plan-1 b_1=joining/1/plan-1 active: a")
		h.Sleep(s)
		b.expectRoster("b_1=active/1/plan-1 active: b")
	})
}

// Of two incarnations of one member, the second waits, and reports that, until the first has gone.
func TestTwoIncarnations(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		first := h.member("a_1", 0)
		h.Sleep(s)
		second := h.member("a_2", 0)
		h.Sleep(60 * s)
		if isClosed(second.membership.Joined()) || isClosed(first.membership.Lost()) {
			t.Error("Two incarnations of one member hold its Lease")
		}
		first.client.Block()
		first.watch.Block()
		h.Sleep(13 * s)
		h.Expect(`
			0.0 a_1 acquired 1
			0.0 a_1 started 1
			1.0 a_2 waiting (held)
			67.0 a_1 failed
			70.0 a_1 ended 1 (renew-deadline)
			72.0 a_1 failed`)
		if isClosed(second.membership.Joined()) {
			t.Error("The second incarnation has joined before the Lease has expired")
		}
		h.Sleep(12 * s)
		if !isClosed(first.membership.Lost()) || !errors.Is(first.err, ErrLost) {
			t.Errorf("Run() = %v, lost %t, want it lost", first.err, isClosed(first.membership.Lost()))
		}
		if !isClosed(second.membership.Joined()) {
			t.Error("The second incarnation has not joined after the first has gone")
		}
	})
}

// steady is a heartbeat that is always confirmed.
type steady struct{ clock election.Clock }

func (h steady) Confirmed() (time.Time, bool) { return h.clock.Now(), true }

func TestMembershipLostToAnotherIncarnation(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		a := h.member("a_1", 0)
		h.Sleep(s)
		// A claim of the same process, revoked by the loss.
		h.Store.Put(leasetest.Lease(leaseName, "", 7))
		n := h.newNode("n", nil)
		claimant, err := election.NewClaimant(election.ClaimantConfig{
			Name: leaseName, Identity: "n_1", Client: n.client, Observer: n.observer, Clock: n.clock, Timing: election.DefaultTiming(),
			Heartbeat: steady{n.clock}, Revoked: a.membership.Lost(), OnStuck: n.stuck,
			Work: func(ctx context.Context, _ *election.Claim) { <-ctx.Done() },
		})
		if err != nil {
			t.Fatal(err)
		}
		claimant.SetDesired(election.Held)
		h.Run(claimant.Run, n.observer.Run)
		h.Sleep(s)
		claim := claimant.Claim()
		h.Store.Tamper("f-member-a", func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity = "a_2"; *l.Spec.LeaseTransitions = 2 })
		h.Sleep(time.Millisecond)
		if claim.Valid(n.clock.Now()) {
			t.Error("A claim is valid after the membership was lost")
		}
		h.Sleep(s)
		if got := h.Holder("f-member-a"); got != "a_2" {
			t.Errorf("Holder is %q, want a_2: a_1 must not release its Lease", got)
		}
		if want := "membership lost: other-holder"; a.err == nil || a.err.Error() != want {
			t.Errorf("Run() = %v, want %s", a.err, want)
		}
		if got := h.Holder(leaseName); got != "" {
			t.Errorf("Holder of the shard is %q, want none", got)
		}
	})
}

func TestMembershipDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		a := h.member("a_1", 0)
		h.Sleep(s)
		h.Store.Remove("f-member-a")
		h.Sleep(30 * s)
		a.expectRoster("a_1=active/1/plan-1 active: a")
		if isClosed(a.membership.Lost()) {
			t.Error("The membership was lost although its deleted Lease was recreated")
		}
	})
}

func TestRosterFrom(t *testing.T) {
	member := func(name, holder, state string, second float64) election.Observation {
		obs := seen(holder, second)
		obs.Name = "f-member-" + name
		obs.Annotations = map[string]string{leaserecord.StateAnnotation: state, "plan": "p"}
		return obs
	}
	gone := election.Observation{Record: leaserecord.Record{Name: "f-member-g"}, Seen: at(99), HighTerm: 1}
	all := []election.Observation{
		member("e", "e_1", "active", 98), // Unsorted.
		member("b", "b_1", "joining", 90),
		member("c", "c_1", "leaving", 99),
		member("d", "d_1", "", 99),
		member("x", "x_1", "active", 85),                 // expired
		member("y", "", "active", 99),                    // released
		member("z", "somebody", "active", 99),            // not an incarnation of z
		member("plan", "a_1", "active", 99),              // "f-member-plan" of fleet "f-member" held by a
		gone,                                             // deleted
		seen("a_1", 99),                                  // a shard's
		{Record: leaserecord.Record{Name: "g-member-a"}}, // another fleet's
		member("w-1", "w-1_a-b", "bogus", 100),           // hyphens and an unknown state
	}
	all[0].AcquireTime = at(50)
	r := RosterFrom("f", all, 15*time.Second, at(100))
	said := func(state string) map[string]string {
		return map[string]string{leaserecord.StateAnnotation: state, "plan": "p"}
	}
	want := []Member{
		{"b", "b_1", Joining, at(90), time.Time{}, said("joining"), at(90)},
		{"c", "c_1", Leaving, at(99), time.Time{}, said("leaving"), at(99)},
		{"d", "d_1", Joining, at(99), time.Time{}, said(""), at(99)},
		{"e", "e_1", Active, at(98), at(50), said("active"), at(98)},
		{"w-1", "w-1_a-b", Joining, at(100), time.Time{}, said("bogus"), at(100)},
	}
	if diff := cmp.Diff(want, r.Members()); diff != "" {
		t.Errorf("Members() is not as wanted (-want +got):\n%s", diff)
	}
	if got := strings.Join(r.Live(), " "); got != "b c d e w-1" {
		t.Errorf("Live() = %s, want b c d e w-1", got)
	}
	if got := strings.Join(r.Active(), " "); got != "e" {
		t.Errorf("Active() = %s, want e", got)
	}
	if got := strings.Join(RosterFrom("f", all[1:], 15*time.Second, at(100)).Active(), " "); got != "b d w-1" {
		t.Errorf("Active() with nobody active = %s, want b d w-1", got)
	}
	if got := r.NextChange(); !got.Equal(at(105)) {
		t.Errorf("NextChange() = %v, want %v", got, at(105))
	}
	if m, ok := r.Get("e"); !ok || m.Incarnation != "e_1" {
		t.Errorf("Get(e) = %+v, %t, want e_1", m, ok)
	}
	if _, ok := r.Get("x"); ok {
		t.Error("Get(x) finds a member that is not live")
	}
}

func TestIncarnation(t *testing.T) {
	a, b := leaserecord.NewIncarnation("pod-1"), leaserecord.NewIncarnation("pod-1")
	if a == b || leaserecord.MemberOf(a) != "pod-1" {
		t.Errorf("NewIncarnation(pod-1) = %s, %s, want two different ones of pod-1", a, b)
	}
	if got := leaserecord.MemberOf("nonsense"); got != "" {
		t.Errorf("MemberOf(nonsense) = %q, want nothing", got)
	}
}

func TestNewMembershipNamesInvalidFields(t *testing.T) {
	_, err := New(Config{Incarnation: "pod", RebalanceDelay: -1})
	for _, want := range []string{
		`membership.Config.Incarnation is "pod", must be of the form <member>_<uuid>`,
		"membership.Config.Fleet is empty", "membership.Config.RebalanceDelay is -1ns, must not be negative", "Client is nil",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New() = %v, want it to say %s", err, want)
		}
	}
}

package fencing

import (
	"context"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/heartbeat"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// forbidding refuses every update, and counts them.
type forbidding struct {
	*leasetest.Client
	updates int
}

func (f *forbidding) Update(_ context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	f.updates++
	return nil, apierrors.NewForbidden(coordinationv1.Resource("leases"), lease.Name, nil)
}

// TestRefusedOnce requires that a mark that the API server refuses is tried once for all shards of
// a dead member, also after the last of them has another holder, and that the refusal is forgotten
// once the member is back.
func TestRefusedOnce(t *testing.T) {
	lease := func(name, version, holder string) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version, Annotations: map[string]string{leaserecord.CredentialsAnnotation: "JTI=1"}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](15)},
		}
	}
	store := leasetest.NewStore()
	client, clock := &forbidding{Client: store.Client("a")}, election.NewClock()
	observer, err := election.NewObserver(election.ObserverConfig{Fleet: "f", Client: client, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	observer.Observe(lease(leaserecord.MemberLease("f", "b"), "1", "b_1"))
	observer.Observe(lease("f-namespaces-00", "2", "b_1"))
	f := New(Config{
		Fleet: "f", Incarnation: "a_1", Leases: client, Observer: observer, Clock: clock, Timing: election.DefaultTiming(),
		Enforced: func() bool { return true }, Marked: func() { t.Error("a was fenced") }, Observe: func(election.Event) {},
	})
	look := func() { f.Look(t.Context(), leaseapi.NewSnapshot("f", observer.List(), 15*time.Second, clock.Now())) }
	for range 3 {
		if since := f.Since(t.Context(), "b_1"); !since.IsZero() || client.updates != 1 {
			t.Errorf("fenced since %v, after %d requests; want never, and one request", since, client.updates)
		}
		look()
	}
	observer.Observe(lease(leaserecord.MemberLease("f", "b"), "3", "")) // as a strike leaves it
	observer.Observe(lease("f-namespaces-00", "4", "a_1"))
	look()
	if f.Since(t.Context(), "b_1"); client.updates != 1 {
		t.Errorf("%d requests after the last of its shards was taken, want one", client.updates)
	}
	observer.Observe(lease(leaserecord.MemberLease("f", "b"), "5", "b_2"))
	if look(); len(f.refused) > 0 {
		t.Errorf("refusals of %v are remembered, and b is back", f.refused)
	}
}

// marker is a Fencing of member a, whose marks are written, with what it sees and its clock.
type marker struct {
	*Fencing
	store    *leasetest.Store
	observer *election.Observer
	clock    *leasetest.JumpClock
}

func newMarker(t *testing.T) marker {
	t.Helper()
	m := marker{store: leasetest.NewStore(), clock: &leasetest.JumpClock{}}
	client := m.store.Client("a")
	var err error
	if m.observer, err = election.NewObserver(election.ObserverConfig{Fleet: "f", Client: client, Clock: m.clock}); err != nil {
		t.Fatal(err)
	}
	m.Fencing = New(Config{
		Fleet: "f", Incarnation: "a_1", Leases: client, Observer: m.observer, Clock: m.clock, Timing: election.DefaultTiming(),
		Enforced: func() bool { return true }, Marked: func() { t.Error("a was fenced") }, Observe: func(election.Event) {},
	})
	return m
}

// struck stores the Lease of a member as a strike without a mark leaves it.
func (m marker) struck(member, incarnation string) {
	lease := leasetest.Lease(leaserecord.MemberLease("f", member), "", 1)
	lease.Annotations = map[string]string{
		leaserecord.ProtocolAnnotation: strconv.Itoa(heartbeat.Protocol), leaserecord.EndedAnnotation: incarnation,
		leaserecord.CredentialsAnnotation: "JTI=" + incarnation,
	}
	m.store.Put(lease)
	m.see(member)
}

// see shows the member its store.
func (m marker) see(member string) {
	m.observer.Observe(m.store.Get(leaserecord.MemberLease("f", member)))
}

func (m marker) isMarked(member, incarnation string) bool {
	return leaserecord.From(m.store.Get(leaserecord.MemberLease("f", member))).Fenced(incarnation)
}

// TestSinceTheLastMark checks that a takeover counts the delay from the last mark of anybody, also
// if another process has just written that one.
func TestSinceTheLastMark(t *testing.T) {
	m := newMarker(t)
	m.struck("b", "b_1")
	began := m.clock.Now()
	m.Since(t.Context(), "b_1")
	m.clock.Jump(time.Minute)
	m.struck("c", "c_1")
	marked, _ := leaserecord.FenceIncarnation(m.store.Get(leaserecord.MemberLease("f", "c")), "c_1")
	m.store.Put(marked)
	m.see("c")
	if since := m.Since(t.Context(), "b_1").Sub(began); since < time.Minute {
		t.Errorf("b is fenced since %v, and c was only then: want a minute or more", since)
	}
	m.clock.Jump(time.Minute)
	if since := m.Since(t.Context(), "b_1").Sub(began); since >= 2*time.Minute {
		t.Errorf("fenced since %v, want when c was first seen marked", since)
	}
}

// TestMarksBesideAHandoff checks that whoever was struck without a mark is marked before anything
// runs, even if the last holder of a shard has released it or was this member: the one in between
// may have given the shard back at once.
func TestMarksBesideAHandoff(t *testing.T) {
	for _, holder := range []string{"", "a_1"} {
		m := newMarker(t)
		m.struck("b", "b_1")
		if since := m.Since(t.Context(), holder); !m.isMarked("b", "b_1") || since.IsZero() {
			t.Errorf("after holder %q: b is marked %v, since %v; want a mark", holder, m.isMarked("b", "b_1"), since)
		}
	}
	m := newMarker(t)
	if since := m.Since(t.Context(), ""); !since.IsZero() {
		t.Errorf("fenced since %v, and nobody has died", since)
	}
}

// TestWhoIsNotMarkedAnyMore checks that marks are not written for those whose credentials have
// expired long ago, nor on Leases that name other members.
func TestWhoIsNotMarkedAnyMore(t *testing.T) {
	m := newMarker(t)
	m.struck("c", "c_1")
	m.clock.Jump(leaserecord.FencedFor + time.Second)
	m.struck("b", "b_1")
	m.struck("d", "d_1")
	m.struck("e", "b_0")
	m.Since(t.Context(), "b_1")
	for member, incarnation := range map[string]string{"b": "b_1", "d": "d_1"} {
		if !m.isMarked(member, incarnation) {
			t.Errorf("%s is not marked", incarnation)
		}
	}
	for member, incarnation := range map[string]string{"c": "c_1", "e": "b_0"} {
		if m.isMarked(member, incarnation) {
			t.Errorf("%s is marked on the Lease of %s", incarnation, member)
		}
	}
}

package fencing

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election"
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

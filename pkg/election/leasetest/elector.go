package leasetest

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// electorTimeout is the request timeout of client-go's elector in a controller manager: half its
// renew deadline.
const electorTimeout = 5 * time.Second

// ElectorLeases is the part of a clientset that client-go's elector needs: the Client's Leases, in
// any namespace, with the timeout that a controller manager gives each request.
type ElectorLeases struct {
	coordinationv1client.LeaseInterface
	Client *Client
}

// Leases implements coordinationv1client.LeasesGetter.
func (l ElectorLeases) Leases(string) coordinationv1client.LeaseInterface { return l }

// Get implements coordinationv1client.LeaseInterface.
func (l ElectorLeases) Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, electorTimeout)
	defer cancel()
	return l.Client.Get(ctx, name, opts)
}

// Create implements coordinationv1client.LeaseInterface.
func (l ElectorLeases) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, electorTimeout)
	defer cancel()
	return l.Client.Create(ctx, lease, opts)
}

// Update implements coordinationv1client.LeaseInterface.
func (l ElectorLeases) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, electorTimeout)
	defer cancel()
	return l.Client.Update(ctx, lease, opts)
}

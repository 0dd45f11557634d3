package fleet

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shardRequests is how many requests for shards' Leases a member has under way at a time. The API server has 25 seats for
// all Leases, and a write that a hundred members watch takes several: those of a member that takes hundreds of shards at once
// would keep the heartbeats of all from coming through.
const shardRequests = 4

// turns are Leases of which a member reads and writes only some at a time. Lists and watches do not wait.
type turns struct {
	Leases
	slots chan struct{}
}

// shardLeases returns the client for shards' Leases.
func (m *Member) shardLeases() Leases { return turns{m.config.Leases, m.shardSlots} }

// Get implements Leases.
func (t turns) Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error) {
	return t.inTurn(ctx, func() (*coordinationv1.Lease, error) { return t.Leases.Get(ctx, name, opts) })
}

// Create implements Leases.
func (t turns) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return t.inTurn(ctx, func() (*coordinationv1.Lease, error) { return t.Leases.Create(ctx, lease, opts) })
}

// Update implements Leases.
func (t turns) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return t.inTurn(ctx, func() (*coordinationv1.Lease, error) { return t.Leases.Update(ctx, lease, opts) })
}

func (t turns) inTurn(ctx context.Context, do func() (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
		return do()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

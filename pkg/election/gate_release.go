package election

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReleaseAt clears the holder if lease, as it was read, names Identity and nobody has written the
// Lease since. Its caller must know, from Leases that were read in the same list, that no member
// keeps the gate or runs anything: a member that begins to after that list writes the Lease first,
// and the error is ErrGateBusy then. After any other error it may be tried again; if it is not, the
// Lease expires.
func (g *Gate) ReleaseAt(ctx context.Context, lease *coordinationv1.Lease) error {
	g.mu.Lock()
	running := g.running
	g.mu.Unlock()
	if running {
		return fmt.Errorf("%w: it is kept by this process", ErrGateBusy)
	}
	return g.releaseAt(ctx, lease)
}

func (g *Gate) releaseAt(ctx context.Context, lease *coordinationv1.Lease) error {
	record := RecordFrom(lease)
	if record.Holder != g.cfg.Identity {
		return nil
	}
	cleared := released(lease, nil, stampAfter(record.RenewTime, g.cfg.Clock.Now()))
	written, err := g.cfg.Client.Update(ctx, cleared, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		return fmt.Errorf("%w: %w", ErrGateBusy, err)
	}
	if err != nil {
		return fmt.Errorf("release Lease %s: %w", g.cfg.Name, err)
	}
	g.cfg.Observer.Observe(written)
	return nil
}

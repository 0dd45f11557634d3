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
// keeps the leader lock or runs anything: a member that begins to after that list writes the Lease
// first, and the error is ErrLeaderLockBusy then. After any other error it may be tried again; if
// it is not, the Lease expires.
func (l *LeaderLock) ReleaseAt(ctx context.Context, lease *coordinationv1.Lease) error {
	l.mu.Lock()
	running := l.running
	l.mu.Unlock()
	if running {
		return fmt.Errorf("%w: it is kept by this process", ErrLeaderLockBusy)
	}
	return l.releaseAt(ctx, lease)
}

func (l *LeaderLock) releaseAt(ctx context.Context, lease *coordinationv1.Lease) error {
	record := RecordFrom(lease)
	if record.Holder != l.cfg.Identity {
		return nil
	}
	cleared := released(lease, nil, stampAfter(record.RenewTime, l.cfg.Clock.Now()))
	written, err := l.cfg.Client.Update(ctx, cleared, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		return fmt.Errorf("%w: %w", ErrLeaderLockBusy, err)
	}
	if err != nil {
		return fmt.Errorf("release Lease %s: %w", l.cfg.Name, err)
	}
	l.cfg.Observer.Observe(written)
	return nil
}

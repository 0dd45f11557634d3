package leaderlock

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
)

// Release reads the Lease and clears its holder if that is still Identity, so that a standby need
// not wait for it to expire. Only the last member of the fleet to leave may call it, after its work
// and Run have returned: other members would have lost their right without knowing until they see
// it. If the Lease is renewed meanwhile, Release leaves it alone and returns ErrBusy. After any
// other error it may be retried; otherwise the Lease expires.
func (l *Lock) Release(ctx context.Context) error {
	if err := l.stopped(); err != nil {
		return err
	}
	lease, err := l.cfg.Client.Get(ctx, l.cfg.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read Lease %s to release it: %w", l.cfg.Name, err)
	}
	l.cfg.Observer.Observe(lease)
	return l.ReleaseAt(ctx, lease)
}

// ReleaseAt clears the holder if lease, as it was read, names Identity and nobody has written the
// Lease since. Its caller must know, from Leases read in the same list, that no member keeps the
// leader lock or runs anything. A member that begins to after that list writes the Lease first, and
// then the error is ErrBusy. After any other error it may be retried; otherwise the Lease expires.
func (l *Lock) ReleaseAt(ctx context.Context, lease *coordinationv1.Lease) error {
	if err := l.stopped(); err != nil {
		return err
	}
	record := leaserecord.From(lease)
	if record.Holder != l.cfg.Identity {
		return nil
	}
	cleared := leaserecord.WithoutHolder(lease, nil, stampAfter(record.RenewTime, l.cfg.Clock.Now()))
	written, err := l.cfg.Client.Update(ctx, cleared, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	if err != nil {
		return fmt.Errorf("release Lease %s: %w", l.cfg.Name, err)
	}
	l.cfg.Observer.Observe(written)
	return nil
}

// stopped returns an error while Run has not returned.
func (l *Lock) stopped() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running {
		return fmt.Errorf("%w: it is kept by this process", ErrBusy)
	}
	return nil
}

package leaderlock

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
)

// Release clears the holder if lease, as it was read, names Identity and nobody has written the
// Lease since, so that a standby need not wait for it to expire. Its caller must know, from Leases
// read in the same list, that no member keeps the leader lock or runs anything: others would have
// lost their right without knowing until they see it. If a member renews it after that list, or Run
// has not returned, the error is ErrBusy. After any other error Release may be called again;
// otherwise the Lease expires.
func (l *Lock) Release(ctx context.Context, lease *coordinationv1.Lease) error {
	if err := l.stopped(); err != nil {
		return err
	}
	if leaserecord.From(lease).Holder != l.cfg.Identity {
		return nil
	}
	cleared := leaserecord.WithoutHolder(lease, nil, stampAfter(leaserecord.From(lease).RenewTime, l.cfg.Clock.Now()))
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

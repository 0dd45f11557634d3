package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// waitForLeases waits until all Leases have been listed, and says what for.
func (m *Member) waitForLeases(ctx context.Context) bool {
	logger := klog.FromContext(ctx)
	last := ""
	err := wait.PollUntilContextCancel(ctx, m.config.Timing.RetryPeriod, true, func(ctx context.Context) (bool, error) {
		if m.observer.HasSynced() {
			m.failure.Store(nil)
			return true, nil
		}
		// The observer retries by itself and logs little: ask once, to say why.
		_, err := m.list(ctx, metav1.ListOptions{Limit: 1})
		if err != nil && err.Error() != last {
			last = err.Error()
			m.failure.Store(&err)
			logger.Error(err, "Waiting to list and watch Leases: without them nothing is claimed", "member", m.config.Member)
		}
		return false, nil
	})
	return err == nil
}

// checkLayout reads the Leases once more, now that this member has announced its
// plan, and returns a *LayoutError when a live one follows another plan. Leases of a
// dead fleet with another plan are waited for.
func (m *Member) checkLayout(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	list, err := m.list(ctx, metav1.ListOptions{})
	for ; err != nil; list, err = m.list(ctx, metav1.ListOptions{}) {
		logger.Error(err, "Could not read the Leases before claiming, trying again")
		select {
		case <-ctx.Done():
			return nil
		case <-m.membership.Lost():
			return nil
		case <-m.config.Clock.NewTimer(m.config.Timing.RetryPeriod).C():
		}
	}
	m.observeAll(list)
	first := map[string]time.Time{}
	for _, o := range m.observer.List() {
		first[o.Name] = o.Seen
	}
	changed, stop := m.observer.Subscribe(func(string) bool { return true })
	defer stop()
	for {
		foreign := foreignLease(m.config.Fleet, m.config.Plan, m.incarnation, m.observer.List(), m.config.Timing, m.config.Clock.Now())
		if foreign == nil {
			return nil
		}
		o := m.observer.Get(foreign.Lease)
		if seen, known := first[o.Name]; !known || o.Seen.After(seen) {
			return foreign // it has been renewed while we looked: it is alive
		}
		logger.Info("Waiting for a Lease of another plan to expire or to be renewed", "lease", foreign.Lease, "holder", foreign.Holder)
		timer := m.config.Clock.NewTimer(o.ExpiresAt(m.config.Timing.LeaseDuration).Sub(m.config.Clock.Now()) + time.Millisecond)
		select {
		case <-changed:
		case <-timer.C():
		case <-m.membership.Lost():
			return nil
		case <-ctx.Done():
			return nil
		}
		timer.Stop()
	}
}

// list reads the Leases. An answer that was lost must not be waited for as long as the claim
// lives: it is renewed meanwhile, so that would be for ever.
func (m *Member) list(ctx context.Context, options metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	ctx, cancel := context.WithTimeout(ctx, m.config.Timing.RenewDeadline/2)
	defer cancel()
	return m.config.Leases.List(ctx, options)
}

// observeAll takes in the fleet's Leases of a list, and returns what is known of each now.
func (m *Member) observeAll(list *coordinationv1.LeaseList) []election.Observation {
	var seen []election.Observation
	for i := range list.Items {
		if name := list.Items[i].Name; m.observer.Watches(name) {
			m.observer.Observe(&list.Items[i])
			seen = append(seen, m.observer.Get(name))
		}
	}
	return seen
}

// look reads the Leases as they are now, before a claim is used, and returns an error when
// a live one of a shard is by another plan: then two might run the same controllers on the same
// objects. The claim is on its Lease already, so of two that look at least one sees the
// other. It tries until it has read them, or ctx ends.
func (m *Member) look(ctx context.Context, id shard.ID) error {
	backoff := m.retrySoon()
	for {
		list, err := m.list(ctx, metav1.ListOptions{})
		if err == nil {
			return m.lookAt(list, id)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		pause := backoff.Step()
		klog.FromContext(ctx).Error(err, "Could not read the Leases before running the shard, trying again", "after", pause)
		m.pause(ctx, pause)
	}
}

func (m *Member) lookAt(list *coordinationv1.LeaseList, id shard.ID) error {
	// A member of another plan that holds nothing is in nobody's way: it is about to find out.
	seen := slices.DeleteFunc(m.observeAll(list), func(o election.Observation) bool {
		return strings.HasPrefix(o.Name, election.MemberLease(m.config.Fleet, ""))
	})
	now := m.config.Clock.Now()
	if foreign := foreignLease(m.config.Fleet, m.config.Plan, m.incarnation, seen, m.config.Timing, now); foreign != nil {
		return foreign
	}
	if lease := m.observer.Get(ShardLease(m.config.Fleet, id)); lease.Holder != m.incarnation {
		return fmt.Errorf("the Lease %s names %q", lease.Name, lease.Holder)
	}
	return nil
}

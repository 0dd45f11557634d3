package fleet

import (
	"context"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
)

// EventRetired reports that the planner has emptied the Lease of a shard that the plan does not
// have, or failed to because of Err.
const EventRetired election.EventType = "retired"

// retireAfter is how long such a Lease must stand still before it is emptied. It is longer than an
// API server's default request timeout, so no request that was sent under the Lease is still under
// way.
const retireAfter = 2 * time.Minute

// retire empties the Leases of shards that are in no plan. Each change of plan leaves some, of
// several kilobytes each, and every member would keep and read them forever. It writes one at a
// time, and reports whether it wrote one.
func (p *planner) retire(ctx context.Context, now time.Time) bool {
	m := p.member
	for _, o := range m.retirable(now) {
		began := m.config.Clock.Now()
		err := p.retireOne(ctx, o)
		m.config.Observe(Event{Event: election.Event{
			Type: EventRetired, Name: o.Name, Duration: m.config.Clock.Now().Sub(began), Err: err,
		}})
		switch {
		case err == nil:
			klog.FromContext(ctx).V(1).Info("Retired the Lease of a shard that the plan has not any more", "lease", o.Name)
			return true
		case !apierrors.IsConflict(err):
			klog.FromContext(ctx).V(1).Info("Could not retire a Lease, trying again", "lease", o.Name, "err", err)
			return false
		}
	}
	return false
}

// retirable returns the Leases of shards that are not in the plan, that nobody holds, and that no
// shard waits for. It returns none while any shard is not where it should be.
func (m *Member) retirable(now time.Time) []election.Observation {
	plan := m.inForce.Load()
	var old []election.Observation
	for _, o := range m.observer.List() {
		_, named := plan.shardOf(m.config.Fleet, o.Name)
		still := now.Sub(o.Seen) >= retireAfter && now.Sub(o.LastSign()) >= retireAfter
		if m.isShard(o) && !named && !m.isHeld(o, now) && still {
			old = append(old, o)
		}
	}
	if len(old) == 0 {
		return nil
	}
	for _, ring := range plan.plan.Rings {
		if !m.settled(ring, now) {
			return nil
		}
	}
	return old
}

// retireOne empties one Lease, as it was observed.
func (p *planner) retireOne(ctx context.Context, o election.Observation) error {
	m := p.member
	ctx, cancel := context.WithTimeout(ctx, m.config.Timing.RenewDeadline/2)
	defer cancel()
	generation := strconv.FormatInt(m.inForce.Load().plan.Generation, 10)
	written, err := m.config.Leases.Update(ctx, leaserecord.Retired(o.Lease, generation, true), metav1.UpdateOptions{})
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		// With OwnerReferencesPermissionEnforcement, only those who may delete a Lease may give it
		// an owner. Leave it emptied.
		written, err = m.config.Leases.Update(ctx, leaserecord.Retired(o.Lease, generation, false), metav1.UpdateOptions{})
	}
	if err == nil {
		m.observer.Observe(written)
	}
	return err
}

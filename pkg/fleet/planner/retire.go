package planner

import (
	"context"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/request"
)

// retireAfter is how long such a Lease must stand still before it is emptied. It is longer than an
// API server's default request timeout, so no request that was sent under the Lease is still under
// way.
const retireAfter = 2 * time.Minute

// retire empties the Leases of shards that are in no plan. Each change of plan leaves some, of
// several kilobytes each, and every member would keep and read them forever. It writes one at a
// time, and reports whether it wrote one.
func (p *Planner) retire(ctx context.Context, l look) bool {
	for _, o := range l.retirable() {
		began := p.config.Clock.Now()
		err := p.retireOne(ctx, l.InForce.Generation, o)
		p.config.Observe(election.Event{Type: EventRetired, Name: o.Name, Duration: p.config.Clock.Now().Sub(began), Err: err})
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
func (l look) retirable() []election.Observation {
	var old []election.Observation
	for _, o := range l.Leases() {
		_, named := l.InForce.ShardOf(l.Fleet(), o.Name)
		still := l.Now().Sub(o.Seen) >= retireAfter && l.Now().Sub(o.LastSign()) >= retireAfter
		if l.IsShard(o) && !named && !l.IsHeld(o) && still {
			old = append(old, o)
		}
	}
	if len(old) == 0 {
		return nil
	}
	for _, ring := range l.InForce.Rings {
		if !l.settled(ring) {
			return nil
		}
	}
	return old
}

// retireOne empties one Lease, as it was observed. inForce is the generation of the plan in force.
func (p *Planner) retireOne(ctx context.Context, inForce int64, o election.Observation) error {
	ctx, cancel := context.WithTimeout(ctx, p.config.Timing.RequestTimeout())
	defer cancel()
	generation := strconv.FormatInt(inForce, 10)
	written, err := p.config.Leases.Update(ctx, leaserecord.Retired(o.Lease, generation, true), metav1.UpdateOptions{})
	if request.IsRefused(err) {
		// With OwnerReferencesPermissionEnforcement, only those who may delete a Lease may give it
		// an owner. Leave it emptied.
		written, err = p.config.Leases.Update(ctx, leaserecord.Retired(o.Lease, generation, false), metav1.UpdateOptions{})
	}
	if err == nil {
		p.config.Observer.Observe(written)
	}
	return err
}

package planner

import (
	"context"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/request"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

const (
	// retireAfter is how long a Lease must stand still before it is emptied. It is longer than an API
	// server's default request timeout, so no request that was sent under the Lease is still under
	// way.
	retireAfter = 2 * time.Minute
	// memberRetiredAfter is how long a member must have been silent before its Lease is emptied. Its
	// marks are of no use after two hours. Until a day has passed, people may want to see when it was
	// there last.
	memberRetiredAfter = 24 * time.Hour
)

// retire empties the Leases of shards that are in no plan, and of members that are gone for good.
// Each change of plan leaves some of the first, of several kilobytes each, and each pod of a name
// that does not come back one of the second. Every member would keep and read them forever. It
// writes one at a time, and reports whether it wrote one.
func (p *Planner) retire(ctx context.Context, l look) bool {
	for _, o := range l.retirable() {
		began := p.config.Clock.Now()
		err := p.retireOne(ctx, l.InForce.Generation, o)
		p.config.Observe(election.Event{Type: EventRetired, Name: o.Name, Duration: p.config.Clock.Now().Sub(began), Err: err})
		switch {
		case err == nil:
			klog.FromContext(ctx).V(1).Info("Retired the Lease of a shard that is in no plan, or of a member that is gone", "lease", o.Name)
			return true
		case !apierrors.IsConflict(err):
			klog.FromContext(ctx).V(1).Info("Could not retire a Lease, trying again", "lease", o.Name, "err", err)
			return false
		}
	}
	return false
}

// retirable returns the Leases that nobody needs. It returns none while any shard is not where it
// should be.
func (l look) retirable() []election.Observation {
	old := append(l.ofNoPlan(), l.ofNobody()...)
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

// isStill reports whether this process has not seen the Lease change for a while.
func (l look) isStill(o election.Observation) bool {
	return l.Now().Sub(o.Seen) >= retireAfter && l.Now().Sub(o.LastSign()) >= retireAfter
}

// ofNoPlan returns the Leases of shards that are not in the plan, that nobody holds, and that no
// shard waits for.
func (l look) ofNoPlan() []election.Observation {
	var old []election.Observation
	for _, o := range l.Leases() {
		_, named := l.InForce.ShardOf(l.Fleet(), o.Name)
		if l.IsShard(o) && !named && !l.IsHeld(o) && l.isStill(o) {
			old = append(old, o)
		}
	}
	return old
}

// ofNobody returns the Leases of members that are gone for good. Not among them are drained
// members, which stay drained however long they are away, and members that another Lease names:
// somebody may still ask whether they have ended.
func (l look) ofNobody() []election.Observation {
	var old []election.Observation
	for _, p := range leaseapi.PresencesOf(l.Fleet(), l.Leases()) {
		named := func(o election.Observation) bool {
			return o.Name != p.Name && leaserecord.MemberOf(o.Holder) == p.Member
		}
		drained := p.Annotations[leaseapi.DrainAnnotation] != ""
		if p.Silence >= memberRetiredAfter && l.isStill(p.Observation) && !drained && !slices.ContainsFunc(l.Leases(), named) {
			old = append(old, p.Observation)
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

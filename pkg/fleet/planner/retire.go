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
	// retireAfter is how long a Lease must stand still before it is emptied. It is longer than an
	// API server's default request timeout, so no request that was sent under the Lease is still
	// under way. It is also the pause before a Lease that could not be emptied is tried again.
	retireAfter = 2 * time.Minute
	// memberRetiredAfter is how long a member must have been silent, by the API servers' clocks,
	// before its Lease is emptied: a day, because people may want to see when it was there last.
	memberRetiredAfter = 24 * time.Hour
	// memberStillFor is how long this process must have seen that. Marks matter for two hours, and
	// must not depend on an API server whose clock is wrong.
	memberStillFor = 2 * time.Hour
)

// retire empties one Lease that nobody needs any more: of a shard that is in no plan, or of a
// member that is gone for good. Each change of plan leaves some of the first, of several kilobytes
// each, and each pod whose name does not come back one of the second. Every member would keep and
// read them forever.
func (p *Planner) retire(ctx context.Context, l look) {
	for _, o := range l.retirable() {
		if at, tried := p.tried[o.Name]; tried && l.Now().Sub(at) < retireAfter {
			continue // refused, or something in the API server has undone it
		}
		began := p.config.Clock.Now()
		err := p.retireOne(ctx, l.InForce.Generation, o)
		p.config.Observe(election.Event{Type: EventRetired, Name: o.Name, Duration: p.config.Clock.Now().Sub(began), Err: err})
		if err != nil {
			klog.FromContext(ctx).V(1).Info("Could not retire a Lease, trying again", "lease", o.Name, "err", err)
		} else {
			klog.FromContext(ctx).V(1).Info("Retired the Lease of a shard that is in no plan, or of a member that is gone", "lease", o.Name)
		}
		if !apierrors.IsConflict(err) {
			p.tried[o.Name] = began
		}
		return
	}
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

// isStill reports whether this process has not seen the Lease change for so long.
func (l look) isStill(o election.Observation, long time.Duration) bool {
	return l.Now().Sub(o.Seen) >= long && l.Now().Sub(o.LastSign()) >= long
}

// ofNoPlan returns the Leases of shards that are not in the plan, that nobody holds, and that no
// shard waits for.
func (l look) ofNoPlan() []election.Observation {
	var old []election.Observation
	for _, o := range l.Leases() {
		_, named := l.InForce.ShardOf(l.Fleet(), o.Name)
		if l.IsShard(o) && !named && !l.IsHeld(o) && l.isStill(o, retireAfter) {
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
		drained := p.Annotations[leaseapi.DrainAnnotation] != ""
		if p.Silence >= memberRetiredAfter && l.isStill(p.Observation, memberStillFor) && !drained && !p.OfOtherFleet(l.Fleet()) {
			old = append(old, p.Observation)
		}
	}
	if len(old) == 0 {
		return nil
	}
	named := map[string]bool{} // member's Leases, by name, of which another Lease names an incarnation
	for _, o := range l.Leases() {
		if of := leaserecord.MemberLease(l.Fleet(), leaserecord.MemberOf(o.Holder)); of != o.Name {
			named[of] = true
		}
	}
	return slices.DeleteFunc(old, func(o election.Observation) bool { return named[o.Name] })
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

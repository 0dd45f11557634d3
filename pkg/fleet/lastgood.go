package fleet

import (
	"context"
	"errors"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// keep records the plan in force on the plan's Lease as the last good one, for members that start
// after somebody has replaced the plan with a bad one.
func (p *planner) keep(ctx context.Context, lease election.Observation) {
	good := p.lastGood()
	if good == "" || lease.Annotations[leaseapi.LastGoodAnnotation] == good {
		return
	}
	next := lease.Lease.DeepCopy()
	next.Annotations = maps.Clone(next.Annotations)
	next.Annotations[leaseapi.LastGoodAnnotation] = good
	err := leaseapi.Fit(next.Annotations)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, p.member.config.Timing.RenewDeadline/2)
		defer cancel()
		next, err = p.member.config.Leases.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		p.failed(ctx, err)
		return
	}
	p.member.observer.Observe(next)
	klog.FromContext(ctx).Info("Wrote down the plan in force as the last good one", "generation", p.member.inForce.Load().plan.Generation)
}

// lastGood returns the plan in force as the Lease keeps it, or the empty string if it cannot be
// packed.
func (p *planner) lastGood() string {
	if plan := p.member.inForce.Load(); p.packedOf != plan {
		var err error
		if p.packed, err = plan.plan.Packed(); err != nil {
			p.packed = "" // such a plan never comes into force
		}
		p.packedOf = plan
	}
	return p.packed
}

// errPutBack is the Err of the event for a restored plan.
var errPutBack = errors.New("what was there could not be used and is in annotation " + leaseapi.RejectedAnnotation)

package planner

import (
	"context"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/inforce"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// keep records the plan in force on the plan's Lease as the last good one, for members that start
// after somebody has replaced the plan with a bad one.
func (p *Planner) keep(ctx context.Context, inForce *inforce.Plan, lease election.Observation) {
	good := p.lastGood(inForce)
	if good == "" || lease.Annotations[leaseapi.LastGoodAnnotation] == good {
		return
	}
	next := lease.Lease.DeepCopy()
	next.Annotations = maps.Clone(next.Annotations)
	next.Annotations[leaseapi.LastGoodAnnotation] = good
	err := leaseapi.Fit(next.Annotations)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, p.config.Timing.RequestTimeout())
		defer cancel()
		next, err = p.config.Leases.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		p.failed(ctx, err)
		return
	}
	p.config.Observer.Observe(next)
	klog.FromContext(ctx).Info("Wrote down the plan in force as the last good one", "generation", inForce.Generation)
}

// lastGood returns the plan in force as the Lease keeps it, or the empty string if it cannot be
// packed.
func (p *Planner) lastGood(inForce *inforce.Plan) string {
	if p.packedOf != inForce {
		var err error
		if p.packed, err = inForce.Packed(); err != nil {
			p.packed = "" // such a plan never comes into force
		}
		p.packedOf = inForce
	}
	return p.packed
}

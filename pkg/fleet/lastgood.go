package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const (
	// maxAnnotations is what the API server allows for all annotations of an object: names and
	// values, in bytes.
	maxAnnotations = 256 << 10
	// spareAnnotations are left to what others write on the plan's Lease, requests for it among
	// them.
	spareAnnotations = 8 << 10
	// maxDocument is how long the plan may be for people to read. A longer one is packed.
	maxDocument = 128 << 10
	// lastApplied is what 'kubectl apply' keeps: all that somebody applied once, so for a plan's
	// Lease as much again.
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
)

// errNoLastGood says that the plan's Lease does not keep the last good plan.
var errNoLastGood = fmt.Errorf("annotation %s is missing", LastGoodAnnotation)

// LastGoodOf reads the last good plan from the plan's Lease: the one that the planner has worked
// by, whatever is in its place on the Lease now. The error says why there is none.
func LastGoodOf(lease *coordinationv1.Lease) (shard.Plan, error) {
	if lease == nil || lease.Annotations[LastGoodAnnotation] == "" {
		return shard.Plan{}, errNoLastGood
	}
	plan, err := shard.ParsePlan([]byte(lease.Annotations[LastGoodAnnotation]))
	if err != nil {
		return shard.Plan{}, fmt.Errorf("annotation %s: %w", LastGoodAnnotation, err)
	}
	return plan, nil
}

// documentOf returns the plan as it is written on its Lease: for people to read, unless that is too
// long.
func documentOf(plan shard.Plan) (string, error) {
	document, err := plan.Document()
	if err != nil || len(document) <= shard.MaxPacked {
		return document, err
	}
	packed, err := plan.Packed()
	if err != nil || len(document) <= maxDocument {
		return document, err
	}
	return packed, nil
}

// fit makes the annotations of the plan's Lease small enough for the API server, by what can best
// be spared.
func fit(annotations map[string]string) error {
	for _, spare := range []func(over int){
		func(int) { delete(annotations, lastApplied) },
		func(over int) {
			text := annotations[RejectedAnnotation]
			if text = short(text, max(0, len(text)-over-len(cut))); text == cut {
				delete(annotations, RejectedAnnotation)
			} else if text != "" {
				annotations[RejectedAnnotation] = text
			}
		},
		func(int) {
			if plan, err := shard.ParsePlan([]byte(annotations[DocumentAnnotation])); err == nil {
				if packed, err := plan.Packed(); err == nil {
					annotations[DocumentAnnotation] = packed
				}
			}
		},
		func(int) {},
	} {
		over := spareAnnotations - maxAnnotations
		for name, value := range annotations {
			over += len(name) + len(value)
		}
		if over <= 0 {
			return nil
		}
		spare(over)
	}
	return fmt.Errorf("the plan's Lease would have more than %d bytes of annotations: remove what is not the fleet's", maxAnnotations-spareAnnotations)
}

// keep has the plan's Lease keep the plan in force as the last good one, for members that start
// after somebody has written another in its place.
func (p *planner) keep(ctx context.Context, lease election.Observation) {
	good := p.lastGood()
	if good == "" || lease.Annotations[LastGoodAnnotation] == good {
		return
	}
	next := lease.Lease.DeepCopy()
	next.Annotations = maps.Clone(next.Annotations)
	next.Annotations[LastGoodAnnotation] = good
	err := fit(next.Annotations)
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

// lastGood returns the plan in force as the Lease keeps it. It is empty if that cannot be.
func (p *planner) lastGood() string {
	if plan := p.member.inForce.Load(); p.packedOf != plan {
		var err error
		if p.packed, err = plan.plan.Packed(); err != nil {
			p.packed = "" // none such comes into force
		}
		p.packedOf = plan
	}
	return p.packed
}

// errPutBack is what the event says of a plan that was put back.
var errPutBack = errors.New("what was there could not be used and is in annotation " + RejectedAnnotation)

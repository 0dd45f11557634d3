package leaseapi

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// PlanLease returns the name of the Lease that has the fleet's plan: "<fleet>-plan".
func PlanLease(fleet string) string { return fleet + "-plan" }

// ErrNoPlan is the error if nobody has written a plan yet.
var ErrNoPlan = errors.New("there is no plan")

// PlanOn reads the plan from its Lease. The error is ErrNoPlan if there is none; any other error
// names the fault.
func PlanOn(lease *coordinationv1.Lease) (shard.Plan, error) {
	if lease == nil || lease.Annotations[DocumentAnnotation] == "" {
		return shard.Plan{}, ErrNoPlan
	}
	plan, err := shard.ParsePlan([]byte(lease.Annotations[DocumentAnnotation]))
	if err == nil && len(lease.Annotations[DocumentAnnotation]) > shard.MaxPacked {
		_, err = plan.Packed() // the Lease must have room for it a second time
	}
	if err != nil {
		return shard.Plan{}, fmt.Errorf("annotation %s of Lease %s: %w", DocumentAnnotation, lease.Name, err)
	}
	return plan, nil
}

// WithPlan returns a copy of the plan's Lease, or a new Lease if it is nil, with the plan. The API
// server refuses an update with it if somebody else has written meanwhile. If the Lease does not
// keep a last good plan, this plan becomes the last good one on the writer's word: the plan on the
// Lease may be one that all members refuse.
func WithPlan(fleet string, lease *coordinationv1.Lease, plan shard.Plan) (*coordinationv1.Lease, error) {
	if err := plan.Validate(); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	document, err := documentOf(plan)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	out := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: PlanLease(fleet)}}
	if lease != nil {
		out = lease.DeepCopy()
	}
	out.Labels, out.Annotations = maps.Clone(out.Labels), maps.Clone(out.Annotations)
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	if _, err := LastGoodOn(out); err != nil {
		if out.Annotations[LastGoodAnnotation], err = plan.Packed(); err != nil {
			return nil, fmt.Errorf("plan: %w", err)
		}
	}
	out.Labels[FleetLabel], out.Labels[KindLabel] = fleet, KindPlan
	out.Annotations[DocumentAnnotation] = document
	out.Annotations[GenerationAnnotation] = strconv.FormatInt(plan.Generation, 10)
	return out, Fit(out.Annotations)
}

const (
	// maxAnnotations is the API server's limit for all annotations of an object: names and values,
	// in bytes.
	maxAnnotations = 256 << 10
	// spareAnnotations are left for what others write on the plan's Lease, such as requests for it.
	spareAnnotations = 8 << 10
	// maxDocument is the maximum length of a readable plan. A longer one is packed.
	maxDocument = 128 << 10
	// lastApplied is where 'kubectl apply' keeps everything that was last applied: for a plan's
	// Lease, the same amount again.
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
)

var errNoLastGood = fmt.Errorf("annotation %s is missing", LastGoodAnnotation)

// LastGoodOn reads the last good plan from the plan's Lease: the one by which the planner has
// worked, whatever the Lease has in the plan's place. The error says why there is none.
func LastGoodOn(lease *coordinationv1.Lease) (shard.Plan, error) {
	if lease == nil || lease.Annotations[LastGoodAnnotation] == "" {
		return shard.Plan{}, errNoLastGood
	}
	plan, err := shard.ParsePlan([]byte(lease.Annotations[LastGoodAnnotation]))
	if err != nil {
		return shard.Plan{}, fmt.Errorf("annotation %s: %w", LastGoodAnnotation, err)
	}
	return plan, nil
}

// documentOf returns the plan as written on its Lease: readable, unless that is too long.
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

// Fit makes the annotations of the plan's Lease small enough for the API server, by dropping what
// matters least.
func Fit(annotations map[string]string) error {
	for _, spare := range []func(over int){
		func(int) { delete(annotations, lastApplied) },
		func(over int) {
			text := annotations[RejectedAnnotation]
			if text = Shorten(text, max(0, len(text)-over-len(cut))); text == cut {
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
	return fmt.Errorf("the plan's Lease would have more than %d bytes of annotations: remove what is not the fleet's",
		maxAnnotations-spareAnnotations)
}

// MaxText is how many bytes of a text members publish at most: an error about a plan may be long.
const MaxText = 1000

// Shorten returns a text cut to n bytes, followed by dots if it was longer.
func Shorten(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + cut
}

// cut ends a text that was too long.
const cut = "..."

// PlanSaid is the plan that a member, or a shard's holder, says it works by.
type PlanSaid struct {
	Generation int64
	Digest     string
}

// PlanSaidOn reads the annotations of a Lease. The result is not known if they say nothing or are
// invalid.
func PlanSaidOn(annotations map[string]string) PlanSaid {
	generation, err := strconv.ParseInt(annotations[GenerationAnnotation], 10, 64)
	if err != nil || generation < 1 || generation > shard.MaxGeneration || annotations[PlanAnnotation] == "" {
		return PlanSaid{}
	}
	return PlanSaid{generation, annotations[PlanAnnotation]}
}

// Known reports whether anything was said.
func (s PlanSaid) Known() bool { return s.Generation > 0 }

// RefusesPlan reports whether a member claims nothing under the plan of this generation: because it
// refuses that plan, or refuses another and works by none, or by one that is older than both.
func RefusesPlan(m membership.Member, generation int64) bool {
	number, _, refuses := strings.Cut(m.Annotations[RefusedAnnotation], ":")
	works := m.Annotations[GenerationAnnotation]
	switch {
	case !refuses:
		return false
	case works == "":
		return true // A member that has just started says neither.
	case works == strconv.FormatInt(generation, 10):
		return false // It may refuse something else under that number.
	}
	refused, err := strconv.ParseInt(number, 10, 64)
	older := PlanSaidOn(m.Annotations).Generation < generation
	return err == nil && (refused == generation || refused > generation && older)
}

// Refusers returns the incarnations of those members that refuse a plan of this generation.
func Refusers(members []membership.Member, generation int64) map[string]bool {
	refusers := map[string]bool{}
	for _, m := range members {
		if RefusesPlan(m, generation) {
			refusers[m.Incarnation] = true
		}
	}
	return refusers
}

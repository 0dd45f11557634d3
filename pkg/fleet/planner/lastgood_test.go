package planner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/fleet/inforce"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// largestPlan returns a plan with the maximum number of ranges, and names of maximum length.
func largestPlan(t *testing.T) shard.Plan {
	t.Helper()
	plan := testPlan(t, shard.MaxShards-2)
	ring := &plan.Rings[0]
	ring.Name = strings.Repeat("r", 63)
	for i := range ring.Shards {
		s := &ring.Shards[i]
		s.Ring, s.Name = ring.Name, fmt.Sprintf("%063d", i)
		s.Home, s.Weight = fmt.Sprintf("%0253x", rand.Uint64N(1<<32)), math.MaxInt64-rand.Int64N(1<<32)
	}
	if err := plan.Validate(); err != nil {
		t.Fatal(err)
	}
	return plan
}

// plannerOf returns a planner that runs nothing, what its member knows of the Lease, and its
// client.
func plannerOf(t *testing.T, lease *coordinationv1.Lease) (*Planner, election.Observation, *leasetest.Client) {
	t.Helper()
	store := leasetest.NewStore()
	store.Put(lease)
	client, clock := store.Client("a"), election.NewClock()
	observer, err := election.NewObserver(election.ObserverConfig{Fleet: "flotilla", Client: client, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	observer.Observe(store.Get(lease.Name))
	return &Planner{config: Config{
		Fleet: "flotilla", Leases: client, Observer: observer, Clock: clock, Timing: election.DefaultTiming(),
		Stop: func() string { return "" }, Observe: func(election.Event) {},
	}}, observer.Get(lease.Name), client
}

// TestLargestPlanFitsItsLease spoils the largest plan in several ways. The planner must be able to
// restore and keep it.
func TestLargestPlanFitsItsLease(t *testing.T) {
	plan := largestPlan(t)
	junk := strings.Repeat("junk ", maxRejected)
	for name, spoil := range map[string]func(*coordinationv1.Lease){
		"junk": func(l *coordinationv1.Lease) { l.Annotations[leaseapi.DocumentAnnotation] = junk[:100<<10] },
		"nothing else": func(l *coordinationv1.Lease) {
			l.Annotations = map[string]string{leaseapi.DocumentAnnotation: junk[:250<<10]}
		},
		"kubectl's copy": func(l *coordinationv1.Lease) {
			l.Annotations = map[string]string{leaseapi.DocumentAnnotation: "{", "kubectl.kubernetes.io/last-applied-configuration": junk[:255<<10]}
		},
	} {
		t.Run(name, func(t *testing.T) {
			lease, err := leaseapi.WithPlan("flotilla", nil, plan)
			if err != nil {
				t.Fatal(err)
			}
			spoil(lease)
			p, there, client := plannerOf(t, lease)
			if !p.putBack(t.Context(), inforce.New(plan), there, 0) {
				t.Fatal("the plan was not restored")
			}
			written, err := client.Get(t.Context(), lease.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			restored, err := leaseapi.PlanOn(written)
			if err != nil || restored.Digest() != plan.Digest() || restored.Generation != plan.Generation+1 {
				t.Errorf("generation %d, digest %s, %v; want the plan in force", restored.Generation, restored.Digest(), err)
			}
			if good, err := leaseapi.LastGoodOn(written); err != nil || good.Digest() != plan.Digest() {
				t.Errorf("kept as the last good plan: digest %s, %v; want that of the plan in force", good.Digest(), err)
			}
			if rejected := written.Annotations[leaseapi.RejectedAnnotation]; len(rejected) < 1 || len(rejected) > maxRejected+len("...") {
				t.Errorf("%d bytes of the rejected text are kept, want some and at most %d", len(rejected), maxRejected)
			}
		})
	}
}

// TestPlanThatDoesNotFitIsRefused uses a plan with incompressible names.
func TestPlanThatDoesNotFitIsRefused(t *testing.T) {
	plan := largestPlan(t)
	for i := range plan.Rings[0].Shards {
		home := &plan.Rings[0].Shards[i].Home
		for *home = ""; len(*home) < 250; {
			*home += fmt.Sprintf("%x", rand.Uint64())
		}
		*home = (*home)[:250]
	}
	if _, err := leaseapi.WithPlan("flotilla", nil, plan); err == nil || !strings.Contains(err.Error(), "shorten the names") {
		t.Errorf("the error is %v, want it to say what to do", err)
	}
}

// TestWordOfAnOperator writes a plan over one that all may refuse, on a Lease without a last good
// plan. The old plan must not become the last good one.
func TestWordOfAnOperator(t *testing.T) {
	lease := must(leaseapi.WithPlan("flotilla", nil, largestPlan(t)))
	delete(lease.Annotations, leaseapi.LastGoodAnnotation)
	plan := testPlan(t, 4)
	plan.Generation = 7
	if good, err := leaseapi.LastGoodOn(must(leaseapi.WithPlan("flotilla", lease, plan))); err != nil || good.Digest() != plan.Digest() || good.Generation != 7 {
		t.Errorf("kept as the last good plan: generation %d, digest %s, %v; want the operator's", good.Generation, good.Digest(), err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

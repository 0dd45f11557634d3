package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// replanInterval is how long the planner waits between changes caused by weights.
const replanInterval = 20 * time.Second

// judgePlansLocked checks that a plan that a member writes has a greater generation than the one it
// replaces. It also checks that the planner leaves time between its changes, unless an imbalance is
// too large to wait.
func (sim *simulation) judgePlansLocked(history []leasetest.Write) {
	var last leasetest.Write // by the planner
	var joined time.Time     // when a member last came or went
	for _, write := range history {
		if changesMembers(write) {
			joined = write.Time
		}
		if write.Client == "" || write.Before == nil || write.After == nil || write.After.Name != leaseapi.PlanLease(fleetName) ||
			write.Before.Annotations[leaseapi.DocumentAnnotation] == write.After.Annotations[leaseapi.DocumentAnnotation] {
			continue
		}
		before, err := leaseapi.PlanOn(write.Before)
		after, afterErr := leaseapi.PlanOn(write.After)
		if err != nil || afterErr != nil {
			continue
		}
		at := write.Time.Sub(sim.begin)
		if after.Generation <= before.Generation {
			sim.failLockedf(plans, "%s put plan generation %d at %.3f in the place of %d", write.Client, after.Generation, at.Seconds(), before.Generation)
		}
		if write.Before.Annotations[leaseapi.RejectedAnnotation] != write.After.Annotations[leaseapi.RejectedAnnotation] || before.Digest() == after.Digest() {
			continue // it replaces nonsense
		}
		if adapted(before, after) {
			sim.countLocked(versionChanges)
			continue
		}
		sim.countLocked(plannerChanges)
		since := sim.sentAt(write).Sub(sim.sentAt(last))
		same := last.After != nil && *last.After.Spec.HolderIdentity == *write.After.Spec.HolderIdentity && joined.Before(last.Time)
		if same && !sim.urgent() && float64(since)*sim.rateOf(write.Client) < float64(replanInterval) && sim.everybodyHasAHome(before, after) {
			sim.failLockedf(calm, "the planner %s made generation %d at %.3f, %v after its last change:\n%v\nbecame\n%v", write.Client, after.Generation,
				at.Seconds(), since, documentOf(before), documentOf(after))
		}
		last = write
	}
}

// changesMembers reports whether a write changes a member Lease's incarnation, or says that the
// member joins, stays, leaves or is drained. The planner does not wait its interval for these.
func changesMembers(write leasetest.Write) bool {
	if write.Before == nil || write.After == nil {
		either := cmp.Or(write.Before, write.After)
		return leaserecord.IsMemberLease(fleetName, either.Name)
	}
	return leaserecord.IsMemberLease(fleetName, write.After.Name) &&
		(ptr.Deref(write.Before.Spec.HolderIdentity, "") != ptr.Deref(write.After.Spec.HolderIdentity, "") ||
			write.Before.Annotations[leaserecord.StateAnnotation] != write.After.Annotations[leaserecord.StateAnnotation] ||
			write.Before.Annotations[leaseapi.DrainAnnotation] != write.After.Annotations[leaseapi.DrainAnnotation])
}

// notePlan records when a plan was sent, because the request may take long.
func (sim *simulation) notePlan(lease *coordinationv1.Lease) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	document := lease.Annotations[leaseapi.DocumentAnnotation]
	if _, sent := sim.sentPlans[document]; !sent {
		sim.sentPlans[document] = time.Now()
	}
}

func (sim *simulation) sentAt(write leasetest.Write) time.Time {
	if write.After == nil {
		return time.Time{}
	}
	return sim.sentPlans[write.After.Annotations[leaseapi.DocumentAnnotation]]
}

func (sim *simulation) rateOf(member string) float64 {
	i := slices.IndexFunc(sim.seats, func(s *seat) bool { return s.name == member })
	return sim.seats[i].rate
}

// everybodyHasAHome reports whether only the weights can have caused the changes between two plans,
// and no member has come or gone: every member so far serves all rings and is the home of a range
// in both plans.
func (sim *simulation) everybodyHasAHome(before, after shard.Plan) bool {
	for _, ring := range before.Rings {
		if ring.Scope != shard.ScopeNamespaced {
			continue
		}
		next, _ := after.Ring(ring.Name)
		homes := homesOf(ring)
		if len(homes) < len(sim.seats) || !slices.Equal(homes, homesOf(next)) {
			return false
		}
	}
	return !sim.rings
}

func documentOf(plan shard.Plan) string {
	document, err := plan.Document()
	return cmp.Or(document, fmt.Sprint(err))
}

func homesOf(ring shard.Ring) []string {
	homes := map[string]bool{}
	for _, s := range ring.Shards {
		homes[s.PreferredMember()] = true
	}
	delete(homes, "")
	return slices.Sorted(maps.Keys(homes))
}

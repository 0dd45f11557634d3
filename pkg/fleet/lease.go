package fleet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Labels and annotations of a fleet's Leases. See also those of package election.
const (
	// FleetLabel names the fleet, on every Lease of it.
	FleetLabel = "flotilla.dev/fleet"
	// RingLabel and ShardLabel name what a shard's Lease is for.
	RingLabel  = "flotilla.dev/ring"
	ShardLabel = "flotilla.dev/shard"
	// RangeAnnotation is the shard's part of the keyspace; it is missing where the
	// shard is a group of cluster-scoped controllers.
	RangeAnnotation = "flotilla.dev/range"
	// GenerationAnnotation is the plan generation that the holder works by.
	GenerationAnnotation = "flotilla.dev/plan-generation"
	// ShardsAnnotation is how many shards the shard's ring has.
	ShardsAnnotation = "flotilla.dev/ring-shards"
)

// ShardLease returns the name of a shard's Lease: "<fleet>-<ring>-<shard>".
func ShardLease(fleet string, id shard.ID) string {
	return fleet + "-" + id.Ring + "-" + id.Name
}

func shardLabels(fleet string, id shard.ID) map[string]string {
	return map[string]string{FleetLabel: fleet, RingLabel: id.Ring, ShardLabel: id.Name}
}

func shardAnnotations(plan shard.Plan, s shard.Shard) map[string]string {
	ring, _ := plan.Ring(s.Ring)
	annotations := map[string]string{
		election.PlanAnnotation: plan.Digest(),
		GenerationAnnotation:    strconv.FormatInt(plan.Generation, 10),
		ShardsAnnotation:        strconv.Itoa(len(ring.Shards)),
	}
	if s.Namespaced() {
		annotations[RangeAnnotation] = s.Range.String()
	}
	return annotations
}

// memory is how long a member that is away counts as one that will come back.
const memory = 15 * time.Minute

// knownMembers returns the members that there are or were until a while before the last
// sign of life of any. Only the writers' own stamps are compared, with each other, so that
// all members know the same ones; that their clocks differ costs a needless move at worst.
func knownMembers(fleet string, observations []election.Observation) []string {
	stamps := map[string]time.Time{}
	var last time.Time
	for _, o := range observations {
		name, ok := strings.CutPrefix(o.Name, election.MemberLease(fleet, ""))
		if !ok || !o.Exists {
			continue
		}
		stamps[name] = o.RenewTime
		if o.RenewTime.After(last) {
			last = o.RenewTime
		}
	}
	var known []string
	for name, stamp := range stamps {
		if last.Sub(stamp) <= memory {
			known = append(known, name)
		}
	}
	slices.Sort(known)
	return known
}

// LayoutError says that a live Lease belongs to another plan than the member's.
type LayoutError struct {
	// Lease is the name of the Lease, Holder who holds it.
	Lease, Holder string
	// Want describes the member's plan, Got that of the Lease.
	Want, Got string
}

// Error implements error.
func (e *LayoutError) Error() string {
	return fmt.Sprintf("this member's plan is %s, but the live Lease %s, held by %s, follows %s: "+
		"all members of a fleet must be started with the same --shards; to change it, stop all members first",
		e.Want, e.Lease, e.Holder, e.Got)
}

// foreignLease returns an error for a Lease of the fleet that is held, has not expired,
// and follows another plan; for one of a range if there is one, because that says how many
// ranges there are. Leases of this incarnation are passed over.
func foreignLease(fleet string, plan shard.Plan, self string, observations []election.Observation, timing election.Timing, now time.Time) *LayoutError {
	var found *LayoutError
	for _, o := range observations {
		theirs, marked := o.Annotations[election.PlanAnnotation]
		if o.Labels[FleetLabel] != fleet || !o.Exists || o.Holder == "" || o.Holder == self ||
			!marked || theirs == plan.Digest() || o.Expired(now, timing.LeaseDuration) {
			continue
		}
		got := "plan " + theirs
		if n, ok := o.Annotations[ShardsAnnotation]; ok {
			got = fmt.Sprintf("%s with %s shards in ring %s", theirs, n, o.Labels[RingLabel])
		}
		_, ranged := o.Annotations[RangeAnnotation]
		if found == nil || ranged {
			found = &LayoutError{Lease: o.Name, Holder: o.Holder, Want: describe(plan), Got: got}
		}
		if ranged {
			break
		}
	}
	return found
}

// describe says what of a plan an operator chose.
func describe(plan shard.Plan) string {
	for _, ring := range plan.Rings {
		if ring.Scope == shard.ScopeNamespaced {
			return fmt.Sprintf("%s with %d shards in ring %s", plan.Digest(), len(ring.Shards), ring.Name)
		}
	}
	return plan.Digest()
}

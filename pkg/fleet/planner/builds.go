package planner

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/fleet/inforce"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// leftFor is how long a member that has left in order counts as one that will come back with the
// same build: about as long as a restart takes. A member that has died counts for
// [leaseapi.MaxAway].
const leftFor = time.Minute

// away returns what the builds of those members know that are not live but may come back unchanged.
func (l look) away() inforce.Published {
	var p inforce.Published
	for _, o := range leaseapi.PresencesOf(l.Fleet(), l.Leases()) {
		within := leaseapi.MaxAway
		if o.Holder == "" && !o.IsStruck() {
			within = leftFor
		}
		if _, live := l.Roster().Get(o.Member); !live && o.Silence <= within {
			p.Add(o.Annotations)
		}
	}
	return p
}

// yields reports whether another member should plan: a live one of a newer build, which knows where
// more controllers belong, and which works by the same plan and so is able to. The build of a
// canary does not plan while others are live.
func (l look) yields() bool {
	mine := l.judge.Build().Version
	return slices.ContainsFunc(l.Roster().Members(), func(other membership.Member) bool {
		known, says := leaseapi.KnownOf(other)
		return says && other.State == membership.Active && other.Annotations[leaseapi.PlanAnnotation] == l.InForce.Digest() &&
			other.Annotations[leaseapi.RefusedAnnotation] == "" && precedes(l.InForce.Canary, known.Version, mine)
	})
}

// precedes reports whether a member of version a should plan rather than one of version b.
func precedes(canary *shard.Canary, a, b string) bool {
	if canary != nil && (a == canary.Version) != (b == canary.Version) {
		return b == canary.Version
	}
	return skew.Newer(a, b)
}

// adapt changes the plan for the builds of the members, if necessary, and reports whether it did.
// It waits until all is calm, unless some member cannot run controllers that it knows.
func (p *Planner) adapt(ctx context.Context, l look, lease election.Observation) bool {
	if l.judge.Catalogue() == "" || faults.AdaptNever {
		return false
	}
	live, away := l.judge.Others(l.Roster()), l.away()
	if live.Silent || away.Silent || l.yields() {
		return false // nobody knows what an earlier build has
	}
	if l.Roster().IsNew(leaserecord.MemberOf(p.config.Incarnation)) {
		return false // it has not computed yet where shards belong
	}
	homes := l.InForce.Plan
	for _, ring := range homes.Rings {
		if ring.Scope == shard.ScopeNamespaced {
			homes = assignment.KeepHomes(homes, ring.Name, l.Assignment.Home)
		}
	}
	next, changes, err := l.judge.Build().Adapt(homes, live.Known, away.Known)
	if err == nil && len(changes) > 0 {
		err = l.judge.Admit(l.InForce, next, next.Digest(), l.Roster())
	}
	if err != nil {
		if text := err.Error(); text != p.unadapted {
			p.unadapted = text
			klog.FromContext(ctx).Error(err, "Could not adapt the plan to the members' builds")
		}
		return false
	}
	p.unadapted = ""
	urgent := slices.ContainsFunc(changes, func(c skew.Change) bool { return c.Urgent })
	if len(changes) == 0 || l.starting() || !urgent && !l.calm() {
		return false
	}
	if p.write(ctx, lease, next) != nil {
		return false
	}
	var texts []string
	for _, c := range changes {
		texts = append(texts, c.String())
	}
	said := leaseapi.Shorten(strings.Join(texts, ", "), leaseapi.MaxText)
	p.report(EventAdapted, errors.New(said))
	klog.FromContext(ctx).Info("Adapted the plan to the builds of the members", "generation", next.Generation, "changes", said)
	return true
}

// starting reports whether a shard is held and does not run yet. If a new plan lacks it, its holder
// gives it up at once, but its successors take longer: a member that has just started waits for a
// lease duration before it creates a Lease.
func (l look) starting() bool {
	return slices.ContainsFunc(l.InForce.Shards(), func(s shard.Shard) bool {
		lease := l.Shard(s.ID)
		return l.IsHeld(lease) && !leaseapi.SaysRunning(lease)
	})
}

// calm reports whether every shard is where it should be, and no member is about to get its share.
func (l look) calm() bool {
	joining := func(m membership.Member) bool { return m.State == membership.Joining }
	unsettled := func(ring shard.Ring) bool { return !l.settled(ring) }
	return !slices.ContainsFunc(l.Roster().Members(), joining) && !slices.ContainsFunc(l.InForce.Rings, unsettled)
}

package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// leftFor is how long a member that has left in order counts as one that will come back with the
// same build: about as long as a restart takes. A member that has died counts for
// [leaseapi.MaxAway].
const leftFor = time.Minute

// scopeOf returns the scope of the shard's ring.
func scopeOf(s shard.Shard) shard.Scope {
	if s.Namespaced() {
		return shard.ScopeNamespaced
	}
	return shard.ScopeCluster
}

// fits returns why this member cannot work by a plan that follows current. current is nil if no
// good plan is known.
func (m *Member) fits(current *inForce, next shard.Plan, roster membership.Roster) error {
	if err := m.config.Check(next); err != nil {
		return err
	}
	if m.catalogue == "" {
		return nil
	}
	var before *shard.Plan
	if current != nil {
		before = &current.plan
	}
	return m.config.Catalogue.Fits(before, next, m.othersOf(roster).known)
}

// published gathers what members publish about their builds, each text once: most members publish
// the same.
type published struct {
	texts []string
	known []skew.Known
	// silent is set if some publish nothing, or publish something unreadable.
	silent bool
}

func (p *published) add(annotations map[string]string) {
	text := annotations[leaseapi.CatalogueAnnotation]
	if slices.Contains(p.texts, text) {
		return
	}
	p.texts = append(p.texts, text)
	known, says := leaseapi.KnownOf(membership.Member{Annotations: annotations})
	if !says {
		p.silent = true
		return
	}
	p.known = append(p.known, known)
}

// othersOf returns what the builds of the other live members know.
func (m *Member) othersOf(roster membership.Roster) published {
	var p published
	for _, member := range roster.Members() {
		if member.Incarnation != m.incarnation {
			p.add(member.Annotations)
		}
	}
	return p
}

// awayOf returns what the builds of those members know that are not live but may come back
// unchanged.
func awayOf(fleet string, observations []election.Observation, roster membership.Roster) published {
	var p published
	for _, o := range leaseapi.PresencesOf(fleet, observations) {
		within := leaseapi.MaxAway
		if o.Holder == "" && !o.IsStruck() {
			within = leftFor
		}
		if _, live := roster.Get(o.Member); !live && o.Silence <= within {
			p.add(o.Annotations)
		}
	}
	return p
}

// yields reports whether another member should plan: a live one of a newer build, which knows where
// more controllers belong, and which works by the same plan and so is able to. The build of a
// canary does not plan while others are live.
func (m *Member) yields(roster membership.Roster) bool {
	plan := m.inForce.Load()
	return plan != nil && slices.ContainsFunc(roster.Members(), func(other membership.Member) bool {
		known, says := leaseapi.KnownOf(other)
		return says && other.State == membership.Active && other.Annotations[leaseapi.PlanAnnotation] == plan.digest &&
			other.Annotations[leaseapi.RefusedAnnotation] == "" && precedes(plan.plan.Canary, known.Version, m.config.Catalogue.Version)
	})
}

// precedes reports whether a member of version a should plan rather than one of version b.
func precedes(canary *shard.Canary, a, b string) bool {
	if canary != nil && (a == canary.Version) != (b == canary.Version) {
		return b == canary.Version
	}
	return skew.Newer(a, b)
}

// EventPlanAdapted reports that the planner has changed the plan for the builds of the members. Err
// describes the changes.
const EventPlanAdapted election.EventType = "plan-adapted"

// EventLacking reports that the plan that came into force names controllers that this member's
// build does not have. Err lists them.
const EventLacking election.EventType = "lacking"

// adapt changes the plan for the builds of the members, if necessary, and reports whether it did.
// It waits until all is calm, unless some member cannot run controllers that it knows.
func (p *planner) adapt(ctx context.Context, lease election.Observation, now time.Time) bool {
	m := p.member
	if m.catalogue == "" || faults.AdaptNever {
		return false
	}
	plan := m.inForce.Load()
	observations := m.observer.List()
	roster := membership.RosterFrom(m.config.Fleet, observations, m.config.Timing.LeaseDuration, now)
	live, away := m.othersOf(roster), awayOf(m.config.Fleet, observations, roster)
	if live.silent || away.silent || m.yields(roster) {
		return false // nobody knows what an earlier build has
	}
	if m.isJoining(roster) {
		return false // it has not computed yet where shards belong
	}
	homes := plan.plan
	for _, ring := range plan.plan.Rings {
		if ring.Scope == shard.ScopeNamespaced {
			homes = assignment.KeepHomes(homes, ring.Name, m.Assignment().Home)
		}
	}
	next, changes, err := m.config.Catalogue.Adapt(homes, live.known, away.known)
	if err == nil && len(changes) > 0 {
		err = m.admit(plan, next, next.Digest(), roster)
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
	if len(changes) == 0 || p.starting(plan.plan, now) || !urgent && !p.calm(plan.plan, roster, now) {
		return false
	}
	if !p.write(ctx, lease, next) {
		return false
	}
	var texts []string
	for _, c := range changes {
		texts = append(texts, c.String())
	}
	said := leaseapi.Shorten(strings.Join(texts, ", "), maxReason)
	m.reportPlan(EventPlanAdapted, errors.New(said))
	klog.FromContext(ctx).Info("Adapted the plan to the builds of the members", "generation", next.Generation, "changes", said)
	return true
}

// starting reports whether a shard is held and does not run yet. If a new plan lacks it, its holder
// gives it up at once, but its successors take longer: a member that has just started waits for a
// lease duration before it creates a Lease.
func (p *planner) starting(plan shard.Plan, now time.Time) bool {
	m := p.member
	return slices.ContainsFunc(plan.Shards(), func(s shard.Shard) bool {
		lease := m.observer.Get(leaseapi.ShardLease(m.config.Fleet, s.ID))
		return m.isHeld(lease, now) && !leaseapi.SaysRunning(lease)
	})
}

// calm reports whether every shard is where it should be, and no member is about to get its share.
func (p *planner) calm(plan shard.Plan, roster membership.Roster, now time.Time) bool {
	joining := func(m membership.Member) bool { return m.State == membership.Joining }
	unsettled := func(ring shard.Ring) bool { return !p.member.settled(ring, now) }
	return !slices.ContainsFunc(roster.Members(), joining) && !slices.ContainsFunc(plan.Rings, unsettled)
}

// Lacks returns the controllers that the plan in force names and that this member's build cannot
// run where the plan has them, sorted; nil for none. The shards that the member holds run without
// them.
func (m *Member) Lacks() []string {
	plan := m.inForce.Load()
	if plan == nil {
		return nil
	}
	return m.lacksOf(plan.plan)
}

func (m *Member) lacksOf(plan shard.Plan) []string {
	var lacks []string
	for _, r := range plan.Rings {
		lacks = append(lacks, m.config.Catalogue.Lacks(r.Controllers, r.Scope)...)
		for _, s := range r.Shards {
			lacks = append(lacks, m.config.Catalogue.Lacks(s.Controllers, r.Scope)...)
		}
	}
	slices.Sort(lacks)
	return lacks
}

// tellLacks reports which controllers of a plan that just came into force this build lacks.
func (m *Member) tellLacks(ctx context.Context, plan shard.Plan) {
	lacks := m.lacksOf(plan)
	if len(lacks) == 0 {
		return
	}
	said := leaseapi.Shorten(strings.Join(lacks, ", "), maxReason)
	klog.FromContext(ctx).Info("The plan names controllers that this build does not have: its shards run without them", "controllers", said, "generation", plan.Generation, "version", m.config.Catalogue.Version)
	m.reportPlan(EventLacking, errors.New(said))
}

// misfit returns an error if the plan in force has controllers that this member knows in rings
// where it cannot run them. The member then gets no shards of that ring, and the planner is about
// to move the controllers.
func (m *Member) misfit() error {
	plan, known := m.inForce.Load(), m.config.Catalogue.Known()
	for _, ring := range plan.plan.Rings {
		serves := len(m.config.Rings) == 0 || slices.Contains(m.config.Rings, ring.Name)
		if serves && !known.Apt(ring) {
			return fmt.Errorf("member %s gets no shards of ring %s: the plan, generation %d, has controllers in it that version %s can run elsewhere alone, of %s",
				m.config.Member, ring.Name, plan.plan.Generation, m.config.Catalogue.Version, strings.Join(m.Lacks(), ", "))
		}
	}
	return nil
}

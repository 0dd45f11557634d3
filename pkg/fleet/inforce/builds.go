package inforce

import (
	"fmt"
	"slices"
	"strings"

	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// Published gathers what members publish about their builds, each text once: most members publish
// the same. The zero value has none.
type Published struct {
	texts []string
	// Known is what the builds know. Silent is set if some members publish nothing, or publish
	// something unreadable.
	Known  []skew.Known
	Silent bool
}

// Add adds what one member publishes, given the annotations of its Lease.
func (p *Published) Add(annotations map[string]string) {
	text := annotations[leaseapi.CatalogueAnnotation]
	if slices.Contains(p.texts, text) {
		return
	}
	p.texts = append(p.texts, text)
	known, says := leaseapi.KnownOf(membership.Member{Annotations: annotations})
	if !says {
		p.Silent = true
		return
	}
	p.Known = append(p.Known, known)
}

// Others returns what the other live members publish about their builds.
func (j *Judge) Others(roster membership.Roster) Published {
	var p Published
	for _, member := range roster.Members() {
		if member.Incarnation != j.incarnation {
			p.Add(member.Annotations)
		}
	}
	return p
}

// fits returns why the member cannot work by a plan that follows current. current is nil if no good
// plan is known.
func (j *Judge) fits(current *Plan, next shard.Plan, roster membership.Roster) error {
	if err := j.check(next); err != nil {
		return err
	}
	if j.catalogue == "" {
		return nil
	}
	var before *shard.Plan
	if current != nil {
		before = &current.Plan
	}
	return j.build.Fits(before, next, j.Others(roster).Known)
}

// Lacks returns the controllers that the plan names and that the member's build cannot run where
// the plan has them, sorted; nil for none.
func (j *Judge) Lacks(plan shard.Plan) []string {
	var lacks []string
	for _, r := range plan.Rings {
		lacks = append(lacks, j.build.Lacks(r.Controllers, r.Scope)...)
		for _, s := range r.Shards {
			lacks = append(lacks, j.build.Lacks(s.Controllers, r.Scope)...)
		}
	}
	slices.Sort(lacks)
	return lacks
}

// Misfit returns an error if the plan has controllers that the member's build knows in rings where
// it cannot run them. The member then gets no shards of such a ring. rings are those that it
// serves; none means all.
func (j *Judge) Misfit(plan shard.Plan, rings []string) error {
	known := j.build.Known()
	for _, ring := range plan.Rings {
		serves := len(rings) == 0 || slices.Contains(rings, ring.Name)
		if serves && !known.Apt(ring) {
			return fmt.Errorf("no shards of ring %s: the plan, generation %d, has controllers in it that version %s can run elsewhere alone, of %s",
				ring.Name, plan.Generation, j.build.Version, strings.Join(j.Lacks(plan), ", "))
		}
	}
	return nil
}

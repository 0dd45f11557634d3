package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// moved is a controller that version 1 runs in ranges, and version 2 in group nodes.
const moved = "moved-controller"

// someVersions reports whether the seed's members are of two versions. It uses random numbers of
// its own, so that other seeds keep their course.
func someVersions(seed uint64) bool {
	return *versions && rand.New(rand.NewPCG(seed, 1<<32)).Float64() < 0.3
}

// versionOf returns the version of a seat's next process.
func (sim *simulation) versionOf(s *seat) int {
	if s.version == 0 || sim.random.IntN(3) == 0 {
		return 1 + sim.random.IntN(2)
	}
	return s.version
}

// buildOf returns what a version knows. Each version has a controller of ranges and one of a group
// that the other lacks.
func (sim *simulation) buildOf(version int) skew.Build {
	namespaced, cluster := []shard.Scope{shard.ScopeNamespaced}, []shard.Scope{shard.ScopeCluster}
	b := skew.Build{
		Version: fmt.Sprintf("v1.%d.0", version), Rings: map[shard.Scope]string{shard.ScopeNamespaced: "namespaces", shard.ScopeCluster: "cluster"},
		Controllers: []skew.Controller{
			{Name: "garbage-controller", Scopes: cluster, Group: "garbage"}, {Name: "node-controller", Scopes: cluster, Group: "nodes"},
			{Name: fmt.Sprintf("range-%d-controller", version), Scopes: namespaced}, {Name: fmt.Sprintf("group-%d-controller", version), Scopes: cluster, Group: "nodes"},
		},
	}
	for _, ring := range sim.plan.Rings {
		for _, name := range ring.Controllers {
			b.Controllers = append(b.Controllers, skew.Controller{Name: name, Scopes: namespaced})
		}
	}
	m := skew.Controller{Name: moved, Scopes: namespaced, Group: "nodes"}
	if version == 2 {
		m.Scopes, m.Earlier = []shard.Scope{shard.ScopeCluster, shard.ScopeNamespaced}, shard.ScopeNamespaced
	}
	b.Controllers = append(b.Controllers, m)
	return b
}

// equip gives a member its seat's version.
func (sim *simulation) equip(c *fleet.Config, s *seat) {
	if !sim.versions {
		return
	}
	s.version = sim.versionOf(s)
	c.Catalogue = sim.buildOf(s.version)
	plan, _, err := c.Catalogue.Adapt(sim.plan, nil, nil)
	if err != nil {
		sim.failf(operator, "the first plan of version %d: %v", s.version, err)
		return
	}
	plan.Generation, c.Plan = 1, plan
	sim.notef("%s is of version %d", s.name, s.version)
}

// unrun returns a controller common to all versions that does not run on a shard of the plan, or is
// not in the plan; empty if there is none.
func (sim *simulation) unrun(plan shard.Plan, works map[shard.ID]*work) string {
	if !sim.versions {
		return ""
	}
	planned := map[string]bool{}
	for id, extent := range plan.Extents() {
		for _, c := range extent.Controllers {
			planned[c] = true
			if k := works[id]; k != nil && sim.isCommon(c) && !slices.Contains(k.given.Controllers, c) {
				return fmt.Sprintf("%s, of version %d, runs %s without %s", k.process.name(), k.process.seat.version, id, c)
			}
		}
	}
	for _, c := range sim.buildOf(1).Controllers {
		if sim.isCommon(c.Name) && !planned[c.Name] {
			return c.Name + " is not in the plan"
		}
	}
	return ""
}

// isCommon reports whether both versions have the controller.
func (sim *simulation) isCommon(name string) bool {
	in := func(b skew.Build) bool {
		return slices.ContainsFunc(b.Controllers, func(c skew.Controller) bool { return c.Name == name })
	}
	return in(sim.buildOf(1)) && in(sim.buildOf(2))
}

// adapted reports whether controllers differ between two plans. The planner changes them for the
// members' versions without waiting for its interval.
func adapted(before, after shard.Plan) bool {
	return slices.ContainsFunc(shard.Diff(before, after), func(c shard.Change) bool { return c.Kind == shard.ChangeController })
}

// lastPlan returns the plan from which an operator works who has found nonsense in the plan's
// place: the last one written, or the one some member follows if the planner may have added
// controllers since.
func (sim *simulation) lastPlan() shard.Plan {
	last := sim.latest
	if !sim.versions {
		return last
	}
	last = shard.Plan{}
	live := sim.live()
	for _, p := range live {
		if plan, known := p.Plan(); known && plan.Generation > last.Generation {
			last = plan
		}
	}
	if last.Generation > 0 {
		return last
	}
	newest, others := 1, []skew.Known(nil)
	for _, p := range live {
		newest = max(newest, p.seat.version)
		others = append(others, sim.buildOf(p.seat.version).Known())
	}
	plan, _, err := sim.buildOf(newest).Adapt(sim.latest, others, nil)
	if err != nil {
		sim.failf(operator, "no plan for all versions: %v", err)
	}
	return plan
}

// turnCanary begins a canary as an operator would, or promotes, aborts or forgets the current one.
func (sim *simulation) turnCanary(plan *shard.Plan) {
	sim.tally(canaryChanges)
	switch c := plan.Canary; {
	case c == nil:
		plan.Canary = &shard.Canary{Version: fmt.Sprintf("v1.%d.0", 1+sim.random.IntN(2)), Namespaces: []string{fmt.Sprintf("team-%d", sim.random.IntN(5))}}
	case c.Aborted:
		plan.Canary = nil
	case sim.random.IntN(2) == 0:
		aborted := *c
		aborted.Aborted = true
		plan.Canary = &aborted
	default:
		*plan = plan.Promoted(func(id shard.ID) string {
			return leaserecord.MemberOf(leaserecord.From(sim.store.Get(sim.leaseOf(id))).Holder)
		})
	}
	sim.notef("the operator has the canary %v", plan.Canary)
}

// astray returns a shard that ended up with a member of the wrong version; empty if there is none.
// If all members of a ring have one version, none is wrong.
func (sim *simulation) astray(plan shard.Plan, works map[shard.ID]*work) string {
	if !sim.versions || plan.Canary == nil {
		return ""
	}
	isTried := func(p *process) bool { return sim.buildOf(p.seat.version).Version == plan.Canary.Version }
	divided := false
	for _, s := range plan.Shards() {
		k := works[s.ID]
		if k == nil {
			continue
		}
		tried, others := false, false
		for _, p := range sim.live() {
			if slices.Contains(k.process.Assignment().MembersOf(s.Ring), p.seat.name) {
				tried, others = tried || isTried(p), others || !isTried(p)
			}
		}
		if tried && others {
			divided = true
			if isTried(k.process) != plan.Tries(s) {
				return fmt.Sprintf("%s, of version %d, works on %s, and the canary is %v", k.process.name(), k.process.seat.version, s.ID, plan.Canary)
			}
		}
	}
	if divided {
		sim.countLocked(canariesSettled)
	}
	return ""
}

package fleet

import (
	"maps"
	"slices"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// rests reports whether the planner leaves everything where it is, because a canary is tried.
// Ranges of members of its version would count as homeless, and what is tried would move in the
// middle of it. An aborted canary whose members have gone is in nobody's way.
func (p *planner) rests(plan shard.Plan) bool {
	if plan.Canary == nil {
		return false
	}
	return !plan.Canary.Aborted ||
		slices.ContainsFunc(p.member.Roster().Members(), func(m election.Member) bool { return leaseapi.VersionOf(m) == plan.Canary.Version })
}

// kept are shards that the planner does not move: while members of several versions are live, what
// has come to the newest stays with it. Else a rollout would take namespaces to a new version,
// back, and there again.
type kept map[shard.ID]bool

// keepNewest returns those shards of the ring whose home is a live member of the newest version,
// while others are there.
func keepNewest(plan shard.Plan, ring string, roster election.Roster) kept {
	versions, newest, mixed := map[string]string{}, "", false
	for i, m := range roster.Members() {
		v := leaseapi.VersionOf(m)
		versions[m.Name] = v
		mixed = mixed || i > 0 && v != newest
		if i == 0 || skew.Newer(v, newest) {
			newest = v
		}
	}
	if !mixed {
		return nil
	}
	r, _ := plan.Ring(ring)
	k := kept{}
	for _, s := range r.Shards {
		if v, live := versions[s.Home]; live && v == newest && s.Pin == "" {
			k[s.ID] = true
		}
	}
	return k
}

// and returns both.
func (k kept) and(others kept) kept {
	if k == nil {
		return others
	}
	maps.Copy(k, others)
	return k
}

package planner

import (
	"maps"
	"slices"

	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// rests reports whether the planner leaves everything in place because a canary is being tried.
// Otherwise ranges on members of the canary's version would count as homeless, and would move in
// the middle of the trial. An aborted canary whose members have gone does not matter.
func (l look) rests() bool {
	canary := l.InForce.Canary
	if canary == nil {
		return false
	}
	return !canary.Aborted ||
		slices.ContainsFunc(l.Roster().Members(), func(m membership.Member) bool { return leaseapi.VersionOf(m) == canary.Version })
}

// kept are shards that the planner does not move. While members of several versions are live,
// shards that have moved to the newest version stay there. Otherwise a rollout would take
// namespaces to a new version, back, and there again.
type kept map[shard.ID]bool

// keepNewest returns the shards of the ring whose home is a live member of the newest version, if
// members of other versions are live too.
func keepNewest(plan shard.Plan, ring string, roster membership.Roster) kept {
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

// and returns the union.
func (k kept) and(others kept) kept {
	if k == nil {
		return others
	}
	maps.Copy(k, others)
	return k
}

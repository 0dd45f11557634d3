package assignment

import (
	"slices"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// triedOf returns those of the names whose members run the canary's version.
func triedOf(members []membership.Member, names []string, canary *shard.Canary) []string {
	if canary == nil {
		return nil
	}
	var tried []string
	for _, m := range members {
		if leaseapi.VersionOf(m) == canary.Version && slices.Contains(names, m.Name) {
			tried = append(tried, m.Name)
		}
	}
	return tried
}

// aptness caches which builds are apt for one ring: most members have the same build.
type aptness struct {
	ring shard.Ring
	by   map[string]bool
}

func (a aptness) apt(m membership.Member) bool {
	text := m.Annotations[leaseapi.CatalogueAnnotation]
	apt, known := a.by[text]
	if !known {
		build, says := leaseapi.KnownOf(m)
		apt = !says || build.Apt(a.ring) || faults.AptnessIgnored
		a.by[text] = apt
	}
	return apt
}

// serversOf returns the names of the members that serve the ring, as [leaseapi.ServersOf] does, and
// can run everything that they know of it; see [skew.Known.Apt]. If there are none, the others
// serve it without what they cannot run: running the rest matters more.
func serversOf(members []membership.Member, ring shard.Ring) []string {
	a := aptness{ring, map[string]bool{}}
	apt := slices.DeleteFunc(slices.Clone(members), func(m membership.Member) bool { return !a.apt(m) })
	if names := leaseapi.ServersOf(apt, ring.Name); len(names) > 0 {
		return names
	}
	return leaseapi.ServersOf(members, ring.Name)
}

// lackingOf returns, for each group of the ring, the members whose build does not have all of its
// controllers.
func lackingOf(members []membership.Member, ring shard.Ring) map[shard.ID][]string {
	if ring.Scope != shard.ScopeCluster {
		return nil
	}
	var lacking map[shard.ID][]string
	by := map[string]skew.Known{} // most members publish the same
	for _, m := range members {
		text := m.Annotations[leaseapi.CatalogueAnnotation]
		known, read := by[text]
		if !read {
			var says bool
			if known, says = leaseapi.KnownOf(m); !says {
				known = skew.Build{}.Known()
			}
			by[text] = known
		}
		for _, s := range ring.Shards {
			if slices.ContainsFunc(s.Controllers, func(c string) bool { return !known.Runs(c, ring.Scope) }) {
				if lacking == nil {
					lacking = map[shard.ID][]string{}
				}
				lacking[s.ID] = append(lacking[s.ID], m.Name)
			}
		}
	}
	return lacking
}

// able returns new owners for the groups whose owner lacks some of their controllers while another
// member has all. The new owner is the holder if it has all, otherwise the latest member to join.
func (r ofRing) able(members []string, owners shard.Placement, holders map[shard.ID]string) map[shard.ID]string {
	var other map[shard.ID]string
	for id, lacking := range r.lacking {
		if owner, placed := owners.Owner(id); !placed || !slices.Contains(lacking, owner) || faults.LackingOwner {
			continue
		}
		for _, name := range append([]string{holders[id]}, r.newest...) {
			if slices.Contains(members, name) && !slices.Contains(lacking, name) {
				if other == nil {
					other = map[shard.ID]string{}
				}
				other[id] = name
				break
			}
		}
	}
	return other
}

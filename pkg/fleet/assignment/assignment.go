package assignment

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Assignment says which member should own which shard. It is immutable.
type Assignment struct {
	// digest is the plan's digest.
	digest string
	// members count for some ring, sorted.
	members []string
	// foreign are the live members that refuse the plan, or that refuse a later one and work by an
	// older one or none, sorted.
	foreign []string
	rings   map[string]ofRing
	// circles are for the next assignment only.
	circles *shard.Circles
}

// ofRing is the assignment of one ring.
type ofRing struct {
	// members count for the ring. known are all that it has had recently. Both are sorted.
	members, known []string
	// tried are the members that run the version of the plan's canary.
	tried []string
	// newest are the members, the latest to join first.
	newest        []string
	homes, owners shard.Placement
	// lacking has, for each group, the members whose build does not have all of its controllers;
	// nil if there are none.
	lacking map[shard.ID][]string
}

// Of returns the assignment of a plan's shards to the live members. known are the members that
// there have been, and holders has who holds each shard. It leaves out members that refuse a plan
// of this generation, and those that refuse another and work by an older one or none. It leaves
// each member out of the rings that it does not serve or has no build for.
//
// Of is a pure function. The caller passes the plan's digest, because computing it for a thousand
// shards takes longer than everything else. last, the previous assignment, only saves work: placing
// takes long with many members. Do not use an assignment as last twice concurrently. An error means
// that the plan has more shards than can be placed.
func Of(
	plan shard.Plan, digest string, roster membership.Roster, known []membership.Member,
	holders map[shard.ID]string, last Assignment,
) (Assignment, error) {
	a := Assignment{digest: digest, rings: map[string]ofRing{}, circles: last.circles}
	if a.circles == nil {
		a.circles = new(shard.Circles)
	}
	refuses := func(m membership.Member) bool { return leaseapi.RefusesPlan(m, plan.Generation) }
	var active []membership.Member
	for _, m := range roster.Members() {
		if refuses(m) {
			a.foreign = append(a.foreign, m.Name)
		}
	}
	for _, name := range roster.Active() {
		if m, _ := roster.Get(name); !refuses(m) {
			active = append(active, m)
		}
	}
	for _, ring := range plan.Rings {
		r := ofRing{members: serversOf(active, ring)}
		r.known = slices.Concat(leaseapi.ServersOf(known, ring.Name), r.members)
		slices.Sort(r.known)
		r.known = slices.Compact(r.known)
		before := last.rings[ring.Name]
		if r.homes = before.homes; a.digest != last.digest || !slices.Equal(r.known, before.known) {
			var err error
			if r.homes, err = a.circles.HomesOf(plan, ring.Name, r.known); err != nil {
				return Assignment{}, fmt.Errorf("placing ring %s: %w", ring.Name, err)
			}
		}
		r.newest = newestOf(active, r.members)
		r.tried = triedOf(active, r.members, plan.Canary)
		r.lacking = lackingOf(active, ring)
		a.rings[ring.Name] = r
		a.members = append(a.members, r.members...)
	}
	slices.Sort(a.members)
	a.members = slices.Compact(a.members)
	for name, owners := range a.settle(plan, holders, "") {
		r := a.rings[name]
		r.owners = owners
		a.rings[name] = r
	}
	return a, nil
}

// settle returns where the shards of each ring should be once failed has left; failed may be empty.
// When it deals out ranges by weight, it also counts the groups, and the shards of rings that the
// plan names earlier, that members have.
func (a Assignment) settle(plan shard.Plan, holders map[shard.ID]string, failed string) map[string]shard.Placement {
	placements, beside := make(map[string]shard.Placement, len(plan.Rings)), map[string]int64{}
	for _, namespaced := range []bool{false, true} {
		for _, ring := range plan.Rings {
			if namespaced != (ring.Scope == shard.ScopeNamespaced) {
				continue
			}
			r := a.rings[ring.Name]
			members := slices.DeleteFunc(slices.Clone(r.members), func(m string) bool { return m == failed })
			owners := plan.SettleVersions(ring.Name, members, r.tried, r.homes, holders, r.newest, beside)
			owners = owners.With(r.able(plan.MembersOfGroups(members, r.tried), owners, holders))
			for _, s := range ring.Shards {
				if owner, placed := owners.Owner(s.ID); placed {
					beside[owner] += min(s.Weight, shard.MaxCellWeight)
				}
			}
			placements[ring.Name] = owners
		}
	}
	return placements
}

// newestOf returns those of the names that are among the members, the latest to join first. It goes
// by the members' own stamps, so that all readers agree, whatever their clocks.
func newestOf(members []membership.Member, names []string) []string {
	came := map[string]time.Time{}
	for _, m := range members {
		came[m.Name] = m.Acquired
	}
	names = slices.Clone(names)
	slices.SortStableFunc(names, func(a, b string) int { return came[b].Compare(came[a]) })
	return names
}

// Standbys returns, for each shard, who would own it if its holder failed. The holder is the member
// that its Lease names, expired or not.
func (a Assignment) Standbys(plan shard.Plan, named map[shard.ID]string) map[shard.ID]string {
	next := make(map[shard.ID]string, len(named))
	for _, failed := range a.members {
		left := maps.Clone(named)
		maps.DeleteFunc(left, func(_ shard.ID, holder string) bool { return holder == failed })
		without := a.settle(plan, left, failed)
		for _, ring := range plan.Rings {
			for _, s := range ring.Shards {
				if named[s.ID] == failed {
					next[s.ID], _ = without[ring.Name].Owner(s.ID)
				}
			}
		}
	}
	return next
}

// Owner returns the member that should own the shard; empty if none should.
func (a Assignment) Owner(id shard.ID) string {
	owner, _ := a.rings[id.Ring].owners.Owner(id)
	return owner
}

// Members returns the members that count for some ring, sorted.
func (a Assignment) Members() []string { return a.members }

// MembersOf returns the members that count for the ring, sorted.
func (a Assignment) MembersOf(ring string) []string { return a.rings[ring].members }

// Foreign returns the live members that refuse the plan, or work by none, sorted.
func (a Assignment) Foreign() []string { return a.foreign }

// Digest returns the digest of a ring's placement.
func (a Assignment) Digest(ring string) string { return a.rings[ring].owners.Digest() }

// Share returns how many of a ring's n shards a member is expected to own, at least 1.
func (a Assignment) Share(ring string, n int) int {
	members := len(a.rings[ring].members)
	if members == 0 {
		return max(n, 1)
	}
	return max(1, (n+members-1)/members)
}

// Carrier returns the member that the planner takes to carry a shard when it weighs what members
// carry besides another ring. For a group that stays where it is held, that is the owner. For any
// other shard it is the member to which the shard belongs, even if that is away.
func (a Assignment) Carrier(plan shard.Plan, id shard.ID) string {
	if ring, _ := plan.Ring(id.Ring); ring.Stays(id) {
		return a.Owner(id)
	}
	return a.Home(id)
}

// Home returns the member to which a shard belongs, whoever has it at present; empty if unknown.
func (a Assignment) Home(id shard.ID) string {
	home, _ := a.rings[id.Ring].homes.Owner(id)
	return home
}

// Afresh returns the assignment in a fleet with exactly these members, all of one build, in which
// nobody holds anything.
func Afresh(fleet string, plan shard.Plan, members []string) (Assignment, error) {
	at := time.Time{}.Add(time.Hour) // arbitrary: when all joined, and the present
	var leases []election.Observation
	for _, name := range members {
		leases = append(leases, election.Observation{
			Record: leaserecord.Record{
				Name:        leaserecord.MemberLease(fleet, name),
				Holder:      name + "_afresh",
				Annotations: map[string]string{leaserecord.StateAnnotation: string(membership.Active)},
			},
			Exists: true,
			Seen:   at,
		})
	}
	roster := membership.RosterFrom(fleet, leases, time.Minute, at)
	return Of(plan, plan.Digest(), roster, nil, nil, Assignment{})
}

// KeepHomes returns the plan in which the shards of a ring that have no home get their holders as
// homes. Without homes, consistent hashing moves some shards that a change of the others does not
// concern. holder may return the empty string.
func KeepHomes(plan shard.Plan, ring string, holder func(shard.ID) string) shard.Plan {
	return plan.WithShards(func(s *shard.Shard) {
		if s.ID.Ring == ring && s.PreferredMember() == "" {
			s.Home = holder(s.ID)
		}
	})
}

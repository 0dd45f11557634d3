package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Wishes is what the rings want: which member should own which shard. It is
// immutable.
type Wishes struct {
	// digest is that of the plan.
	digest string
	// members count for some ring, sorted.
	members []string
	// foreign are live members that refuse the plan, or a later one and work by an older or none,
	// sorted.
	foreign []string
	rings   map[string]ringWishes
	// circles are for the next wishes, and nobody else.
	circles *shard.Circles
}

// ringWishes are those of one ring.
type ringWishes struct {
	// members count for the ring, known are all that it has had of late, sorted.
	members, known []string
	// tried are the members that are of the version of the plan's canary.
	tried []string
	// newest are the members, those that came last first.
	newest        []string
	homes, owners shard.Placement
	// lacking are, for each group, the members whose build does not have all of its controllers;
	// nil where there are none.
	lacking map[shard.ID][]string
}

// Of computes the wishes for a plan, from the members that are live, those that there
// have been (known), and who holds each shard. Members that refuse a plan of this generation are
// left out, as are those that refuse another and work by none or by an older one, and so is each
// from the rings that it does not serve, or has no build for. It is a pure function; last, the
// wishes of before, only saves it work: placing takes long with many members. Use no wishes as last
// twice at a time. An error means that the plan has more shards than can be placed.
func Of(plan shard.Plan, roster election.Roster, known []election.Member, holders map[shard.ID]string, last Wishes) (Wishes, error) {
	return Compute(plan, plan.Digest(), roster, known, holders, last)
}

// Compute is [Of] for a plan whose digest is known: with a thousand shards that takes longer than all else.
func Compute(
	plan shard.Plan, digest string, roster election.Roster, known []election.Member, holders map[shard.ID]string, last Wishes,
) (Wishes, error) {
	w := Wishes{digest: digest, rings: map[string]ringWishes{}, circles: last.circles}
	if w.circles == nil {
		w.circles = new(shard.Circles)
	}
	refuses := func(m election.Member) bool { return leaseapi.RefusesPlan(m, plan.Generation) }
	var active []election.Member
	for _, m := range roster.Members() {
		if refuses(m) {
			w.foreign = append(w.foreign, m.Name)
		}
	}
	for _, name := range roster.Active() {
		if m, _ := roster.Get(name); !refuses(m) {
			active = append(active, m)
		}
	}
	for _, ring := range plan.Rings {
		r := ringWishes{members: serversOf(active, ring)}
		r.known = slices.Concat(leaseapi.ServersOf(known, ring.Name), r.members)
		slices.Sort(r.known)
		r.known = slices.Compact(r.known)
		before := last.rings[ring.Name]
		if r.homes = before.homes; w.digest != last.digest || !slices.Equal(r.known, before.known) {
			var err error
			if r.homes, err = w.circles.HomesOf(plan, ring.Name, r.known); err != nil {
				return Wishes{}, fmt.Errorf("placing ring %s: %w", ring.Name, err)
			}
		}
		r.newest = newestOf(active, r.members)
		r.tried = triedOf(active, r.members, plan.Canary)
		r.lacking = lackingOf(active, ring)
		w.rings[ring.Name] = r
		w.members = append(w.members, r.members...)
	}
	slices.Sort(w.members)
	w.members = slices.Compact(w.members)
	for name, owners := range w.settle(plan, holders, "") {
		r := w.rings[name]
		r.owners = owners
		w.rings[name] = r
	}
	return w, nil
}

// settle returns where the shards of each ring should be, once failed has left; empty for nobody.
// What members have of the groups, and of rings that the plan names before, counts where ranges are
// dealt out by weight.
func (w Wishes) settle(plan shard.Plan, holders map[shard.ID]string, failed string) map[string]shard.Placement {
	placements, beside := make(map[string]shard.Placement, len(plan.Rings)), map[string]int64{}
	for _, namespaced := range []bool{false, true} {
		for _, ring := range plan.Rings {
			if namespaced != (ring.Scope == shard.ScopeNamespaced) {
				continue
			}
			r := w.rings[ring.Name]
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

// newestOf returns those of the names that are among the members, the one first that came last, by
// the members' own stamps: all that read them agree, whatever the clocks.
func newestOf(members []election.Member, names []string) []string {
	came := map[string]time.Time{}
	for _, m := range members {
		came[m.Name] = m.Acquired
	}
	names = slices.Clone(names)
	slices.SortStableFunc(names, func(a, b string) int { return came[b].Compare(came[a]) })
	return names
}

// Successors returns for each shard who would own it if its holder failed: the member that its Lease names, expired or not.
func (w Wishes) Successors(plan shard.Plan, named map[shard.ID]string) map[shard.ID]string {
	next := make(map[shard.ID]string, len(named))
	for _, failed := range w.members {
		left := maps.Clone(named)
		maps.DeleteFunc(left, func(_ shard.ID, holder string) bool { return holder == failed })
		without := w.settle(plan, left, failed)
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
func (w Wishes) Owner(id shard.ID) string {
	owner, _ := w.rings[id.Ring].owners.Owner(id)
	return owner
}

// Members returns the members that count for some ring, sorted.
func (w Wishes) Members() []string { return w.members }

// MembersOf returns the members that count for the ring, sorted.
func (w Wishes) MembersOf(ring string) []string { return w.rings[ring].members }

// Foreign returns the live members that refuse the plan, or work by none, sorted.
func (w Wishes) Foreign() []string { return w.foreign }

// Digest returns the digest of a ring's placement.
func (w Wishes) Digest(ring string) string { return w.rings[ring].owners.Digest() }

// Share returns how many of a ring's n shards a member is expected to own, at least 1.
func (w Wishes) Share(ring string, n int) int {
	members := len(w.rings[ring].members)
	if members == 0 {
		return max(n, 1)
	}
	return max(1, (n+members-1)/members)
}

// Carrier returns the member that is taken to have a shard when the planner weighs what members
// carry beside another ring: of groups that stay where they are held the owner, and of other shards
// the one to which they belong, though it may be away.
func (w Wishes) Carrier(plan shard.Plan, id shard.ID) string {
	if ring, _ := plan.Ring(id.Ring); ring.Stays(id) {
		return w.Owner(id)
	}
	member, _ := w.rings[id.Ring].homes.Owner(id)
	return member
}

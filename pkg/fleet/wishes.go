package fleet

import (
	"fmt"
	"maps"
	"slices"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Wishes is what the rings want: which member should own which shard. It is
// immutable.
type Wishes struct {
	// members count for the rings, known are all that the fleet has had, sorted.
	members, known []string
	// foreign are live members that follow another plan, sorted.
	foreign []string
	homes   map[string]shard.Placement
	rings   map[string]shard.Placement
}

// Wish computes the wishes for a plan, from the members that are live, those that there
// have been (known), and who holds each shard. It is a pure function; last, the wishes of
// before for the same plan, only saves it work: placing takes long with many members. An
// error means that the plan has more shards than can be placed.
func Wish(plan shard.Plan, roster election.Roster, known []string, holders map[shard.ID]string, last Wishes) (Wishes, error) {
	w := Wishes{homes: map[string]shard.Placement{}, rings: map[string]shard.Placement{}}
	digest := plan.Digest()
	for _, name := range roster.Live() {
		if m, _ := roster.Get(name); m.Plan != digest {
			w.foreign = append(w.foreign, name)
		}
	}
	for _, name := range roster.Active() {
		if m, _ := roster.Get(name); m.Plan == digest {
			w.members = append(w.members, name)
		}
	}
	w.known = append(slices.Clone(known), w.members...)
	slices.Sort(w.known)
	w.known = slices.Compact(w.known)
	for _, ring := range plan.Rings {
		ids := ring.IDs()
		home := last.homes[ring.Name]
		if last.homes == nil || !slices.Equal(w.known, last.known) {
			var err error
			if home, err = shard.Homes(ids, w.known); err != nil {
				return Wishes{}, fmt.Errorf("placing ring %s: %w", ring.Name, err)
			}
		}
		w.homes[ring.Name] = home
		w.rings[ring.Name] = shard.Settle(ids, w.members, home, holders)
	}
	return w, nil
}

// successors returns for each shard who would own it if its holder failed.
func (w Wishes) successors(plan shard.Plan, holders map[shard.ID]string) map[shard.ID]string {
	next := make(map[shard.ID]string, len(holders))
	for _, failed := range w.members {
		others := slices.DeleteFunc(slices.Clone(w.members), func(m string) bool { return m == failed })
		left := maps.Clone(holders)
		maps.DeleteFunc(left, func(_ shard.ID, holder string) bool { return holder == failed })
		for _, ring := range plan.Rings {
			without := shard.Settle(ring.IDs(), others, w.homes[ring.Name], left)
			for _, s := range ring.Shards {
				if holders[s.ID] == failed {
					next[s.ID], _ = without.Owner(s.ID)
				}
			}
		}
	}
	return next
}

// Owner returns the member that should own the shard; empty if none should.
func (w Wishes) Owner(id shard.ID) string {
	owner, _ := w.rings[id.Ring].Owner(id)
	return owner
}

// Members returns the members that count for the rings, sorted.
func (w Wishes) Members() []string { return w.members }

// Foreign returns the live members that follow another plan, sorted.
func (w Wishes) Foreign() []string { return w.foreign }

// Digest returns the digest of a ring's placement.
func (w Wishes) Digest(ring string) string { return w.rings[ring].Digest() }

// Share returns how many of a ring's n shards a member is expected to own, at least 1.
func (w Wishes) Share(n int) int {
	if len(w.members) == 0 {
		return max(n, 1)
	}
	return max(1, (n+len(w.members)-1)/len(w.members))
}

package shard

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Homes returns where each shard belongs when all of the members are there: on the ring, with the
// loads made even. Give it all members that the fleet has had recently, including those that are
// away, so that shards find their way back after a restart. Errors are those of Place.
func Homes(shards []ID, members []string) (Placement, error) {
	return (*Circles)(nil).homes(shards, members)
}

// homes is Homes, with the kept circles.
func (cs *Circles) homes(shards []ID, members []string) (Placement, error) {
	ring, err := cs.place(shards, members)
	if err != nil {
		return Placement{}, err
	}
	shards, members = sortedUnique(shards, ID.Compare), sortedUnique(members, strings.Compare)
	if len(shards) == 0 || len(members) == 0 {
		return Placement{}, nil
	}
	return settle(shards, members, ring, nil), nil
}

// Settle decides which member should own which shard, given the holders. While every shard's home
// is among the members, all shards go home. Otherwise some member is away, and a shard that another
// member holds stays there: always if it is at home, and else as long as each member has at most
// its fair share, which is shards/members rounded down, or up for as many members as necessary.
// Shards without a holder among the members, and those that a member has too many of, go home if
// their home has room, else to a member that has. So homes that are uneven by count, because the
// planner weighed shards, cause no moves.
//
// home says where each shard belongs when all members are there: see Homes. A member with too many
// shards first gives up those that belong to another member that is there. Holders that are not
// among members do not count.
//
// It is a pure function of the sets, and stable: when some of the shards that it wants moved have
// moved, it still wants the others moved to the same places. So members that carry out a placement
// one shard after the other, and place again after each, agree throughout. Placement does not
// simply follow the ring because of the ring's bounded loads: it would move shards of other members
// too whenever one comes or goes, 2.3 to 2.9 moves a shard in a rolling restart of 3 to 10 members.
// With Settle it is 2 for each: away and back.
//
// Without members the placement is empty.
func Settle(shards []ID, members []string, home Placement, holders map[ID]string) Placement {
	shards = sortedUnique(shards, ID.Compare)
	members = sortedUnique(members, strings.Compare)
	if len(shards) == 0 || len(members) == 0 {
		return Placement{}
	}
	if home.among(shards, members) {
		return home
	}
	return settle(shards, members, home, holders)
}

// settle is Settle for sorted sets, when some member is away.
func settle(shards []ID, members []string, home Placement, holders map[ID]string) Placement {
	held := make(map[string][]ID, len(members))
	for _, m := range members {
		held[m] = nil
	}
	var free []ID
	for _, id := range shards {
		if holder := holders[id]; contains(members, holder) {
			held[holder] = append(held[holder], id)
		} else {
			free = append(free, id)
		}
	}
	quota := quotas(len(shards), members, held)
	room := maps.Clone(quota)
	p := Placement{owners: make(map[ID]string, len(shards)), shards: make(map[string][]ID, len(members))}
	place := func(id ID, member string) {
		p.owners[id] = member
		room[member]--
	}
	for _, m := range members {
		kept := held[m]
		rank := func(id ID) int {
			switch owner, _ := home.Owner(id); {
			case owner == m:
				return 0 // stays first
			case contains(members, owner):
				return 2
			default:
				return 1
			}
		}
		slices.SortStableFunc(kept, func(a, b ID) int { return cmp.Compare(rank(a), rank(b)) })
		n := min(len(kept), room[m])
		for n < len(kept) && rank(kept[n]) == 0 {
			n++
		}
		for _, id := range kept[:n] {
			place(id, m)
		}
		free = append(free, kept[n:]...)
	}
	slices.SortFunc(free, ID.Compare)
	var homeless []ID
	for _, id := range free {
		if owner, _ := home.Owner(id); contains(members, owner) && room[owner] > 0 {
			place(id, owner)
		} else {
			homeless = append(homeless, id)
		}
	}
	for _, id := range homeless {
		// The member that has room and ranks first with this shard: an order that does not depend
		// on how many shards have moved already.
		place(id, slices.MaxFunc(members, func(a, b string) int {
			return cmp.Or(cmp.Compare(min(room[a], 1), min(room[b], 1)), cmp.Compare(affinity(id, a), affinity(id, b)))
		}))
	}
	for _, id := range shards {
		owner := p.owners[id]
		p.shards[owner] = append(p.shards[owner], id)
	}
	return p
}

// among reports whether the placement has exactly these shards, each with a home among members.
func (p Placement) among(shards []ID, members []string) bool {
	for _, id := range shards {
		if owner, placed := p.owners[id]; !placed || !contains(members, owner) {
			return false
		}
	}
	return len(p.owners) == len(shards)
}

// quotas returns each member's fair share. The members that hold most get the larger shares, so
// that as little as possible moves.
func quotas(shards int, members []string, held map[string][]ID) map[string]int {
	least, larger := shards/len(members), shards%len(members)
	order := slices.Clone(members)
	slices.SortStableFunc(order, func(a, b string) int {
		return cmp.Compare(max(0, min(len(held[b])-least, 1)), max(0, min(len(held[a])-least, 1)))
	})
	quota := make(map[string]int, len(members))
	for i, m := range order {
		quota[m] = least
		if i < larger {
			quota[m]++
		}
	}
	return quota
}

// affinity ranks members for a shard, each shard in its own way.
func affinity(id ID, member string) uint64 {
	return xxhash.Sum64String(id.String() + "\n" + member)
}

func contains(sorted []string, name string) bool {
	_, found := slices.BinarySearch(sorted, name)
	return found
}

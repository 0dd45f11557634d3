package shard

import (
	"cmp"
	"slices"
)

// mostSettled is the maximum weight with which a shard counts in settling: sums of thousands of
// them, times thousands of members, do not overflow.
const mostSettled int64 = 1 << 32

// settleByWeight is Settle, when some member is away, for shards that have weights: it evens out
// what each member carries, instead of how many shards each has. beside is what members carry of
// other rings; both are in objects. Members and shards are sorted.
//
// A shard whose home is among the members goes there. The others are dealt out by weight, up to a
// level: the load of each of the k members with the least, if all of these shards could be shared
// out evenly. A member that has more than the level from its home shards and from beside gets none.
//
//   - A member keeps those of them that it holds, the heaviest first, as long as it then has at
//     most the level and (k-1)/k of the heaviest of them.
//   - The rest is dealt out, the heaviest first. Each goes to the member with the highest affinity
//     that has at most the level less 1/k of the shard's weight. There always is one: else the k
//     members together would have more than there is without this shard.
//
// It is stable as Settle is. The level and the heaviest weight do not depend on who holds what. A
// member that has been given some of its shards keeps them, for with all of them it has no more
// than the first bound allows. And a member that was full for a shard before is not less full. A
// member that was not full before still takes the shard, even if it has been given lighter ones
// that came later: the last of these found it at the level less its own part, with this shard
// already in it. All arithmetic is in whole numbers, so members on different machines agree.
func settleByWeight(
	shards []ID, members []string, home Placement, holders map[ID]string, weight func(ID) int64, beside map[string]int64,
) Placement {
	owners := make(map[ID]string, len(shards))
	carries := make(map[string]int64, len(members))
	for _, m := range members {
		carries[m] = clampWeight(beside[m])
	}
	place := func(id ID, member string) {
		owners[id] = member
		carries[member] += weight(id)
	}
	var strays []ID
	for _, id := range shards {
		if owner, _ := home.Owner(id); contains(members, owner) {
			place(id, owner)
		} else {
			strays = append(strays, id)
		}
	}
	slices.SortFunc(strays, func(a, b ID) int { return cmp.Or(cmp.Compare(weight(b), weight(a)), a.Compare(b)) })
	if len(strays) == 0 {
		return placementOf(owners)
	}
	k, levels := waterLevel(members, carries, strays, weight)
	heaviest := weight(strays[0])
	var free []ID
	for _, id := range strays {
		holder := holders[id]
		if contains(members, holder) && k*(carries[holder]+weight(id)) <= levels+(k-1)*heaviest {
			place(id, holder)
		} else {
			free = append(free, id)
		}
	}
	for _, id := range free {
		place(id, slices.MaxFunc(members, func(a, b string) int {
			takes := func(m string) int {
				if k*carries[m] <= levels-weight(id) {
					return 1
				}
				return 0
			}
			return cmp.Or(cmp.Compare(takes(a), takes(b)), cmp.Compare(affinity(id, a), affinity(id, b)))
		}))
	}
	return placementOf(owners)
}

// waterLevel returns among how many members the strays are shared out, k, and k times the level.
func waterLevel(members []string, carries map[string]int64, strays []ID, weight func(ID) int64) (k, levels int64) {
	loads := make([]int64, 0, len(members))
	for _, m := range members {
		loads = append(loads, carries[m])
		levels += carries[m]
	}
	for _, id := range strays {
		levels += weight(id)
	}
	slices.Sort(loads)
	k = int64(len(loads))
	for k > 1 && levels < k*loads[k-1] {
		levels -= loads[k-1]
		k--
	}
	return k, levels
}

// weigher returns the weight of each shard of the ring in settling, from the weights in the plan.
// Shards without a weight, such as those that an operator added, count as the mean of the others.
// It returns nil if fewer than half of them have weights: then shards are counted.
func (r Ring) weigher() func(ID) int64 {
	weights := make(map[ID]int64, len(r.Shards))
	sum := int64(0)
	for _, s := range r.Shards {
		if s.Weight > 0 {
			weights[s.ID] = min(s.Weight, mostSettled)
			sum += weights[s.ID]
		}
	}
	if 2*len(weights) < len(r.Shards) || len(weights) == 0 {
		return nil
	}
	mean := max(1, sum/int64(len(weights)))
	return func(id ID) int64 {
		if w, weighed := weights[id]; weighed {
			return w
		}
		return mean
	}
}

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// owners returns the owner of each shard: with all members active, or after that, with only those
// in left. It leaves out a ring with groups that stay wherever they are first held.
func owners(plan shard.Plan, members, left []string) (map[shard.ID]string, error) {
	owners := map[shard.ID]string{}
	for _, ring := range plan.Rings {
		ids := ring.IDs()
		if slices.ContainsFunc(ids, ring.Stays) {
			continue
		}
		homes, err := plan.HomesOf(ring.Name, members)
		if err != nil {
			return nil, err
		}
		holders := map[shard.ID]string{}
		for _, id := range ids {
			holders[id], _ = homes.Owner(id)
		}
		placement := plan.SettleRing(ring.Name, left, homes, holders, nil, nil)
		for _, id := range ids {
			owners[id], _ = placement.Owner(id)
		}
	}
	return owners, nil
}

// heldBy returns nil if the holders of all shards are as wanted. A shard that is not in want may
// have any holder that is wanted for another shard. The error says how many shards have another
// holder, and names the first.
func heldBy(plan shard.Plan, holders, want map[shard.ID]string) error {
	var others []string
	shards := plan.Shards()
	for _, s := range shards {
		holder := holders[s.ID]
		owner, given := want[s.ID]
		if !given && slices.Contains(slices.Collect(maps.Values(want)), holder) {
			continue
		}
		if !given || holder != owner {
			others = append(others, fmt.Sprintf("%s is held by %q, not by %s", s.ID, holder, cmp.Or(owner, "a member")))
		}
	}
	if len(others) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d shards are not where they should be; %s", len(others), len(shards), others[0])
}

// byOwner groups the namespaces by the owner of their shard.
func byOwner(plan shard.Plan, owners map[shard.ID]string, namespaces []string) map[string][]string {
	groups := map[string][]string{}
	for _, namespace := range namespaces {
		if id, ok := shardOf(plan, namespace); ok {
			groups[owners[id]] = append(groups[owners[id]], namespace)
		}
	}
	return groups
}

// shardOf returns the shard of the namespaced ring that contains the namespace.
func shardOf(plan shard.Plan, namespace string) (shard.ID, bool) {
	for _, ring := range plan.Rings {
		if s, ok := plan.ShardFor(ring.Name, namespace); ok {
			return s.ID, true
		}
	}
	return shard.ID{}, false
}

// busiest returns the member that owns the most namespaces; of several the one with the most
// shards.
func busiest(plan shard.Plan, owners map[shard.ID]string, namespaces []string) string {
	shards := map[string]int{}
	for _, owner := range owners {
		shards[owner]++
	}
	served := byOwner(plan, owners, namespaces)
	members := slices.Sorted(maps.Keys(shards))
	return slices.MaxFunc(members, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(served[a]), len(served[b])), cmp.Compare(shards[a], shards[b]), cmp.Compare(b, a))
	})
}

// counts says how many shards each member has: "flotilla-0 7, flotilla-1 8".
func counts(plan shard.Plan, holders map[shard.ID]string) string {
	byMember := map[string]int{}
	for _, s := range plan.Shards() {
		byMember[cmp.Or(holders[s.ID], "nobody")]++
	}
	return joinCounts(byMember)
}

func joinCounts(byName map[string]int) string {
	var parts []string
	for name, n := range byName {
		parts = append(parts, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

package assignment

import (
	"fmt"
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestHeavyGroupsCountWhereRangesAreDealtOut removes a member. The member with the heavy groups
// must get none of its ranges, in whatever order the plan names the rings, and the standbys must
// agree. By count it would get them all.
func TestHeavyGroupsCountWhereRangesAreDealtOut(t *testing.T) {
	ids := map[string]int{"a": 1, "b": 5, "c": 5, "d": 5}
	namespaces := shard.Ring{Name: "namespaces", Scope: shard.ScopeNamespaced}
	for _, member := range []string{"a", "b", "c", "d"} {
		for i := range ids[member] {
			id := shard.ID{Ring: "namespaces", Name: fmt.Sprintf("%s%d", member, i)}
			namespaces.Shards = append(namespaces.Shards, shard.Shard{ID: id, Home: member, Weight: 400})
		}
	}
	cluster := shard.Ring{Name: "cluster", Scope: shard.ScopeCluster, Shards: []shard.Shard{
		{ID: shard.ID{Ring: "cluster", Name: "nodes"}, Group: "nodes", Home: "a", Weight: 2000},
		{ID: shard.ID{Ring: "cluster", Name: "volumes"}, Group: "volumes", ColocateWith: "nodes", Weight: 1600},
	}}
	members := []string{"a", "b", "c", "d"}
	for name, test := range map[string]struct {
		rings   []shard.Ring
		weights bool
		want    int
	}{
		"groups first":    {[]shard.Ring{cluster, namespaces}, true, 1},
		"ranges first":    {[]shard.Ring{namespaces, cluster}, true, 1},
		"without weights": {[]shard.Ring{cluster, namespaces}, false, 6},
	} {
		t.Run(name, func(t *testing.T) {
			plan := shard.Plan{Rings: test.rings}
			w, holders := Assignment{members: members, rings: map[string]ofRing{}}, map[shard.ID]string{}
			for i, ring := range plan.Rings {
				ring.Shards = append([]shard.Shard(nil), ring.Shards...)
				for j := range ring.Shards {
					if !test.weights {
						ring.Shards[j].Weight = 0
					}
				}
				plan.Rings[i] = ring
				homes, err := plan.HomesOf(ring.Name, members)
				if err != nil {
					t.Fatal(err)
				}
				w.rings[ring.Name] = ofRing{members: members, known: members, homes: homes}
				for _, s := range ring.Shards {
					holders[s.ID], _ = homes.Owner(s.ID)
				}
			}
			without := w.settle(plan, holders, "d")["namespaces"]
			next := w.Standbys(plan, holders)
			got := 0
			for _, s := range namespaces.Shards {
				owner, _ := without.Owner(s.ID)
				if owner == "a" {
					got++
				}
				if s.Home == "d" && next[s.ID] != owner {
					t.Errorf("the standby of %s is %q, but it would go to %s", s.ID, next[s.ID], owner)
				}
			}
			if got != test.want {
				t.Errorf("the member with the groups has %d ranges, want %d", got, test.want)
			}
		})
	}
}

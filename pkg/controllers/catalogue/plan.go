package catalogue

import (
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Names of the rings of the default plan.
const (
	NamespacesRing = shard.NamespacesRing
	ClusterRing    = shard.ClusterRing
)

// DefaultPlan returns the first plan of a fleet: ring "namespaces" with all namespaced controllers
// on shards equal ranges, and ring "cluster" with one shard for each group of cluster-scoped
// controllers, with ColocateWith for those that read the same objects. The garbage collector is in
// parts, one for each range and one for the cluster. The plan contains disabled controllers too:
// each member's flags say whether they run. The error names what is out of bounds.
func DefaultPlan(shards int) (shard.Plan, error) {
	ranges, err := shard.EqualShards(NamespacesRing, shards)
	if err != nil {
		return shard.Plan{}, err
	}
	namespaced := shard.Ring{Name: NamespacesRing, Scope: shard.ScopeNamespaced, Controllers: controllersOfRanges(), Shards: ranges}
	cluster := shard.Ring{Name: ClusterRing, Scope: shard.ScopeCluster}
	for _, group := range Groups() {
		cluster.Shards = append(cluster.Shards, shard.Shard{
			ID: shard.ID{Ring: ClusterRing, Name: group}, Group: group, Controllers: controllersOfGroup(group), ColocateWith: ColocateWith(group),
		})
	}
	plan := shard.Plan{Generation: 1, Rings: []shard.Ring{namespaced, cluster}}
	return plan, plan.Validate()
}

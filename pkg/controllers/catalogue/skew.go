package catalogue

import (
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// Build returns what this build, of the given version, knows about controllers: a fleet needs it
// while its members are of different versions. Operators decide whether the garbage collector is
// whole or in parts.
func Build(version string) skew.Build {
	b := skew.Build{
		Version:      otherVersion(version),
		Rings:        map[shard.Scope]string{shard.ScopeNamespaced: NamespacesRing, shard.ScopeCluster: ClusterRing},
		ColocateWith: map[string]string{},
		Controllers: []skew.Controller{
			{Name: ClusterCollector, Scopes: []shard.Scope{shard.ScopeCluster}, Group: GroupGarbage, Fixed: true, OnRequest: true},
		},
	}
	for _, group := range Groups() {
		b.ColocateWith[group] = ColocateWith(group)
	}
	for _, row := range All() {
		c := skew.Controller{Name: row.Name, Scopes: []shard.Scope{shard.Scope(row.Scope)}, Earlier: shard.Scope(row.EarlierScope), Group: row.Group}
		if row.EarlierScope != "" {
			c.Scopes = append(c.Scopes, c.Earlier)
		}
		if row.Name == names.GarbageCollectorController {
			c.Scopes, c.Fixed = append(c.Scopes, shard.ScopeNamespaced), true
		}
		b.Controllers = append(b.Controllers, c)
	}
	return b
}

package flotilla

import (
	"fmt"
	"slices"

	"k8s.io/client-go/discovery"
	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/flotilla-kube/flotilla/pkg/informer"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// process has what the shards share when controllers were added one by one.
type process struct {
	*Fleet
	pool   *informer.Pool
	mapper *restmapper.DeferredDiscoveryRESTMapper
	// checking is set if writes outside of the range pass, to be reported.
	checking bool
}

// oneByOne returns the shards of the controllers that were added one by one.
func (f *Fleet) oneByOne() (Shards, error) {
	plan, err := f.plan()
	if err != nil {
		return Shards{}, err
	}
	p := &process{Fleet: f}
	if err := p.connect(); err != nil {
		return Shards{}, err
	}
	return Shards{Plan: plan, Catalogue: f.catalogue(), Build: p.build, Informers: p.pool}, nil
}

// connect makes the clients that informers read with.
func (p *process) connect() error {
	c := rest.CopyConfig(p.config)
	// Informers of many shards start at once, and each only rarely: a limit here would make a
	// handoff take minutes. The API server's priority and fairness limits them.
	c.QPS, c.RateLimiter = -1, nil
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		return fmt.Errorf("creating the informers' client: %w", err)
	}
	objects, err := dynamic.NewForConfig(c)
	if err != nil {
		return fmt.Errorf("creating the informers' dynamic client: %w", err)
	}
	headers, err := metadata.NewForConfig(c)
	if err != nil {
		return fmt.Errorf("creating the informers' metadata client: %w", err)
	}
	resources, err := discovery.NewDiscoveryClientForConfig(c)
	if err != nil {
		return fmt.Errorf("creating the discovery client: %w", err)
	}
	p.mapper = restmapper.NewDeferredDiscoveryRESTMapper(cacheddiscovery.NewMemCacheClient(resources))
	p.pool, err = informer.NewPool(informer.PoolConfig{
		Client: client, Metadata: headers, Dynamic: objects, Clock: p.options.Clock,
	})
	return err
}

// plan returns the first plan of a fleet: equal ranges for the namespaced controllers, and a group
// for each of the others.
func (f *Fleet) plan() (shard.Plan, error) {
	ranges, err := shard.EqualShards(NamespacesRing, f.options.Ranges)
	if err != nil {
		return shard.Plan{}, err
	}
	namespaced := shard.Ring{Name: NamespacesRing, Scope: shard.ScopeNamespaced, Shards: ranges}
	cluster := shard.Ring{Name: ClusterRing, Scope: shard.ScopeCluster}
	for _, c := range f.controllers {
		if c.scope == shard.ScopeNamespaced {
			namespaced.Controllers = append(namespaced.Controllers, c.name)
			continue
		}
		id := shard.ID{Ring: ClusterRing, Name: c.name}
		cluster.Shards = append(cluster.Shards, shard.Shard{
			ID: id, Group: c.name, Controllers: []string{c.name},
		})
	}
	slices.Sort(namespaced.Controllers)
	plan := shard.Plan{Generation: 1}
	if len(namespaced.Controllers) > 0 {
		plan.Rings = append(plan.Rings, namespaced)
	}
	if len(cluster.Shards) > 0 {
		plan.Rings = append(plan.Rings, cluster)
	}
	return plan, plan.Validate()
}

// catalogue returns the controllers that this build knows.
func (f *Fleet) catalogue() skew.Build {
	b := skew.Build{
		Version: f.options.Version,
		Rings: map[shard.Scope]string{
			shard.ScopeNamespaced: NamespacesRing, shard.ScopeCluster: ClusterRing,
		},
	}
	for _, c := range f.controllers {
		known := skew.Controller{Name: c.name, Scopes: []shard.Scope{c.scope}}
		if c.scope == shard.ScopeCluster {
			known.Group = c.name
		}
		b.Controllers = append(b.Controllers, known)
	}
	return b
}

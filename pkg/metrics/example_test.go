package metrics_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/informer"
	"github.com/flotilla-kube/flotilla/pkg/metrics"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// A program registers the metrics of its member with a registry and a prefix of its own. The
// registry of controller-runtime, metrics.Registry, is a prometheus.Registerer too.
func Example() {
	registry := prometheus.NewRegistry()
	counted, err := metrics.New(metrics.Options{Fleet: "bosun", Prefix: "bosun"})
	if err != nil {
		panic(err)
	}
	member, err := fleet.New(fleet.Config{
		Fleet:  "bosun",
		Member: "bosun-0",
		Plan: shard.Plan{Generation: 1, Rings: []shard.Ring{{
			Name: "backups", Scope: shard.ScopeNamespaced, Controllers: []string{"backup"},
			Shards: []shard.Shard{{ID: shard.ID{Ring: "backups", Name: "all"}, Range: shard.Everything()}},
		}}},
		Leases:  leasetest.NewStore().Client("bosun-0"), // a program's are its client's, of one namespace
		Timing:  election.DefaultTiming(),
		Build:   build,
		Observe: counted.Count,
		Exit:    func(reason string) { panic(reason) },
	})
	if err != nil {
		panic(err)
	}
	if err := counted.Register(registry, metrics.Source{Member: member}); err != nil {
		panic(err)
	}
	// From here on, member.Run(ctx) takes part in the fleet, and promhttp.HandlerFor(registry, ...)
	// serves its metrics.
	families, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		if len(f.GetMetric()[0].GetLabel()) == 0 {
			fmt.Println(f.GetName(), f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	// Output:
	// bosun_canary_running 0
	// bosun_canary_tried 0
	// bosun_fence_policy 0
	// bosun_fleet_foreign_members 0
	// bosun_fleet_stopped 0
	// bosun_plan_controllers_lacking 0
	// bosun_plan_refused 0
}

// build makes the controllers of a shard.
func build(context.Context, fleet.Work) (fleet.Instance, error) {
	return nil, fmt.Errorf("this example runs nothing")
}

// A page of the program lists what it has.
func ExampleMetrics_Families() {
	m, err := metrics.New(metrics.Options{Fleet: "bosun"})
	if err != nil {
		panic(err)
	}
	named := func(name string) func(metrics.Family) bool {
		return func(f metrics.Family) bool { return f.Name == metrics.DefaultPrefix+name }
	}
	families := m.Families()
	owned := families[slices.IndexFunc(families, named("_shard_owned"))]
	fmt.Println(owned.Name, owned.Kind, owned.Labels)
	// Output: flotilla_shard_owned gauge [ring shard]
}

// Where the shards share a pool of informers, the metrics read it.
func ExampleInformers() {
	register := func(m *metrics.Metrics, member *fleet.Member, pool *informer.Pool) error {
		var informers metrics.Informers = pool
		return m.Register(prometheus.DefaultRegisterer, metrics.Source{Member: member, Informers: informers})
	}
	_ = register
}

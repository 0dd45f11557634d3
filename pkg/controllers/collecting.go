package controllers

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/client-go/metadata"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/controllers/garbage"
	"github.com/flotilla-kube/flotilla/pkg/controllers/owners"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// ofRanges ends the name, in limits, of a controller that may run in a group as well: there it runs
// once and limits itself.
const ofRanges = " of ranges"

// rangeCollectors is the name, in limits, of the garbage collectors of ranges, as opposed to one of
// the cluster or of the whole.
const rangeCollectors = names.GarbageCollectorController + ofRanges

// collectorIdentity is upstream's (cmd/kube-controller-manager/app/core.go:
// newGarbageCollectorController).
const collectorIdentity = "generic-garbage-collector"

// Collects returns the part of the graph of owners that the garbage collector of a shard has, zero
// for the whole or for none; and the shard's controllers by upstream's names, given those in a
// plan.
func Collects(s shard.Shard, controllers []string) (garbage.Part, []string) {
	controllers = slices.Clone(controllers)
	if i := slices.Index(controllers, catalogue.ClusterCollector); i >= 0 {
		controllers[i] = names.GarbageCollectorController
		return garbage.OfCluster, controllers
	}
	if s.Namespaced() && slices.Contains(controllers, names.GarbageCollectorController) {
		return garbage.OfRange, controllers
	}
	return 0, controllers
}

// limited returns the names of the controllers in limits.
func (s Spec) limited() []string {
	limited := make([]string, 0, len(s.Controllers))
	for _, name := range s.Controllers {
		limited = append(limited, s.limitedName(name))
	}
	return limited
}

func (s Spec) limitedName(controller string) string {
	row, _ := catalogue.Lookup(controller)
	switch {
	case controller == names.GarbageCollectorController && s.Collect == garbage.OfRange:
		return rangeCollectors
	case s.Namespaced && row.EarlierScope == catalogue.ScopeNamespaced:
		return controller + ofRanges
	}
	return controller
}

// informersOf returns a function that makes the informers of the instance's garbage collector,
// which the instance closes.
func (p *Process) informersOf(i *Instance, spec Spec) func(settle func(context.Context) error) informerfactory.InformerFactory {
	all := i.informers.ObjectOrMetadata()
	if spec.Collect == garbage.OfCluster {
		all = all.Picking(garbage.Pick(p.scopes))
	}
	return func(settle func(context.Context) error) informerfactory.InformerFactory {
		i.owners = owners.First(all, settle)
		if spec.Collect == 0 {
			return i.owners
		}
		return garbage.Informers(spec.Collect, p.scopes, i.owners)
	}
}

// collectorOf returns the constructor of the garbage collector of a part. Except for the client it
// does what upstream's does.
func (p *Process) collectorOf(spec Spec) func(context.Context, app.ControllerContext) (app.Controller, error) {
	return func(ctx context.Context, c app.ControllerContext) (app.Controller, error) {
		if !c.ComponentConfig.GarbageCollectorController.EnableGarbageCollector {
			return nil, nil
		}
		client, err := c.NewClient(collectorIdentity)
		if err != nil {
			return nil, err
		}
		discovery, err := c.ClientBuilder.DiscoveryClient(collectorIdentity)
		if err != nil {
			return nil, fmt.Errorf("failed to create the discovery client: %w", err)
		}
		config, err := c.NewClientConfig(collectorIdentity)
		if err != nil {
			return nil, err
		}
		config.QPS *= 2 // two requests a deletion; has no effect where the limit is shared, which is doubled itself
		objects, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		wrapped := garbage.ClusterClient(objects, c.RESTMapper)
		if spec.Collect == garbage.OfRange {
			wrapped = garbage.RangeClient(objects, spec.Range.ContainsNamespace)
		}
		return garbage.New(ctx, garbage.Config{
			Name: names.GarbageCollectorController, Client: client, Metadata: wrapped, Discovery: discovery, Mapper: c.RESTMapper, Graph: c.GraphBuilder,
			Workers: int(c.ComponentConfig.GarbageCollectorController.ConcurrentGCSyncs), Period: garbage.SyncPeriod,
		})
	}
}

// withMonitors returns the constructor of the storage version migrator with its own monitors.
func (i *Instance) withMonitors(build func(context.Context, app.ControllerContext) (app.Controller, error)) func(context.Context, app.ControllerContext) (app.Controller, error) {
	return func(ctx context.Context, c app.ControllerContext) (app.Controller, error) {
		if !c.ComponentConfig.GarbageCollectorController.EnableGarbageCollector {
			return build(ctx, c)
		}
		client, err := c.NewClient(names.StorageVersionMigratorController)
		if err != nil {
			return nil, err
		}
		discovery, err := c.ClientBuilder.DiscoveryClient(names.StorageVersionMigratorController)
		if err != nil {
			return nil, fmt.Errorf("failed to create the discovery client: %w", err)
		}
		migrations := c.InformerFactory.Storagemigration().V1().StorageVersionMigrations()
		monitors, err := garbage.NewMonitors(ctx, garbage.MonitorsConfig{
			Client: client, Metadata: i.informers.Reader(), Discovery: discovery, Mapper: c.RESTMapper,
			Migrations: migrations.Lister(), Listed: migrations.Informer().HasSynced, Transform: trim,
		})
		if err != nil {
			return nil, err
		}
		c.GraphBuilder = monitors.Graph()
		migrator, err := build(ctx, c)
		if migrator == nil || err != nil {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			monitors.Run(ended, func(context.Context) {}) // or what they were made with would stay
			return nil, err
		}
		return monitoredController{migrator, monitors}, nil
	}
}

// monitoredController runs beside its monitors.
type monitoredController struct {
	app.Controller
	monitors *garbage.Monitors
}

// Run implements app.Controller.
func (c monitoredController) Run(ctx context.Context) { c.monitors.Run(ctx, c.Controller.Run) }

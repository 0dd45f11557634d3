package cloud

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/flotilla"
)

// Controllers are the controllers of a cloud controller manager. Config, Cloud and Constructors are
// required.
type Controllers struct {
	// Config is upstream's, as its options return it.
	Config *config.CompletedConfig
	// Cloud is the provider's cloud, one for the process.
	Cloud cloudprovider.Interface
	// Constructors are by the names of the controllers, such as app.DefaultInitFuncConstructors.
	// Those that Config's --controllers excludes are not added.
	Constructors map[string]app.ControllerInitFuncConstructor
	// Namespaced are the names of controllers of namespaced objects, besides service-lb-controller:
	// one instance runs on each range. All others run once in the fleet. See docs/library.md for
	// the requirements on such a controller. Default: none.
	Namespaced []string
}

// Add adds the controllers to a fleet, which must have been made with Config's Kubeconfig and must
// not run yet. The cloud is initialized when the first controller runs here; what it starts should
// end with ctx, which should outlast the fleet's Run. The error names what is missing.
func Add(ctx context.Context, f *flotilla.Fleet, c Controllers) error {
	if c.Config == nil || c.Cloud == nil {
		return errors.New("cloud: Controllers.Config and Controllers.Cloud are required")
	}
	namespaced := append([]string{names.ServiceLBController}, c.Namespaced...)
	for _, name := range c.Namespaced {
		if _, is := c.Constructors[name]; !is {
			return fmt.Errorf(
				"cloud: Controllers.Namespaced names %q, of which there is no constructor", name,
			)
		}
	}
	m := newManager(ctx, c)
	added := 0
	for _, name := range slices.Sorted(maps.Keys(c.Constructors)) {
		if !genericcontrollermanager.IsControllerEnabled(
			name, app.ControllersDisabledByDefault, c.Config.ComponentConfig.Generic.Controllers,
		) {
			klog.FromContext(ctx).Info("A controller is disabled", "controller", name)
			continue
		}
		build := func(_ context.Context, s *flotilla.Shard) (flotilla.Runnable, error) {
			return m.build(s, name), nil
		}
		if slices.Contains(namespaced, name) {
			f.Namespaced(name, build)
		} else {
			f.Singleton(name, build)
		}
		added++
	}
	if added == 0 {
		return errors.New(
			"cloud: there are no controllers, or --controllers leaves out all of them",
		)
	}
	return nil
}

// manager is what the controllers of a process share.
type manager struct {
	Controllers
	ctx     context.Context
	metrics *controllersmetrics.ControllerManagerMetrics
	running running

	initialize sync.Once
}

func newManager(ctx context.Context, c Controllers) *manager {
	controllersmetrics.Register()
	return &manager{
		Controllers: c, ctx: ctx,
		metrics: controllersmetrics.NewControllerManagerMetrics(component),
	}
}

// build asks for the informers of upstream's own controllers, which are then filled before the
// shard is owned. Run makes the controller itself: upstream's InitFuncs start what they make.
func (m *manager) build(s *flotilla.Shard, name string) flotilla.Runnable {
	switch name {
	case names.ServiceLBController:
		s.Informers().Core().V1().Services().Informer()
		s.Informers().Core().V1().Nodes().Informer()
	case names.CloudNodeController, names.CloudNodeLifecycleController, names.NodeRouteController:
		s.Informers().Core().V1().Nodes().Informer()
	}
	return &work{manager: m, shard: s, name: name, guard: &guard{shard: s, value: s}}
}

// work is one controller of one shard.
type work struct {
	manager *manager
	shard   *flotilla.Shard
	name    string
	guard   *guard
}

// Run implements flotilla.Runnable.
func (w *work) Run(ctx context.Context) error {
	defer w.manager.running.add(w.shard)()
	return w.guard.run(context.WithValue(ctx, shardKey{}, w.shard), w.start)
}

// start makes and starts the controller, and returns when ctx ends.
func (w *work) start(ctx context.Context) error {
	m, logger := w.manager, klog.FromContext(ctx)
	m.initialize.Do(m.initializeCloud)
	shardConfig, builder, err := m.configFor(w.shard)
	if err != nil {
		return err
	}
	asked, err := m.contextFor(ctx, w.shard, builder)
	if err != nil {
		return err
	}
	constructor := m.Constructors[w.name]
	if _, err := builder.Config(constructor.InitContext.ClientName); err != nil {
		return fmt.Errorf("configuring the client: %w", err)
	}
	start := constructor.Constructor(
		constructor.InitContext, shardConfig, guarded{m.Cloud, w.guard},
	)
	_, started, err := start(ctx, asked)
	switch {
	case err != nil:
		return fmt.Errorf("starting: %w", err)
	case !started:
		logger.Info("Skipped the controller: the cloud does not support it, or flags say so")
	}
	// Starts informers that the constructor has asked for, in addition to build's.
	w.shard.Informers().StartWithContext(ctx)
	m.Config.SharedInformers.Start(m.ctx.Done())
	close(asked.InformersStarted)
	<-ctx.Done()
	return nil
}

// initializeCloud does what upstream does once a leader is elected.
func (m *manager) initializeCloud() {
	m.Cloud.Initialize(m.processBuilder(), m.ctx.Done())
	if user, is := m.Cloud.(cloudprovider.InformerUser); is {
		user.SetInformers(m.Config.SharedInformers)
	}
}

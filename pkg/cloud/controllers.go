package cloud

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
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
	// UndividedServices is set to run service-lb-controller once in the fleet, for a cloud in which
	// load balancers share something that is changed by reading it and writing it back. All members
	// must agree: stop the fleet to change it. Default: it runs once on each range.
	UndividedServices bool
}

// Add adds the controllers to a fleet, which must have been made with Config's Kubeconfig and must
// not run yet. The cloud is initialized when the first controller runs here; what it starts should
// end with ctx, which should outlast the fleet's Run. The error names what is missing.
//
// Ready of the fleet does not know whether the cloud has been initialized. The readiness probe of
// [NewCommand] does.
func Add(ctx context.Context, f *flotilla.Fleet, c Controllers) error {
	_, err := add(ctx, f, c)
	return err
}

// adder is the part of a flotilla.Fleet to which controllers are added.
type adder interface {
	Namespaced(name string, build flotilla.Build)
	Singleton(name string, build flotilla.Build)
}

// add is Add, and returns what the controllers share.
func add(ctx context.Context, f adder, c Controllers) (*manager, error) {
	if c.Config == nil || c.Cloud == nil {
		return nil, errors.New("cloud: Controllers.Config and Controllers.Cloud are required")
	}
	for _, name := range c.Namespaced {
		if _, is := c.Constructors[name]; !is {
			return nil, fmt.Errorf(
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
		if c.namespaced(name) {
			f.Namespaced(name, build)
		} else {
			f.Singleton(name, build)
		}
		added++
	}
	if added == 0 {
		return nil, errors.New(
			"cloud: there are no controllers, or --controllers leaves out all of them",
		)
	}
	return m, nil
}

// namespaced reports whether the controller runs once on each range.
func (c Controllers) namespaced(name string) bool {
	if name == names.ServiceLBController {
		return !c.UndividedServices
	}
	return slices.Contains(c.Namespaced, name)
}

// manager is what the controllers of a process share.
type manager struct {
	Controllers
	ctx     context.Context
	metrics *controllersmetrics.ControllerManagerMetrics
	running running
	// credentials are configurations that are not fenced, by the names of clients.
	credentials configs

	initialize sync.Once
	// usable is set once the cloud is.
	usable atomic.Bool
	// readiness is the probe's.
	readiness readiness
}

func newManager(ctx context.Context, c Controllers) *manager {
	controllersmetrics.Register()
	ask := configs(func(name string) (*rest.Config, error) {
		return c.Config.ClientBuilder.Config(name)
	})
	return &manager{
		Controllers: c, ctx: ctx, credentials: ask.remembering(),
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
	if err := m.initializeCloud(ctx); err != nil {
		return err
	}
	shardConfig, clients, err := m.configFor(w.shard)
	if err != nil {
		return err
	}
	asked, err := m.contextFor(ctx, w.shard, clients)
	if err != nil {
		return err
	}
	constructor := m.Constructors[w.name]
	if _, err := clients.Config(constructor.InitContext.ClientName); err != nil {
		return fmt.Errorf("configuring the client: %w", err)
	}
	refreshing, stop := context.WithCancel(ctx)
	defer stop()
	// Not waited for: Reset blocks while a lookup asks the API server, and changes nothing there.
	go refresh(refreshing, asked.RESTMapper)
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

// initializeCloud does what upstream does once a leader is elected, once in the process. It returns
// when the provider's informers are full: calls to the cloud may read them. The error says that ctx
// ended first.
func (m *manager) initializeCloud(ctx context.Context) error {
	m.initialize.Do(func() {
		defer whenSlow(ctx, func(logger klog.Logger) {
			logger.Info("Waiting for the provider's Initialize")
		})()
		m.Cloud.Initialize(m.processBuilder(), m.ctx.Done())
		if user, is := m.Cloud.(cloudprovider.InformerUser); is {
			user.SetInformers(m.Config.SharedInformers)
		}
		m.Config.SharedInformers.Start(m.ctx.Done())
	})
	defer whenSlow(ctx, func(logger klog.Logger) {
		logger.Info(
			"Waiting for informers of the provider to fill", "types",
			unfilled(m.Config.SharedInformers),
		)
	})()
	if err := m.Config.SharedInformers.WaitForCacheSyncWithContext(ctx).Err; err != nil {
		return err
	}
	m.usable.Store(true)
	return nil
}

// patience is how long a member that was ready stays ready while the cloud of its first shard is
// initialized. See fleet.Member.Ready for why it must.
const patience = 5 * time.Minute

// readiness is what the readiness probe remembers between two requests. It is safe for concurrent
// use.
type readiness struct {
	mu sync.Mutex
	// once is set when the member is first ready.
	once bool
	// since is when the probe first found a shard that runs without a cloud.
	since time.Time
}

// ready returns an error if the member runs a shard and the cloud has never been usable. A shard
// counts even before its controllers ask for the cloud: otherwise the member would be ready while
// it fills their caches. fleet is why the member is otherwise not ready.
func (m *manager) ready(fleet error, runs bool) error {
	m.readiness.mu.Lock()
	defer m.readiness.mu.Unlock()
	if !runs || m.usable.Load() {
		m.readiness.once = m.readiness.once || fleet == nil
		m.readiness.since = time.Time{}
		return nil
	}
	if m.readiness.since.IsZero() {
		m.readiness.since = time.Now()
	}
	if m.readiness.once && time.Since(m.readiness.since) < patience {
		return nil
	}
	return errors.New("the cloud has not been initialized")
}

// slow is how long something at the start of a controller may take before the log says so.
const slow = 30 * time.Second

// whenSlow calls tell after a while, unless done is called before.
func whenSlow(ctx context.Context, tell func(klog.Logger)) (done func()) {
	timer := time.AfterFunc(slow, func() { tell(klog.FromContext(ctx)) })
	return func() { timer.Stop() }
}

// unfilled returns the types of the started informers that are not full.
func unfilled(factory informers.SharedInformerFactory) []string {
	ended := make(chan struct{})
	close(ended)
	var types []string
	for of, full := range factory.WaitForCacheSync(ended) {
		if !full {
			types = append(types, of.String())
		}
	}
	slices.Sort(types)
	return types
}

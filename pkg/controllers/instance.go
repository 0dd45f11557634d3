package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/transport"
	"k8s.io/controller-manager/controller"
	"k8s.io/controller-manager/pkg/clientbuilder"
	controllerhealthz "k8s.io/controller-manager/pkg/healthz"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	pkgcontroller "k8s.io/kubernetes/pkg/controller"
	kubectrlmgrconfig "k8s.io/kubernetes/pkg/controller/apis/config"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/controllers/garbage"
	"github.com/flotilla-kube/flotilla/pkg/controllers/owners"
	"github.com/flotilla-kube/flotilla/pkg/controllers/queues"
	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/informer"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Spec says what an instance runs, on what, and how.
type Spec struct {
	// ID is the shard's ID. The zero ID is for a process that is not sharded: then health checks
	// and debug handlers have upstream's names.
	ID shard.ID
	// Range is the part of the keyspace whose namespaces the instance sees. Everything for groups
	// of cluster-scoped controllers.
	Range shard.Range
	// Namespaced is set for a shard of a namespaced ring, which may have one range: everything.
	Namespaced bool
	// Controllers are upstream's names. Disabled ones are skipped.
	Controllers []string
	// Collect is the part of the graph of owners for the garbage collector, if it is among
	// Controllers: garbage.OfRange, with one collector in each range, or garbage.OfCluster, with
	// one in the fleet. Zero for the whole.
	Collect garbage.Part
	// Share divides each controller's workers: how many shards of the ring a member is expected to
	// hold. Below 2 the flags' number of workers applies.
	Share int
	// Shards is the number of shards in the ring; below 2 the instance is the only one. It divides
	// the limits of requests if the fleet shares them ([Process.ShareLimits]).
	Shards int
	// Fence wraps the transport of every client of the instance; nil for none.
	Fence transport.WrapperFunc
	// Closed is closed when the fence lets nothing pass any more; nil for never. It frees
	// controllers that wait for their rate limit.
	Closed <-chan struct{}
	// Running is called by Run once the controllers run and all caches are full; nil to call
	// nothing.
	Running func()
	// ShutdownTimeout is how long Run waits for controllers to return before it returns
	// [ErrShutdownTimeout]. It is for a process that then ends; 0, no limit, for shards.
	ShutdownTimeout time.Duration
}

// ErrShutdownTimeout is the error of an Instance whose controllers did not return within
// Spec.ShutdownTimeout. They still run.
var ErrShutdownTimeout = errors.New("controller shutdown timeout reached")

// Instance is one shard's controllers in this process. Call either Run, once, or Close.
type Instance struct {
	id      shard.ID
	collect garbage.Part
	// collects says that a garbage collector is among the controllers.
	collects  bool
	context   app.ControllerContext
	informers *informer.Factory
	// owners are the informers of the garbage collector; nil without one.
	owners      *owners.Informers
	mu          sync.Mutex // guards controllers, to which Run may add
	controllers []app.Controller
	queues      *queues.Group
	idle        sets.Set[string]
	running     func()
	shutdown    time.Duration
	// count counts the instance among those that share the limits of requests, until discount is
	// called.
	count func() (discount func())
	// start waits until a controller may begin, or ctx ends.
	start func(ctx context.Context)
	// late builds the controllers that must not be built before the claim is held.
	late      func() error
	started   chan struct{}
	endpoints *Endpoints
	debug     []string
	// removeChecks removes the health checks; nil if they have not been added.
	removeChecks func()
	// ctx is the context for constructors; cancel ends what they tied to it.
	ctx    context.Context // Lives exactly as long as the instance.
	cancel context.CancelFunc
}

// Build makes the instance. It returns an error, and leaves nothing behind, if a controller cannot
// be built. ctx is for the construction and the logger; it must not end before Run does.
func (p *Process) Build(ctx context.Context, spec Spec) (*Instance, error) {
	if spec.Fence == nil {
		spec.Fence = transport.Wrappers()
	}
	if spec.Running == nil {
		spec.Running = func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	i := &Instance{
		id:        spec.ID,
		collect:   spec.Collect,
		informers: p.pool.NewFactory(spec.Range, p.namespaced),
		started:   make(chan struct{}),
		endpoints: p.endpoints,
		ctx:       ctx,
		cancel:    cancel,
		late:      func() error { return nil },
		queues:    queues.NewGroup(spec.ID.Ring, spec.ID.Name),
		idle:      p.idle,
		running:   spec.Running,
		shutdown:  spec.ShutdownTimeout,
		start:     func(ctx context.Context) { pause(ctx, p.clock, p.startDelay()) },
		count:     func() func() { return p.limits.count(spec.limited(), spec.Shards) },
	}
	if spec.Namespaced {
		i.informers.OnlyRange()
	}
	i.context = app.ControllerContext{
		InformerFactory:                 i.informers,
		ObjectOrMetadataInformerFactory: i.informers.ObjectOrMetadata(),
		ComponentConfig:                 shareOf(p.config.ComponentConfig, spec),
		RESTMapper:                      p.mapper,
		InformersStarted:                i.started,
		ResyncPeriod:                    p.resyncPeriod,
		ControllerManagerMetrics:        p.metrics,
	}
	if err := p.reachable(); err != nil {
		i.cleanup()
		return nil, err
	}
	var err error
	i.queues.Do(func() { err = p.buildControllers(ctx, i, spec) })
	if err != nil {
		i.Close()
		i.Forget() // nothing of it has run, and the caller gets nothing to call Forget on
		return nil, err
	}
	return i, nil
}

// reachable fails if the API server does not answer, before anything is built that would have to be
// given up again.
func (p *Process) reachable() error {
	if _, err := p.config.Client.Discovery().ServerVersion(); err != nil {
		return fmt.Errorf("reaching the API server: %w", err)
	}
	return nil
}

// buildControllers builds the enabled controllers in their order.
func (p *Process) buildControllers(ctx context.Context, i *Instance, spec Spec) (err error) {
	defer recovered(&err)
	root := p.fenced(i, p.root, spec, "")
	wanted := buildOrder(p.Runs(spec.Controllers))
	if slices.Contains(wanted, names.GarbageCollectorController) {
		if spec.Collect != 0 {
			if err := p.scopes.Refresh(); err != nil {
				return err
			}
		}
		i.collects = true
		if err := i.buildGraph(ctx, root, p.informersOf(i, spec)); err != nil {
			return err
		}
	}
	if err := i.index(wanted); err != nil {
		return err
	}
	if slices.Contains(wanted, names.ServiceAccountTokenController) {
		own, err := i.contextOf(names.ServiceAccountTokenController)
		if err != nil {
			return err
		}
		c, err := newTokensController(ctx, own, p.fenced(i, p.root, spec, names.ServiceAccountTokenController))
		if err != nil {
			return fmt.Errorf("building %s: %w", names.ServiceAccountTokenController, err)
		}
		i.add(c)
	}
	var late []string
	for _, name := range wanted {
		if row, _ := catalogue.Lookup(name); row.BuildAfterClaim {
			late = append(late, name)
		} else if err := p.buildController(ctx, i, spec, name); err != nil {
			return err
		}
	}
	i.late = func() (err error) {
		defer recovered(&err)
		i.queues.Do(func() {
			for _, name := range late {
				if err = p.buildController(ctx, i, spec, name); err != nil {
					return
				}
			}
		})
		return err
	}
	return nil
}

// buildController builds one controller, unless that needs special handling.
func (p *Process) buildController(ctx context.Context, i *Instance, spec Spec, name string) error {
	d := app.NewControllerDescriptors()[name]
	if d.RequiresSpecialHandling() {
		return nil
	}
	controllerContext, err := i.contextOf(name)
	if err != nil {
		return err
	}
	controllerContext.ClientBuilder = p.fenced(i, p.identities, spec, name)
	build := d.BuildController
	if name == names.GarbageCollectorController && spec.Collect != 0 {
		build = p.collectorOf(spec)
	} else if name == names.StorageVersionMigratorController && (spec.Collect != 0 || !i.collects) {
		build = i.withMonitors(build)
	}
	c, err := build(ctx, controllerContext)
	if err != nil {
		return fmt.Errorf("building %s: %w", name, err)
	}
	i.add(c)
	return nil
}

// recovered turns what orDie and exiting panicked with into an error.
func recovered(err *error) {
	switch r := recover().(type) {
	case nil:
	case buildError:
		*err = r.error
	case exiting:
		*err = fmt.Errorf("a constructor wanted to end the process with status %d; its log line says why", int(r))
	default:
		panic(r)
	}
}

// exiting is the panic value of upstream code that would otherwise end the process through klog.
// The namespace controller's constructor does that when discovery fails, which in the stock
// controller manager can only happen at its start; here it would take all other shards of the
// process down. If nobody recovers from it, it still ends the process.
type exiting int

func init() {
	klog.OsExit = func(status int) { panic(exiting(status)) }
}

func (p *Process) fenced(i *Instance, base clientbuilder.ControllerClientBuilder, spec Spec, controller string) clientbuilder.ControllerClientBuilder {
	b := clientBuilder{base: base, fence: spec.Fence, controller: controller, limitedAs: spec.limitedName(controller), limits: p.limits, resources: &p.resources, shards: spec.Shards, closed: spec.Closed}
	if row, _ := catalogue.Lookup(controller); row.AwaitUpdates {
		b.see = i.informers.See
	}
	return b
}

// add adds a controller; nil means that its constructor declined.
func (i *Instance) add(c app.Controller) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if c != nil {
		i.controllers = append(i.controllers, c)
	}
}

// index adds the indexes that a controller relies on another one to add.
func (i *Instance) index(wanted []string) error {
	for _, name := range wanted {
		if row, _ := catalogue.Lookup(name); slices.Contains(row.Needs, catalogue.NeedPodNodeNameIndex) {
			return pkgcontroller.AddPodNodeNameIndexer(i.informers.Core().V1().Pods().Informer())
		}
	}
	return nil
}

// graphQueue is the queue from which the garbage collector builds its graph
// (garbagecollector/graph_builder.go: NewDependencyGraphBuilder). One worker takes its items in
// order, and each is a separate event.
const graphQueue = "garbage_collector_graph_changes"

// buildGraph gives the context what the garbage collector is built from. of returns its informers,
// given settle, which returns when the graph is complete.
func (i *Instance) buildGraph(ctx context.Context, root clientbuilder.ControllerClientBuilder, of func(settle func(context.Context) error) informerfactory.InformerFactory) error {
	gc := i.context.ComponentConfig.GarbageCollectorController
	if !gc.EnableGarbageCollector {
		return nil
	}
	config, err := root.Config("metadata-informers")
	if err != nil {
		return err
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	ignored := map[schema.GroupResource]struct{}{}
	for _, r := range gc.GCIgnoredResources {
		ignored[schema.GroupResource{Group: r.Group, Resource: r.Resource}] = struct{}{}
	}
	settle := func(ctx context.Context) error { return i.queues.Settle(ctx, graphQueue) }
	i.context.GraphBuilder = garbagecollector.NewDependencyGraphBuilder(
		ctx, client, i.context.RESTMapper, ignored, of(settle), i.started)
	// Without the queue nobody could say when the graph is complete: better to have no garbage
	// collector.
	return settle(ctx)
}

// mount puts the controllers' health checks and debug handlers on the process's endpoints.
func (i *Instance) mount() {
	var checks []healthz.HealthChecker
	for _, c := range i.controllers {
		name := i.endpointName(c.Name())
		check := controllerhealthz.NamedPingChecker(name)
		if checkable, ok := c.(controller.HealthCheckable); ok {
			if real := checkable.HealthChecker(); real != nil {
				check = controllerhealthz.NamedHealthChecker(name, real)
			}
		}
		checks = append(checks, check)
		if debuggable, ok := c.(controller.Debuggable); ok {
			if h := debuggable.DebuggingHandler(); h != nil {
				for _, path := range i.debugNames(c.Name()) {
					i.endpoints.AddDebug(path, h)
					i.debug = append(i.debug, path)
				}
			}
		}
	}
	i.removeChecks = i.endpoints.AddChecks(i.id.String(), checks)
}

// debugNames are the names of a controller's debug handler: with its shard, and also upstream's if
// there is no other instance in the fleet.
func (i *Instance) debugNames(controller string) []string {
	paths := []string{i.endpointName(controller)}
	if i.collect == garbage.OfRange && controller == names.GarbageCollectorController {
		return paths
	}
	if row, ok := catalogue.Lookup(controller); ok && row.Scope == catalogue.ScopeCluster && paths[0] != controller {
		paths = append(paths, controller)
	}
	return paths
}

// endpointName is the controller's name with its shard, or alone without sharding.
func (i *Instance) endpointName(controller string) string {
	if i.id == (shard.ID{}) {
		return controller
	}
	return controller + "@" + i.id.String()
}

// Controllers returns the names of the controllers that the instance runs, in the order in which
// they were built. Those that must not be built before the claim is held appear once Run has built
// them.
func (i *Instance) Controllers() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	running := make([]string, 0, len(i.controllers))
	for _, c := range i.controllers {
		running = append(running, c.Name())
	}
	return running
}

// given is how many objects a namespace has at least, soon after it was created: itself, and the
// service account and the certificate of the root CA that controllers give to each.
const given = 3

// Weigh returns how many objects the instance caches, or is about to create in new namespaces, by
// namespace; nil once it has ended. So namespaces that have just been created weigh what they will,
// and not nothing.
func (i *Instance) Weigh() map[string]int64 {
	weights := i.informers.Weights()
	for namespace, n := range weights {
		weights[namespace] = max(n, given)
	}
	return weights
}

// Informers returns the instance's informers, for metrics and readiness.
func (i *Instance) Informers() *informer.Factory { return i.informers }

// Warm fills the instance's caches and returns when they are full; they stay fresh until Run or
// Close. The controllers get no events before Run, so their queues stay empty however long it
// lasts. The error says that ctx ended first.
func (i *Instance) Warm(ctx context.Context) error {
	if err := i.informers.Warm(ctx); err != nil {
		return fmt.Errorf("filling the caches of %s: %w", i.id, err)
	}
	return nil
}

// CatchUp returns once the caches, filled by Warm, have seen the writes, all of which must be
// known; see fence.Writes. The error says what they had not seen when ctx ended.
func (i *Instance) CatchUp(ctx context.Context, writes fence.Writes) error {
	marks := map[schema.GroupResource]informer.Mark{}
	for resource, mark := range writes.Marks() {
		marks[resource] = informer.Mark(mark)
	}
	return i.informers.CatchUp(ctx, marks)
}

// Refresh returns once the caches, filled by Warm, have seen everything that was written before the
// call. The error says which had not when ctx ended.
func (i *Instance) Refresh(ctx context.Context) error { return i.informers.Refresh(ctx) }

// Run runs the controllers until ctx ends, and returns when all of them have returned and nothing
// of the instance is left. The error is [ErrShutdownTimeout] if some have not returned, or says
// that one could not be built; then nothing has run.
func (i *Instance) Run(ctx context.Context) error {
	defer i.count()()
	// A constructor may wait for an API server, for longer than the shard is owned.
	stop := context.AfterFunc(ctx, i.cancel)
	err := i.late()
	switch {
	case !stop():
		i.Close()
		return nil
	case err != nil:
		i.Close()
		return err
	}
	stopped := true
	defer func() {
		if stopped {
			i.cleanup()
		}
	}()
	i.mount()
	// The informers keep running until the last controller has returned.
	i.informers.StartWithContext(context.WithoutCancel(ctx))
	close(i.started)
	defer i.announce(ctx)()
	if len(i.controllers) == 0 {
		<-ctx.Done()
		return nil
	}
	if stopped = app.RunControllers(ctx, i.context, i.grouped(), app.ControllerStartJitter, i.shutdown); !stopped {
		return ErrShutdownTimeout
	}
	<-ctx.Done() // even if every controller returns because it has nothing to do
	return nil
}

// Forget empties the instance's caches. Call it when the fence has closed: some goroutines outlive
// their controller, and might act on finding nothing. It does nothing before Run or Close has
// returned, nor if Run has left controllers behind.
func (i *Instance) Forget() { i.informers.Forget() }

// Close cleans up an instance that will not be run. Upstream's controllers end what they started in
// their constructors only in Run, so Close runs each with a context that has ended.
func (i *Instance) Close() {
	ended, cancel := context.WithCancel(klog.NewContext(i.ctx, klog.LoggerWithName(klog.FromContext(i.ctx), "close")))
	cancel()
	defer i.cleanup()
	close(i.started) // the garbage collector waits for this even when it should end
	if len(i.controllers) > 0 {
		app.RunControllers(ended, i.context, i.controllers, app.ControllerStartJitter, 0)
	}
}

func (i *Instance) cleanup() {
	i.cancel()
	if i.owners != nil {
		i.owners.Close()
	}
	i.informers.Shutdown()
	i.queues.Close()
	if i.removeChecks != nil {
		i.removeChecks()
	}
	for _, name := range i.debug {
		i.endpoints.RemoveDebug(name)
	}
}

// shareOf returns the configuration for one shard, with its share of the workers: at least one. It
// has no interval between the starts of controllers, which upstream would sleep for even in Close;
// see Process.startDelay.
func shareOf(all kubectrlmgrconfig.KubeControllerManagerConfiguration, spec Spec) kubectrlmgrconfig.KubeControllerManagerConfiguration {
	c := *all.DeepCopy()
	c.Generic.ControllerStartInterval.Duration = 0
	for _, name := range spec.Controllers {
		row, ok := catalogue.Lookup(name)
		if !ok {
			continue
		}
		for _, workers := range row.Workers(&c) {
			*workers = divide(*workers, spec.Share)
		}
	}
	return c
}

// divide rounds up, and does not change a number that is not positive: that means something else.
// Rounded down, four members of four shards each send fewer updates with high limits and use 7 %
// less CPU, but one replica with four shards takes 8 % longer: each worker waits for its answers.
func divide(n int32, by int) int32 {
	if n <= 0 || by < 2 {
		return n
	}
	return (n + int32(by) - 1) / int32(by)
}

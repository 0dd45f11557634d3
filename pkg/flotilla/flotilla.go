package flotilla

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/discovery"
	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/events"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/informer"
	"github.com/flotilla-kube/flotilla/pkg/metrics"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// Names of the rings of a fleet's first plan.
const (
	NamespacesRing = "namespaces"
	ClusterRing    = "cluster"
)

// Build makes a controller for a shard. An error is tried again after a while, for as long as the
// shard is this member's. ctx gives it its values, such as a logger; what it builds may not depend
// on its end.
type Build func(ctx context.Context, s *Shard) (Runnable, error)

// Runnable is one controller of one shard.
type Runnable interface {
	// Run works until ctx ends, and returns once all that it has started has ended. An error before
	// ctx ends has all controllers of the shard return, and be built anew after a while: on this
	// member, which goes on owning the shard.
	Run(ctx context.Context) error
}

// RunnableFunc is a function as a Runnable.
type RunnableFunc func(ctx context.Context) error

// Run calls f.
func (f RunnableFunc) Run(ctx context.Context) error { return f(ctx) }

// Warmer is a Runnable that fills caches of its own before the shard is owned.
type Warmer interface {
	// Warm returns when they are full. They stay fresh until Run's context ends or Close is called.
	// The error says that ctx ended before, or why they cannot be filled.
	Warm(ctx context.Context) error
}

// Closer is a Runnable that must be told when it is given up without having been run.
type Closer interface {
	// Close returns once all that the controller has started has ended.
	Close()
}

// Fleet is this process's part in a fleet. Add the controllers first, then call Run, once. Ready,
// Live and Member may be called at any time, concurrently.
type Fleet struct {
	options Options
	config  *rest.Config

	mu          sync.Mutex
	controllers []controller
	member      *fleet.Member
	ran         bool
}

// controller is one that was added.
type controller struct {
	name    string
	scope   shard.Scope
	build   Build
	limiter flowcontrol.RateLimiter
}

// New returns a fleet that does nothing yet, and does not contact the API server. The error names
// each field that is out of bounds. Clients of the fleet and of its controllers are made from
// config: its User-Agent is what they begin theirs with, its QPS and Burst limit each controller.
func New(config *rest.Config, options Options) (*Fleet, error) {
	if config == nil {
		return nil, errors.New("flotilla: config is nil")
	}
	options, err := options.complete()
	if err != nil {
		return nil, fmt.Errorf("flotilla: %w", err)
	}
	config = rest.CopyConfig(config)
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	return &Fleet{options: options, config: config}, nil
}

// Namespaced adds a controller of objects that lie in namespaces. One instance runs on each range.
// The name, a DNS label, is unique in the fleet. It panics where Singleton does.
func (f *Fleet) Namespaced(name string, build Build) { f.add(name, shard.ScopeNamespaced, build) }

// Singleton adds a controller of which one instance runs in the fleet, on everything: one of
// cluster-scoped objects. It panics if the name is no DNS label or is taken, if build is nil, or
// after Run: mistakes of the program.
func (f *Fleet) Singleton(name string, build Build) { f.add(name, shard.ScopeCluster, build) }

func (f *Fleet) add(name string, scope shard.Scope, build Build) {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := slices.ContainsFunc(f.controllers, func(c controller) bool { return c.name == name })
	switch why := validation.IsDNS1123Label(name); {
	case len(why) > 0:
		panic(fmt.Sprintf("flotilla: controller name %q: %s", name, why[0]))
	case taken:
		panic(fmt.Sprintf("flotilla: controller %q has been added before", name))
	case build == nil:
		panic(fmt.Sprintf("flotilla: controller %q: build is nil", name))
	case f.ran:
		panic(fmt.Sprintf("flotilla: controller %q is added after Run", name))
	}
	f.controllers = append(f.controllers, controller{name, scope, build, limiterOf(f.config)})
}

// limiterOf returns the limit of one controller's requests in the process; nil for none.
func limiterOf(config *rest.Config) flowcontrol.RateLimiter {
	if config.RateLimiter != nil || config.QPS < 0 {
		return config.RateLimiter
	}
	qps, burst := config.QPS, config.Burst
	if qps == 0 {
		qps = rest.DefaultQPS
	}
	if burst == 0 {
		burst = rest.DefaultBurst
	}
	return flowcontrol.NewTokenBucketRateLimiter(qps, burst)
}

// Run runs the controllers of the shards that the fleet gives to this member, until ctx ends. Then
// it hands them over and returns nil. The error says why the process cannot be a member any more:
// it should end and be restarted.
func (f *Fleet) Run(ctx context.Context) error {
	process, err := f.start(klog.FromContext(ctx))
	if err != nil {
		return fmt.Errorf("flotilla: %w", err)
	}
	defer process.broadcaster.Shutdown()
	return process.member.Run(ctx)
}

// Ready returns nil once the member has what the fleet has given to it, for a readiness probe. What
// it returns otherwise says what is missing.
func (f *Fleet) Ready() error {
	if m := f.Member(); m != nil {
		return m.Ready()
	}
	return errNotRun
}

// Live returns nil while the member's loops turn, for a liveness probe. Before Run it is nil.
func (f *Fleet) Live() error {
	if m := f.Member(); m != nil {
		return m.Live()
	}
	return nil
}

var errNotRun = errors.New("the fleet has not been run yet")

// Member returns what the process knows of itself and of the fleet; nil before Run.
func (f *Fleet) Member() *fleet.Member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.member
}

// process is what the shards of a running member share.
type process struct {
	*Fleet
	pool   *informer.Pool
	mapper *restmapper.DeferredDiscoveryRESTMapper
	member *fleet.Member
	// broadcaster sends the fleet's events, on its Leases.
	broadcaster record.EventBroadcaster
}

// start makes the member.
func (f *Fleet) start(logger klog.Logger) (_ *process, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.ran:
		return nil, errors.New("Run was called before")
	case len(f.controllers) == 0:
		return nil, errors.New("there are no controllers: add them with Namespaced and Singleton")
	}
	f.ran = true
	p := &process{Fleet: f, broadcaster: record.NewBroadcaster()}
	defer func() {
		if err != nil {
			p.broadcaster.Shutdown()
		}
	}()
	if err := p.connect(); err != nil {
		return nil, err
	}
	if p.member, err = p.newMember(logger); err != nil {
		return nil, err
	}
	f.member = p.member
	return p, nil
}

func (p *process) newMember(logger klog.Logger) (*fleet.Member, error) {
	client, err := kubernetes.NewForConfig(fleet.LeaseConfig(p.config, p.options.Member))
	if err != nil {
		return nil, fmt.Errorf("creating the client for Leases: %w", err)
	}
	plan, err := p.plan()
	if err != nil {
		return nil, err
	}
	o := p.options
	counted, err := metrics.New(metrics.Options{Fleet: o.Fleet, Prefix: o.MetricPrefix})
	if err != nil {
		return nil, err
	}
	p.broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events(o.Namespace)})
	recorder := events.NewRecorder(events.Config{
		Fleet: o.Fleet, Member: o.Member, Namespace: o.Namespace, Count: counted.Count, Logger: logger,
		Events: p.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: o.Fleet, Host: o.Member}),
	})
	member, err := fleet.New(fleet.Config{
		Fleet: o.Fleet, Member: o.Member, Node: o.Node, Zone: o.Zone, Plan: plan,
		Catalogue:      p.catalogue(),
		Gates:          o.Gates,
		GateDelay:      o.GateDelay,
		Leases:         client.CoordinationV1().Leases(o.Namespace),
		Clock:          o.Clock,
		Timing:         o.Timing,
		RebalanceDelay: o.RebalanceDelay,
		Replanning:     fleet.Replanning{Interval: o.ReplanInterval},
		Build:          p.build,
		HandoffTimeout: o.HandoffTimeout,
		Standby:        o.Standby,
		Observe:        func(e fleet.Event) { recorder.Observe(e); o.Observe(e) },
		Exit:           o.Exit,
	})
	if err != nil || o.Registerer == nil {
		return member, err
	}
	return member, counted.Register(o.Registerer, metrics.Source{Member: member, Informers: p.pool})
}

// connect makes what informers read with.
func (p *process) connect() error {
	c := rest.CopyConfig(p.config)
	// Informers of many shards start at once, and each only once in a while: a limit here would make
	// a handoff take minutes. The API server's priority and fairness limits them.
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
	p.pool, err = informer.NewPool(informer.PoolConfig{Client: client, Metadata: headers, Dynamic: objects, Clock: p.options.Clock})
	return err
}

// plan returns the plan of a fleet that has none: equal ranges for the namespaced controllers, and
// a group for each of the others.
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
		cluster.Shards = append(cluster.Shards, shard.Shard{ID: id, Group: c.name, Controllers: []string{c.name}})
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

// catalogue is what this build knows of controllers.
func (f *Fleet) catalogue() skew.Build {
	b := skew.Build{
		Version: f.options.Version,
		Rings:   map[shard.Scope]string{shard.ScopeNamespaced: NamespacesRing, shard.ScopeCluster: ClusterRing},
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

package controllers

import (
	"context"
	"fmt"
	"math/rand"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/transport"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/controllers/garbage"
	"github.com/flotilla-kube/flotilla/pkg/controllers/resources"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/informer"
)

// manager is the name under which upstream's metrics know the controller manager.
const manager = "kube-controller-manager"

// Process is what all shards of one process share. Make one with [NewProcess]. Build may be called
// concurrently.
type Process struct {
	config *config.CompletedConfig
	// root has the process's own identity, identities those of the controllers.
	root       clientbuilder.ControllerClientBuilder
	identities clientbuilder.ControllerClientBuilder
	published  published
	limits     *limits
	pool       *informer.Pool
	mapper     *restmapper.DeferredDiscoveryRESTMapper
	// resources are the latest discovery answers, for all discovery clients of the process.
	resources resources.Cache
	// scopes are read once a garbage collector has a part of the graph.
	scopes    *garbage.Scopes
	metrics   *controllersmetrics.ControllerManagerMetrics
	endpoints *Endpoints
	clock     election.Clock
	// began is the start of the process, by clock.
	began time.Time
	// left are controllers that others run, idle those that are built but do not run.
	left, idle sets.Set[string]
}

// NewProcess returns what all shards of this process share. It does not contact the API server.
// Call [Process.Check] before a shard is claimed.
func NewProcess(c *config.CompletedConfig, endpoints *Endpoints) (*Process, error) {
	p := &Process{
		config:    c,
		root:      clientbuilder.SimpleControllerClientBuilder{ClientConfig: c.Kubeconfig},
		limits:    newLimits(sharedLimits()),
		metrics:   controllersmetrics.NewControllerManagerMetrics(manager),
		endpoints: endpoints,
		clock:     election.NewClock(),
	}
	p.began = p.clock.Now()
	p.identities = p.root
	if c.ComponentConfig.KubeCloudShared.UseServiceAccountCredentials {
		var err error
		if p.identities, err = newIdentities(c.Kubeconfig, &p.published); err != nil {
			return nil, err
		}
	}
	if err := p.newPool(); err != nil {
		return nil, err
	}
	discovery, err := p.root.DiscoveryClient("controller-discovery")
	if err != nil {
		return nil, fmt.Errorf("creating the discovery client: %w", err)
	}
	config := rest.CopyConfig(c.Kubeconfig)
	rest.AddUserAgent(config, "controller-discovery")
	config.QPS, config.Burst = 20, 200 // as the builder's discovery client
	known, err := p.resources.Client(config)
	if err != nil {
		return nil, fmt.Errorf("creating the discovery client: %w", err)
	}
	p.scopes = garbage.NewScopes(known)
	p.mapper = restmapper.NewDeferredDiscoveryRESTMapper(cacheddiscovery.NewMemCacheClient(discovery))
	controllersmetrics.Register()
	return p, nil
}

func (p *Process) newPool() error {
	typed, untyped, err := p.readers()
	if err != nil {
		return err
	}
	p.pool, err = informer.NewPool(informer.PoolConfig{
		Client: typed, Metadata: untyped, Resync: p.resyncPeriod, Transform: trim, Slim: slimCopies(), Clock: p.clock,
	})
	return err
}

// readers returns the clients of the informers.
func (p *Process) readers() (kubernetes.Interface, metadata.Interface, error) {
	// Informers of many shards start at once, and each only rarely: a client-side limit would make
	// a shard's start take minutes. The API server's priority and fairness limits them.
	read := func(name string, trimmed transport.WrapperFunc) (*rest.Config, error) {
		c, err := p.root.Config(name)
		if err != nil {
			return nil, err
		}
		c = rest.CopyConfig(c)
		c.QPS = -1
		c.Wrap(trimmed)
		return c, nil
	}
	whole, err := read("shared-informers", trimmedOnTheWire)
	if err != nil {
		return nil, nil, err
	}
	typed, err := kubernetes.NewForConfig(whole)
	if err != nil {
		return nil, nil, fmt.Errorf("creating the informers' client: %w", err)
	}
	partial, err := read("metadata-informers", identifiedOnTheWire)
	if err != nil {
		return nil, nil, err
	}
	untyped, err := metadata.NewForConfig(partial)
	if err != nil {
		return nil, nil, fmt.Errorf("creating the informers' metadata client: %w", err)
	}
	return typed, untyped, nil
}

// Run keeps what the shards share fresh until ctx ends.
func (p *Process) Run(ctx context.Context) {
	// As in upstream, resources that are added to the server are found within 30 s.
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		p.mapper.Reset()
		if !p.scopes.Known() {
			return
		}
		if err := p.scopes.Refresh(); err != nil {
			klog.FromContext(ctx).Error(err, "Could not look which kinds there are, references to new ones belong to all garbage collectors")
		}
	}, 30*time.Second)
}

// Pool returns the informers that the process's shards share, for metrics.
func (p *Process) Pool() *informer.Pool { return p.pool }

// Clock returns the clock of the process.
func (p *Process) Clock() election.Clock { return p.clock }

// Leave makes the process not run these controllers, even if its flags enable them. Call it before
// anything is built.
func (p *Process) Leave(controllers []string) { p.left = sets.New(controllers...) }

// Idle makes the process build these controllers, so that their caches are filled, but not run
// them. Call it before anything is built.
func (p *Process) Idle(controllers []string) { p.idle = sets.New(controllers...) }

// ShareLimits makes the flags' limits for a controller's requests apply to the fleet: for a
// controller of a namespaced ring, the process has the same part of them as its running shards are
// of the ring. Without it each process has them whole. Call it before anything is built.
func (p *Process) ShareLimits() { p.limits.share() }

// Runs returns those of the named controllers that this process would run: those that --controllers
// enables. It keeps the order. Some of them may still decline when they are built, depending on
// feature gates and other flags.
//
// Like upstream, it runs serviceaccount-token whatever --controllers says, if it has the key to
// sign tokens.
func (p *Process) Runs(controllers []string) []string {
	descriptors := app.NewControllerDescriptors()
	enabled := app.ControllerContext{ComponentConfig: p.config.ComponentConfig}
	var runs []string
	for _, name := range controllers {
		d, known := descriptors[name]
		switch {
		case !known || p.left.Has(name):
		case name == names.ServiceAccountTokenController && p.config.ComponentConfig.SAController.ServiceAccountKeyFile != "", enabled.IsControllerEnabled(d):
			runs = append(runs, name)
		}
	}
	return runs
}

// startDelay returns how long a controller should wait before it begins: until
// --controller-start-interval, with upstream's jitter, has passed since the process began. So it
// affects controllers that begin with the process, and does not delay a handoff.
func (p *Process) startDelay() time.Duration {
	interval := p.config.ComponentConfig.Generic.ControllerStartInterval.Duration
	if interval <= 0 {
		return 0
	}
	return max(0, wait.Jitter(interval, app.ControllerStartJitter)-p.clock.Now().Sub(p.began))
}

// resyncPeriod is upstream's: between one and two times --min-resync-period, so that informers do
// not resync in step.
func (p *Process) resyncPeriod() time.Duration {
	return time.Duration(float64(p.config.ComponentConfig.Generic.MinResyncPeriod.Nanoseconds()) * (rand.Float64() + 1))
}

// namespaced returns the scope of a resource that is not built in.
func (p *Process) namespaced(gvr schema.GroupVersionResource) (bool, error) {
	gvk, err := p.mapper.KindFor(gvr)
	if err != nil {
		return false, err
	}
	mapping, err := p.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return false, err
	}
	return mapping.Scope.Name() == meta.RESTScopeNameNamespace, nil
}

// sharedLimits returns the controllers that may run in several shards of a process, with upstream's
// multipliers of the flags' rate.
func sharedLimits() map[string]multiplier {
	shared := map[string]multiplier{}
	for _, name := range catalogue.Namespaced() {
		shared[name] = multiplier{qps: 1, burst: 1}
	}
	// Upstream raises the limits in the configuration that it gets for this controller, which has
	// no effect if there is a limiter already.
	shared[names.NamespaceController] = multiplier{qps: 20, burst: 100}
	shared[rangeCollectors] = multiplier{qps: 2, burst: 1}
	for _, row := range catalogue.All() {
		if row.EarlierScope == catalogue.ScopeNamespaced {
			shared[row.Name+ofRanges] = multiplier{qps: 1, burst: 1}
		}
	}
	return shared
}

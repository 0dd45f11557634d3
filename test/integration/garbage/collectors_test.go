package garbage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"

	"github.com/flotilla-kube/flotilla/pkg/controllers/garbage"
	"github.com/flotilla-kube/flotilla/pkg/controllers/owners"
	"github.com/flotilla-kube/flotilla/pkg/controllers/queues"
	"github.com/flotilla-kube/flotilla/pkg/informer"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const (
	workers    = 4
	syncPeriod = time.Second // 30 s in production
	// syncPatience is how long stock waits until it has all objects, 30 s in production. What it
	// does without them is up to chance.
	syncPatience = 10 * time.Second
)

// collector is a running garbage collector.
type collector struct {
	cancel context.CancelFunc
	closed *valve
	ended  chan struct{}
}

// stop ends it as a planned handoff does, kill as the end of its process: no more requests get out.
func (c *collector) stop() { c.cancel(); <-c.ended }
func (c *collector) kill() { c.closed.close(); c.stop() }

// valve lets requests through until it is closed.
type valve struct {
	mu     sync.RWMutex
	closed bool
}

var errKilled = errors.New("the process has ended")

func (g *valve) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

func (g *valve) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		g.mu.RLock()
		closed := g.closed
		g.mu.RUnlock()
		if closed {
			return nil, errKilled
		}
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// graphKinds limits discovery to the kinds in the graphs. Dozens of informers for unused kinds
// would take most of the time.
type graphKinds struct {
	discovery.ServerResourcesInterface
	away *outage
}

// outage makes discovery of custom kinds fail while it is set, as when their API server does not
// answer.
type outage struct {
	set   atomic.Bool
	asked atomic.Int64
}

var errAway = &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{
	{Group: customGroup, Version: "v1"}: errors.New("the server is away"),
}}

func (f graphKinds) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	groups, lists, err := f.ServerResourcesInterface.ServerGroupsAndResources()
	if f.away.set.Load() {
		return groups, withoutCustom(lists), errAway
	}
	return groups, lists, err
}

func withoutCustom(lists []*metav1.APIResourceList) []*metav1.APIResourceList {
	return slices.DeleteFunc(lists, func(l *metav1.APIResourceList) bool { return strings.HasPrefix(l.GroupVersion, customGroup+"/") })
}

func (f graphKinds) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	lists, err := f.ServerResourcesInterface.ServerPreferredResources()
	if f.away.set.Load() {
		f.away.asked.Add(1)
		lists, err = withoutCustom(lists), errAway
	}
	for _, list := range lists {
		list.APIResources = slices.DeleteFunc(list.APIResources, func(r metav1.APIResource) bool {
			gv, _ := schema.ParseGroupVersion(list.GroupVersion)
			return !slices.ContainsFunc(kinds, func(k kind) bool { return k.gvr == gv.WithResource(r.Name) })
		})
	}
	return lists, err
}

// labelled reads only objects with a label.
type labelled struct {
	metadata.Interface
	selector string
}

func (l labelled) Resource(gvr schema.GroupVersionResource) metadata.Getter {
	return labelledResource{l.Interface.Resource(gvr), l.selector}
}

type labelledResource struct {
	metadata.Getter
	selector string
}

func (r labelledResource) List(ctx context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	o.LabelSelector = r.selector
	return r.Getter.List(ctx, o)
}

func (r labelledResource) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.LabelSelector = r.selector
	return r.Getter.Watch(ctx, o)
}

// process is what the collectors of one process share.
type process struct {
	*testing.T
	sandbox  *sandbox
	pool     *informer.Pool
	scopes   *garbage.Scopes
	mapper   *restmapper.DeferredDiscoveryRESTMapper
	discover discovery.DiscoveryInterface
}

// newProcess returns a process that refreshes its scopes until the end of the test.
func newProcess(t *testing.T, sb *sandbox) *process {
	t.Helper()
	discover := sb.client.Discovery()
	p := &process{T: t, sandbox: sb, discover: discover, scopes: garbage.NewScopes(graphKinds{discover, &sb.away}),
		mapper: restmapper.NewDeferredDiscoveryRESTMapper(cacheddiscovery.NewMemCacheClient(discover))}
	if err := p.scopes.Refresh(); err != nil {
		t.Fatal(err)
	}
	var err error
	p.pool, err = informer.NewPool(informer.PoolConfig{Client: sb.client, Metadata: labelled{sb.metadata, label + "=" + sb.name}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var refreshing sync.WaitGroup
	refreshing.Go(func() {
		for ticker := time.NewTicker(syncPeriod); ; {
			select {
			case <-ticker.C:
				p.mapper.Reset()
				_ = p.scopes.Refresh() // retries in a second
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() { cancel(); refreshing.Wait() })
	return p
}

func (p *process) namespaced(gvr schema.GroupVersionResource) (bool, error) {
	switch p.scopes.OfResource(gvr) {
	case garbage.Namespaced:
		return true, nil
	case garbage.Cluster:
		return false, nil
	}
	return false, fmt.Errorf("scope of %v is unknown", gvr)
}

// clients returns a collector's clients, behind a valve of their own.
func clients(t *testing.T, a *api) (*valve, kubernetes.Interface, metadata.Interface) {
	t.Helper()
	g := &valve{}
	config := rest.CopyConfig(a.config)
	config.Wrap(g.wrap)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return g, client, objects
}

// ofRange starts the collector of a range.
func (p *process) ofRange(within shard.Range) *collector {
	return p.start(garbage.OfRange, within, func(c metadata.Interface) metadata.Interface {
		return garbage.RangeClient(c, within.ContainsNamespace)
	})
}

// ofCluster starts the cluster's collector.
func (p *process) ofCluster() *collector {
	return p.start(garbage.OfCluster, shard.Everything(), func(c metadata.Interface) metadata.Interface {
		return garbage.ClusterClient(c, p.mapper)
	})
}

func (p *process) start(part garbage.Part, within shard.Range, wrap func(metadata.Interface) metadata.Interface) *collector {
	p.Helper()
	closed, client, objects := clients(p.T, p.sandbox.api)
	factory := p.pool.NewFactory(within, p.namespaced)
	all := factory.ObjectOrMetadata()
	if part == garbage.OfCluster {
		all = all.Picking(garbage.Pick(p.scopes))
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.Context()))
	group := queues.NewGroup("", "")
	started := make(chan struct{})
	close(started)
	told := owners.First(all, func(ctx context.Context) error { return group.Settle(ctx, "garbage_collector_graph_changes") })
	var graph *garbagecollector.GraphBuilder
	group.Do(func() {
		graph = garbagecollector.NewDependencyGraphBuilder(ctx, objects, p.mapper, garbagecollector.DefaultIgnoredResources(),
			garbage.Informers(part, p.scopes, told), started)
	})
	gc, err := garbage.New(ctx, garbage.Config{
		Name: "garbage", Client: client, Metadata: wrap(objects), Discovery: graphKinds{p.discover, &p.sandbox.away}, Mapper: p.mapper, Graph: graph,
		Workers: workers, Period: syncPeriod,
	})
	if err != nil {
		p.Fatal(err)
	}
	c := &collector{cancel: cancel, closed: closed, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		gc.Run(ctx)
		told.Close()
		factory.Shutdown()
		group.Close()
	}()
	return c
}

// startStock starts upstream's collector with client-go's informers.
func startStock(t *testing.T, sb *sandbox) *collector {
	t.Helper()
	closed, client, objects := clients(t, sb.api)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	all := metadatainformer.NewFilteredSharedInformerFactory(sb.metadata, 0, metav1.NamespaceAll, func(o *metav1.ListOptions) { o.LabelSelector = label + "=" + sb.name })
	started := make(chan struct{})
	close(started)
	patient := syncPatience
	if sb.withheld {
		patient = syncPeriod
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cacheddiscovery.NewMemCacheClient(sb.client.Discovery()))
	gc, err := garbagecollector.NewGarbageCollector(ctx, client, objects, mapper, garbagecollector.DefaultIgnoredResources(), metadataOnly{all}, started)
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{cancel: cancel, closed: closed, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		var running sync.WaitGroup
		running.Go(func() { gc.Run(ctx, workers, patient) })
		running.Go(func() { gc.Sync(ctx, graphKinds{sb.client.Discovery(), &sb.away}, syncPeriod) })
		running.Wait()
		all.Shutdown()
	}()
	return c
}

// metadataOnly adapts client-go's metadata informers to upstream's collector.
type metadataOnly struct {
	metadatainformer.SharedInformerFactory
}

var _ informerfactory.InformerFactory = metadataOnly{}

func (m metadataOnly) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	return m.SharedInformerFactory.ForResource(gvr), nil
}

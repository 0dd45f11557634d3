package cloud

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"k8s.io/client-go/discovery"
	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/transport"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/flotilla"
)

// configs returns configurations of clients by the names of their users, like a client builder of
// client-go.
type configs func(name string) (*rest.Config, error)

// Config returns the configuration of a client with that name.
func (c configs) Config(name string) (*rest.Config, error) { return c(name) }

// ConfigOrDie is Config, and ends the process with an error.
func (c configs) ConfigOrDie(name string) *rest.Config { return orDie(c.Config(name)) }

// Client returns a client with that name.
func (c configs) Client(name string) (kubernetes.Interface, error) {
	config, err := c.Config(name)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// ClientOrDie is Client, and ends the process with an error.
func (c configs) ClientOrDie(name string) kubernetes.Interface { return orDie(c.Client(name)) }

// DiscoveryClient returns a discovery client.
func (c configs) DiscoveryClient(name string) (discovery.DiscoveryInterface, error) {
	config, err := c.Config(name)
	if err != nil {
		return nil, err
	}
	return discovery.NewDiscoveryClientForConfig(config)
}

// DiscoveryClientOrDie is DiscoveryClient, and ends the process with an error.
func (c configs) DiscoveryClientOrDie(name string) discovery.DiscoveryInterface {
	return orDie(c.DiscoveryClient(name))
}

// remembering returns c with its answers remembered, apart from errors: upstream's constructors end
// the process, and so all shards in it, if a client that they need cannot be made.
func (c configs) remembering() configs {
	var mu sync.Mutex
	known := map[string]*rest.Config{}
	return func(name string) (*rest.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		if known[name] == nil {
			config, err := c(name)
			if err != nil {
				return nil, err
			}
			known[name] = config
		}
		return rest.CopyConfig(known[name]), nil
	}
}

func orDie[T any](value T, err error) T {
	if err != nil {
		klog.Background().Error(err, "Could not make a client")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
	return value
}

var (
	_ clientbuilder.ControllerClientBuilder = configs(nil)
	_ cloudprovider.ControllerClientBuilder = configs(nil)
)

// shardBuilder returns the builder of a shard's clients, which are fenced and share the
// controller's limit. With --use-service-account-credentials each has the credentials of its name.
func (m *manager) shardBuilder(s *flotilla.Shard) configs {
	return func(name string) (*rest.Config, error) {
		fenced := s.Config()
		if !m.Config.ComponentConfig.KubeCloudShared.UseServiceAccountCredentials {
			return rest.AddUserAgent(fenced, name), nil
		}
		own, err := m.Config.ClientBuilder.Config(name)
		if err != nil {
			return nil, err
		}
		own.WrapTransport = transport.Wrappers(fenced.WrapTransport, own.WrapTransport)
		own.QPS, own.Burst, own.RateLimiter = fenced.QPS, fenced.Burst, fenced.RateLimiter
		return own, nil
	}
}

// processBuilder returns the builder of clients that belong to no shard.
func (m *manager) processBuilder() configs {
	return func(name string) (*rest.Config, error) {
		c, err := m.Config.ClientBuilder.Config(name)
		if err != nil {
			return nil, err
		}
		c.WrapTransport = transport.Wrappers(m.running.wrap, c.WrapTransport)
		return c, nil
	}
}

// configFor returns upstream's configuration with the clients and informers of a shard in it.
func (m *manager) configFor(s *flotilla.Shard) (*config.CompletedConfig, configs, error) {
	builder := m.shardBuilder(s).remembering()
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(s.Config(), component))
	if err != nil {
		return nil, nil, fmt.Errorf("creating a client: %w", err)
	}
	c := *m.Config.Config
	c.LoopbackClientConfig = nil // completed before
	c.Kubeconfig = s.Config()
	c.Client, c.VersionedClient = client, client
	c.ClientBuilder = builder
	c.SharedInformers = s.Informers()
	return c.Complete(), builder, nil
}

// contextFor returns for a shard what upstream's CreateControllerContext returns.
func (m *manager) contextFor(
	ctx context.Context, s *flotilla.Shard, builder configs,
) (genericcontrollermanager.ControllerContext, error) {
	asks, err := builder.DiscoveryClient("controller-discovery")
	if err != nil {
		return genericcontrollermanager.ControllerContext{}, fmt.Errorf(
			"creating the discovery client: %w", err,
		)
	}
	return genericcontrollermanager.ControllerContext{
		ClientBuilder:                   builder,
		InformerFactory:                 s.Informers(),
		ObjectOrMetadataInformerFactory: s.Informers().ObjectOrMetadata(),
		RESTMapper: restmapper.NewDeferredDiscoveryRESTMapper(
			cacheddiscovery.NewMemCacheClient(asks),
		),
		Stop:                     ctx.Done(),
		InformersStarted:         make(chan struct{}),
		ResyncPeriod:             app.ResyncPeriod(m.Config),
		ControllerManagerMetrics: m.metrics,
	}, nil
}

// running are the shards that run here. The zero value has none.
type running struct {
	mu     sync.Mutex
	shards []owner
}

// add adds a shard until remove is called.
func (r *running) add(s owner) (remove func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shards = append(r.shards, s)
	slices.SortFunc(r.shards, func(a, b owner) int { return cmp.Compare(a.String(), b.String()) })
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.shards = slices.DeleteFunc(r.shards, func(other owner) bool { return other == s })
	}
}

// wrap fences a transport for writes that belong to no shard: they pass while any shard is owned,
// and count as its writes.
func (r *running) wrap(rt http.RoundTripper) http.RoundTripper { return anyFence{r, rt} }

type anyFence struct {
	running *running
	next    http.RoundTripper
}

// WrappedRoundTripper lets client-go find the transport behind this one.
func (f anyFence) WrappedRoundTripper() http.RoundTripper { return f.next }

// RoundTrip implements http.RoundTripper.
func (f anyFence) RoundTrip(req *http.Request) (*http.Response, error) {
	if fence.IsRead(req.Method) {
		return f.next.RoundTrip(req)
	}
	f.running.mu.Lock()
	shards := slices.Clone(f.running.shards)
	f.running.mu.Unlock()
	for _, s := range shards {
		if passes(s) == nil {
			return s.Wrap(f.next).RoundTrip(req)
		}
	}
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return nil, &fence.RefusedError{Shard: "any"}
}

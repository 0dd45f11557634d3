package cloud

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
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

	"github.com/flotilla-kube/flotilla/internal/apiresponse"
	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/flotilla"
)

// configs returns configurations of clients by the names of their users.
type configs func(name string) (*rest.Config, error)

// remembering returns c with its answers remembered, apart from errors. Concurrent callers with the
// same name share one answer, even an error: many shards begin at once, and must not wait for a
// slow API server one after the other.
func (c configs) remembering() configs {
	type question struct {
		answered chan struct{} // closed once config and err are there
		config   *rest.Config
		err      error
	}
	var mu sync.Mutex
	asked := map[string]*question{}
	return func(name string) (*rest.Config, error) {
		mu.Lock()
		q, is := asked[name]
		if !is {
			q = &question{answered: make(chan struct{})}
			asked[name] = q
		}
		mu.Unlock()
		if !is {
			if q.config, q.err = c(name); q.err != nil {
				mu.Lock()
				delete(asked, name)
				mu.Unlock()
			}
			close(q.answered)
		}
		<-q.answered
		if q.err != nil {
			return nil, q.err
		}
		return rest.CopyConfig(q.config), nil
	}
}

// builder builds clients like the builders of client-go. Those end the process, and so all shards
// in it, when the API server cannot be asked for a service account. This one does not.
type builder struct {
	configs
	// server is the configuration without the credentials of a name.
	server *rest.Config
}

// Config returns the configuration of a client with that name.
func (b builder) Config(name string) (*rest.Config, error) { return b.configs(name) }

// ConfigOrDie is Config. After an error, it returns a configuration whose requests try again.
func (b builder) ConfigOrDie(name string) *rest.Config {
	config, err := b.Config(name)
	if err != nil {
		klog.Background().Error(
			err, "Could not configure a client, trying again with each request", "client", name,
		)
		return b.late(name)
	}
	return config
}

// Client returns a client with that name.
func (b builder) Client(name string) (kubernetes.Interface, error) {
	config, err := b.Config(name)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// ClientOrDie is Client. After an error, it returns a client whose requests try again.
func (b builder) ClientOrDie(name string) kubernetes.Interface {
	return orDie(kubernetes.NewForConfig(b.ConfigOrDie(name)))
}

// DiscoveryClient returns a discovery client.
func (b builder) DiscoveryClient(name string) (discovery.DiscoveryInterface, error) {
	config, err := b.Config(name)
	if err != nil {
		return nil, err
	}
	return discovery.NewDiscoveryClientForConfig(config)
}

// DiscoveryClientOrDie is DiscoveryClient. After an error, it returns a client whose requests try
// again.
func (b builder) DiscoveryClientOrDie(name string) discovery.DiscoveryInterface {
	return orDie(discovery.NewDiscoveryClientForConfig(b.ConfigOrDie(name)))
}

// late returns a configuration whose requests have the credentials of a name once there are any,
// and fail until then.
func (b builder) late(name string) *rest.Config {
	c := rest.AddUserAgent(rest.AnonymousClientConfig(b.server), name)
	if server, _, err := rest.DefaultServerUrlFor(b.server); err == nil {
		c.Host = server.String() // It would default to HTTP, since c has no TLS.
	}
	// The transport has these.
	c.TLSClientConfig, c.Dial, c.Proxy = rest.TLSClientConfig{}, nil, nil
	c.Transport = &lateTransport{real: func() (http.RoundTripper, error) {
		config, err := b.Config(name)
		if err != nil {
			return nil, err
		}
		return rest.TransportFor(config)
	}}
	return c
}

// lateTransport makes its real transport with the first request for which that succeeds.
type lateTransport struct {
	real func() (http.RoundTripper, error)
	mu   sync.Mutex
	made http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *lateTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	rt, err := t.transport()
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, fmt.Errorf("configuring the client: %w", err)
	}
	return rt.RoundTrip(req)
}

func (t *lateTransport) transport() (http.RoundTripper, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.made == nil {
		made, err := t.real()
		if err != nil {
			return nil, err
		}
		t.made = made
	}
	return t.made, nil
}

// orDie ends the process because of an error that only a mistake in the configuration can cause.
func orDie[T any](value T, err error) T {
	if err != nil {
		klog.Background().Error(err, "Could not make a client")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
	return value
}

var (
	_ clientbuilder.ControllerClientBuilder = builder{}
	_ cloudprovider.ControllerClientBuilder = builder{}
)

// shardBuilder returns the builder of a shard's clients, which are fenced and share the
// controller's limit. With --use-service-account-credentials each has the credentials of its name.
func (m *manager) shardBuilder(shard func() *rest.Config) builder {
	return builder{server: shard(), configs: func(name string) (*rest.Config, error) {
		fenced := shard()
		if !m.Config.ComponentConfig.KubeCloudShared.UseServiceAccountCredentials {
			return rest.AddUserAgent(fenced, name), nil
		}
		own, err := m.credentials(name)
		if err != nil {
			return nil, err
		}
		own.WrapTransport = transport.Wrappers(fenced.WrapTransport, own.WrapTransport)
		own.QPS, own.Burst, own.RateLimiter = fenced.QPS, fenced.Burst, fenced.RateLimiter
		return own, nil
	}}
}

// processBuilder returns the builder of clients that belong to no shard.
func (m *manager) processBuilder() builder {
	return builder{server: m.Config.Kubeconfig, configs: func(name string) (*rest.Config, error) {
		c, err := m.credentials(name)
		if err != nil {
			return nil, err
		}
		c.WrapTransport = transport.Wrappers(
			m.running.wrapper(apiresponse.ServerPath(c)), c.WrapTransport,
		)
		return c, nil
	}}
}

// configFor returns upstream's configuration with the clients and informers of a shard in it.
func (m *manager) configFor(s *flotilla.Shard) (*config.CompletedConfig, builder, error) {
	clients := m.shardBuilder(s.Config)
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(s.Config(), component))
	if err != nil {
		return nil, builder{}, fmt.Errorf("creating a client: %w", err)
	}
	c := *m.Config.Config
	c.LoopbackClientConfig = nil // completed before
	c.Kubeconfig = s.Config()
	c.Client, c.VersionedClient = client, client
	c.ClientBuilder = clients
	c.SharedInformers = s.Informers()
	return c.Complete(), clients, nil
}

// mapperMaxAge is how long what the API server has said about its resources is believed, as
// upstream.
const mapperMaxAge = 30 * time.Second

// refresh lets the mapper ask again every mapperMaxAge, until ctx ends: by itself it never learns
// of a kind that is new.
func refresh(ctx context.Context, mapper meta.ResettableRESTMapper) {
	wait.UntilWithContext(ctx, func(context.Context) { mapper.Reset() }, mapperMaxAge)
}

// contextFor returns for a shard what upstream's CreateControllerContext returns.
func (m *manager) contextFor(
	ctx context.Context, s *flotilla.Shard, clients builder,
) (genericcontrollermanager.ControllerContext, error) {
	asks, err := clients.DiscoveryClient("controller-discovery")
	if err != nil {
		return genericcontrollermanager.ControllerContext{}, fmt.Errorf(
			"creating the discovery client: %w", err,
		)
	}
	return genericcontrollermanager.ControllerContext{
		ClientBuilder:                   clients,
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

// wrapper returns a function that fences a transport for writes that belong to no shard: they pass
// while any shard is owned, and count as its writes. serverPath is the path in the API server's
// address.
func (r *running) wrapper(serverPath string) transport.WrapperFunc {
	return func(rt http.RoundTripper) http.RoundTripper { return anyFence{r, serverPath, rt} }
}

type anyFence struct {
	running    *running
	serverPath string
	next       http.RoundTripper
}

// WrappedRoundTripper lets client-go find the transport behind this one.
func (f anyFence) WrappedRoundTripper() http.RoundTripper { return f.next }

// RoundTrip implements http.RoundTripper.
func (f anyFence) RoundTrip(req *http.Request) (*http.Response, error) {
	if fence.IsAPIRead(req.Method, apiresponse.Below(f.serverPath, req.URL.Path)) {
		return f.next.RoundTrip(req)
	}
	f.running.mu.Lock()
	shards := slices.Clone(f.running.shards)
	f.running.mu.Unlock()
	for _, s := range shards {
		if passes(s) == nil {
			return s.WrapAPI(f.next).RoundTrip(req)
		}
	}
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return nil, &fence.RefusedError{Shard: "any"}
}

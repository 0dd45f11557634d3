package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/controller-manager/pkg/clientbuilder"

	"github.com/flotilla-kube/flotilla/internal/apiresponse"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/controllers/clientset"
	"github.com/flotilla-kube/flotilla/pkg/controllers/requests"
	"github.com/flotilla-kube/flotilla/pkg/controllers/resources"
	"github.com/flotilla-kube/flotilla/pkg/controllers/slim"
)

// clientBuilder gives one controller of one shard its clients: the identity from the process's
// builder, the shard's fence beneath it, and a rate limit that the controller's instances in all
// shards of the process share.
//
// It implements upstream's clientbuilder.ControllerClientBuilder.
type clientBuilder struct {
	base  clientbuilder.ControllerClientBuilder
	fence transport.WrapperFunc
	// see is what updates wait for, see readYourWrites; nil for nothing.
	see        seeFunc
	controller string
	// limitedAs is the controller's name in limits; empty if it is the same.
	limitedAs string
	limits    *limits
	// resources is the process's cache; with nil, each discovery client reads everything each time.
	resources *resources.Cache
	// shards is the number of shards in the ring of the shard.
	shards int
	// closed, once closed, lets requests through the rate limit at once: they are about to be
	// refused, and must not delay a controller that should return.
	closed <-chan struct{}
}

var _ clientbuilder.ControllerClientBuilder = clientBuilder{}

// Config implements clientbuilder.ControllerClientBuilder.
func (b clientBuilder) Config(name string) (*rest.Config, error) {
	return b.config(name, catalogue.ViaConfig)
}

// config returns the configuration for a client that the controller asks for by the method via.
func (b clientBuilder) config(name string, via catalogue.Via) (*rest.Config, error) {
	config, err := b.base.Config(name)
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	// The fence goes innermost, next to the wire: layers above it, such as the minting of a token,
	// may take time, and the claim may end meanwhile.
	config.WrapTransport = transport.Wrappers(b.fence, counted(via), config.WrapTransport, readYourWrites(apiresponse.ServerPath(config), b.see))
	client, limited := b.limited(name, via, config)
	as := cmp.Or(b.limitedAs, b.controller)
	if limiter := b.limits.limiter(as, client, limited, b.shards); limiter != nil {
		config.RateLimiter = workLimiter{openLimiter{limiter, b.closed}, b.limits.turn(as, client)}
	} else if own := ownLimiter(b.controller, name, via, config); own != nil {
		config.RateLimiter = openLimiter{own, b.closed}
	}
	return config, nil
}

// limited returns the name of the clients that share a limit, and the configuration with that limit.
// Several clients that upstream builds from one configuration would have a limit each. Here they
// share one, because it is in the configuration, so it is that of all the busy ones, and is not
// shared with the clients that are asked for otherwise.
func (b clientBuilder) limited(name string, via catalogue.Via, config *rest.Config) (client string, limited *rest.Config) {
	row, _ := catalogue.Lookup(b.controller)
	for _, c := range row.Clients {
		if c.Name == name && c.Via == via && c.Busy > 1 {
			several := rest.CopyConfig(config)
			several.QPS = cmp.Or(config.QPS, rest.DefaultQPS) * float32(c.Busy)
			several.Burst = cmp.Or(config.Burst, rest.DefaultBurst) * c.Busy
			return name + ", by " + string(via), several
		}
	}
	return name, config
}

// counted returns what counts the requests of a client, except discovery's: discovery fails
// wherever an aggregated API is down, whatever a controller does.
func counted(via catalogue.Via) transport.WrapperFunc {
	if via == catalogue.ViaDiscovery {
		return nil
	}
	return requests.Wrap
}

// ConfigOrDie implements clientbuilder.ControllerClientBuilder.
func (b clientBuilder) ConfigOrDie(name string) *rest.Config { return orDie(b.Config(name)) }

// Client implements clientbuilder.ControllerClientBuilder.
func (b clientBuilder) Client(name string) (kubernetes.Interface, error) {
	config, err := b.config(name, catalogue.ViaClient)
	if err != nil {
		return nil, err
	}
	client, err := clientFor(config)
	if row, _ := catalogue.Lookup(b.controller); err == nil && row.UpdatesSlim {
		return slim.Client(client), nil
	}
	return client, err
}

// clientFor returns a client with the configuration, which it may change. If that has a limiter for
// work, events have one of their own.
func clientFor(config *rest.Config) (kubernetes.Interface, error) {
	config.UserAgent = cmp.Or(config.UserAgent, rest.DefaultKubernetesUserAgent())
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	all, err := clientset.New(config, httpClient)
	if err != nil {
		return nil, err
	}
	if limiter, shared := config.RateLimiter.(workLimiter); shared {
		return withEvents(all, config, httpClient, eventLimiter(limiter))
	}
	return all, nil
}

// ClientOrDie implements clientbuilder.ControllerClientBuilder.
func (b clientBuilder) ClientOrDie(name string) kubernetes.Interface { return orDie(b.Client(name)) }

// DiscoveryClient implements clientbuilder.ControllerClientBuilder. Discovery asks rarely and much
// at once, so it has the limits that upstream gives it, separate from the controller's.
func (b clientBuilder) DiscoveryClient(name string) (discovery.DiscoveryInterface, error) {
	config, err := b.discoveryConfig(name)
	if err != nil {
		return nil, err
	}
	if b.resources == nil {
		return discovery.NewDiscoveryClientForConfig(config)
	}
	return b.resources.Client(config)
}

func (b clientBuilder) discoveryConfig(name string) (*rest.Config, error) {
	config, err := b.config(name, catalogue.ViaDiscovery)
	if err != nil {
		return nil, err
	}
	config.RateLimiter = openLimiter{flowcontrol.NewTokenBucketRateLimiter(20, 200), b.closed}
	return config, nil
}

// DiscoveryClientOrDie implements clientbuilder.ControllerClientBuilder.
func (b clientBuilder) DiscoveryClientOrDie(name string) discovery.DiscoveryInterface {
	return orDie(b.DiscoveryClient(name))
}

// identities gives every controller the identity of its service account, with one builder for all
// shards, which mints one token for each identity in a process. Upstream's looks for the service
// account whenever a client is built, hundreds of times when a member takes several shards; here
// that happens once, and again whenever a token is minted.
type identities struct {
	clientbuilder.ControllerClientBuilder
	mu     sync.Mutex
	byName map[string]*identity
}

// identity is one identity, with the configuration of its clients once that is known. Shards that
// are built at the same time wait for it: otherwise each would look for the service account, and
// create it.
type identity struct {
	mu     sync.Mutex
	config *rest.Config
}

func newIdentities(kubeconfig *rest.Config, p *published) (*identities, error) {
	// Each identity sends few requests, and every controller of a starting shard waits for them:
	// behind the process's own rate limit a member's first shards took 15 s.
	c := rest.CopyConfig(kubeconfig)
	c.QPS = -1
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("creating the client for service accounts: %w", err)
	}
	return &identities{
		ControllerClientBuilder: clientbuilder.NewDynamicClientBuilder(rest.AnonymousClientConfig(kubeconfig), p.wrap(client.CoreV1()), metav1.NamespaceSystem),
		byName:                  map[string]*identity{},
	}, nil
}

// Config implements clientbuilder.ControllerClientBuilder, and is the only method that
// clientBuilder uses. The result must not be changed.
func (b *identities) Config(name string) (*rest.Config, error) {
	b.mu.Lock()
	id := b.byName[name]
	if id == nil {
		id = &identity{}
		b.byName[name] = id
	}
	b.mu.Unlock()
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.config != nil {
		return id.config, nil
	}
	config, err := b.ControllerClientBuilder.Config(name)
	if err != nil {
		return nil, err
	}
	id.config = config
	return config, nil
}

// orDie panics with a buildError. Upstream's builders end the process here; in a fleet that would
// take the other shards down, so Build recovers it.
func orDie[T any](value T, err error) T {
	if err != nil {
		panic(buildError{err})
	}
	return value
}

type buildError struct{ error }

// openLimiter is a limiter that stops limiting once closed is closed.
type openLimiter struct {
	flowcontrol.RateLimiter
	closed <-chan struct{}
}

// Wait implements flowcontrol.RateLimiter.
func (l openLimiter) Wait(ctx context.Context) error {
	if l.TryAccept() {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	waited := make(chan error, 1)
	go func() { waited <- l.RateLimiter.Wait(ctx) }()
	select {
	case err := <-waited:
		return err
	case <-l.closed:
		cancel(errClosed)
		<-waited
		return nil
	}
}

var errClosed = errors.New("the shard's fence is closed")

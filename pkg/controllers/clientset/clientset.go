package clientset

import (
	"errors"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

//go:generate go run generate.go

// Clientset is a kubernetes.Interface that makes the client of a group when it is first asked for.
type Clientset struct {
	config     *rest.Config
	httpClient *http.Client

	mu     sync.Mutex
	groups map[string]any
}

var _ kubernetes.Interface = &Clientset{}

// errBurst is the error that client-go has for a rate without a burst.
var errBurst = errors.New("burst is required to be greater than 0 when RateLimiter is not set and QPS is set to greater than 0")

// New returns a clientset for a configuration and an HTTP client, which
// k8s.io/client-go/rest.HTTPClientFor makes of the same configuration. The configuration must not
// change after that. The error says what is wrong with it.
func New(config *rest.Config, httpClient *http.Client) (*Clientset, error) {
	shared := *config
	if shared.RateLimiter == nil && shared.QPS > 0 {
		if shared.Burst <= 0 {
			return nil, errBurst
		}
		shared.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(shared.QPS, shared.Burst)
	}
	// All groups check the same fields, so that one stands for all.
	core, err := corev1.NewForConfigAndClient(&shared, httpClient)
	if err != nil {
		return nil, err
	}
	return &Clientset{config: &shared, httpClient: httpClient, groups: map[string]any{"CoreV1": core}}, nil
}

// group returns the client of a group, and makes it the first time.
func group[T any](c *Clientset, name string, create func(*rest.Config, *http.Client) (T, error)) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	if client, made := c.groups[name]; made {
		return client.(T)
	}
	client, err := create(c.config, c.httpClient)
	if err != nil {
		panic(fmt.Sprintf("client of %s, after New has checked its configuration: %v", name, err))
	}
	c.groups[name] = client
	return client
}

// Discovery implements kubernetes.Interface.
func (c *Clientset) Discovery() discovery.DiscoveryInterfaces {
	return group(c, "Discovery", discovery.NewDiscoveryClientForConfigAndClient)
}

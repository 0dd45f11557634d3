package resources

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// Cache holds the latest discovery answers for the clients of a process. Its zero value is empty.
// It is safe for concurrent use, and must not be copied.
type Cache struct {
	all, preferred atomic.Pointer[answer]
}

// answer is a complete answer and its sources. It never changes.
type answer struct {
	groups []*metav1.APIGroup
	lists  []*metav1.APIResourceList
	from   []source
}

// source is a document that was read, and its tag at that time.
type source struct{ url, accept, tag string }

// Client returns a client that asks with the credentials and limits of config, and shares the cache
// with the others.
func (c *Cache) Client(config *rest.Config) (discovery.DiscoveryInterface, error) {
	config = rest.CopyConfig(config)
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return noting{rt} })
	plain, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	web, ok := plain.RESTClient().(*rest.RESTClient)
	if !ok {
		return nil, fmt.Errorf("the discovery client is a %T, want a REST client", plain.RESTClient())
	}
	return &client{DiscoveryClient: plain, web: web, cache: c}, nil
}

// client is upstream's client, except for the methods that the cache answers.
type client struct {
	*discovery.DiscoveryClient
	web   *rest.RESTClient
	cache *Cache
}

// ServerGroupsAndResources implements discovery.ServerResourcesInterface.
func (c *client) ServerGroupsAndResources() (
	[]*metav1.APIGroup, []*metav1.APIResourceList, error,
) {
	return c.ServerGroupsAndResourcesWithContext(context.Background())
}

// ServerGroupsAndResourcesWithContext implements discovery.ServerResourcesInterfaceWithContext.
func (c *client) ServerGroupsAndResourcesWithContext(ctx context.Context) (
	[]*metav1.APIGroup, []*metav1.APIResourceList, error,
) {
	return c.known(ctx, &c.cache.all, c.DiscoveryClient.ServerGroupsAndResourcesWithContext)
}

// ServerPreferredResources implements discovery.ServerResourcesInterface.
func (c *client) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return c.ServerPreferredResourcesWithContext(context.Background())
}

// ServerPreferredResourcesWithContext implements discovery.ServerResourcesInterfaceWithContext.
func (c *client) ServerPreferredResourcesWithContext(ctx context.Context) (
	[]*metav1.APIResourceList, error,
) {
	_, all, err := c.known(ctx, &c.cache.preferred,
		func(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
			all, err := c.DiscoveryClient.ServerPreferredResourcesWithContext(ctx)
			return nil, all, err
		})
	return all, err
}

// ServerPreferredNamespacedResources implements discovery.ServerResourcesInterface.
func (c *client) ServerPreferredNamespacedResources() ([]*metav1.APIResourceList, error) {
	return c.ServerPreferredNamespacedResourcesWithContext(context.Background())
}

// ServerPreferredNamespacedResourcesWithContext implements
// discovery.ServerResourcesInterfaceWithContext.
func (c *client) ServerPreferredNamespacedResourcesWithContext(ctx context.Context) (
	[]*metav1.APIResourceList, error,
) {
	all, err := c.ServerPreferredResourcesWithContext(ctx)
	namespaced := func(_ string, r *metav1.APIResource) bool { return r.Namespaced }
	return discovery.FilteredBy(discovery.ResourcePredicateFunc(namespaced), all), err
}

// known returns the kept answer if the API server says that nothing has changed, and otherwise the
// current one.
func (c *client) known(ctx context.Context, kept *atomic.Pointer[answer],
	ask func(context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error),
) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	if last := kept.Load(); last != nil && c.unchanged(ctx, last) {
		return clone(last.groups), clone(last.lists), nil
	}
	var read documents
	groups, lists, err := ask(context.WithValue(ctx, documentsKey{}, &read))
	if from, tagged := read.sources(); tagged && err == nil {
		kept.Store(&answer{groups: clone(groups), lists: clone(lists), from: from})
	}
	return groups, lists, err
}

// clone returns copies that belong to the caller.
func clone[T any, P interface {
	*T
	DeepCopy() *T
}](all []P) []P {
	out := make([]P, 0, len(all))
	for _, one := range all {
		out = append(out, one.DeepCopy())
	}
	return out
}

// unchanged reports whether the API server still has every document of the answer, by its tag.
func (c *client) unchanged(ctx context.Context, a *answer) bool {
	return !slices.ContainsFunc(a.from, func(s source) bool { return !c.has(ctx, s) })
}

// has reports whether the API server still has a document. It returns false if it cannot ask: then
// the caller asks as if nothing were kept, and returns that error.
func (c *client) has(ctx context.Context, s source) bool {
	if limiter := c.web.GetRateLimiter(); limiter != nil && limiter.Wait(ctx) != nil {
		return false
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, http.NoBody)
	if err != nil {
		return false
	}
	request.Header.Set("Accept", s.accept)
	request.Header.Set("If-None-Match", s.tag)
	response, err := c.web.Client.Do(request)
	if err != nil {
		return false
	}
	// Reads a changed document to its end, so that the connection can be used again.
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return response.StatusCode == http.StatusNotModified
}

// documents are what one question has read.
type documents struct {
	mu     sync.Mutex
	read   []source
	failed bool
}

type documentsKey struct{}

// sources returns what was read, and whether all of it had tags.
func (d *documents) sources() ([]source, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.read, len(d.read) > 0 && !d.failed
}

// untagged is the tag of an API server that could not make one, see ServeHTTPWithETag of
// k8s.io/apiserver/pkg/endpoints/discovery/aggregated.
const untagged = `""`

// noting records what the requests of a question read.
type noting struct{ http.RoundTripper }

// WrappedRoundTripper lets others look through it, see k8s.io/apimachinery/pkg/util/net.
func (n noting) WrappedRoundTripper() http.RoundTripper { return n.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (n noting) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := n.RoundTripper.RoundTrip(request)
	read, asked := request.Context().Value(documentsKey{}).(*documents)
	if !asked {
		return response, err
	}
	read.mu.Lock()
	defer read.mu.Unlock()
	tag := ""
	if err == nil && response.StatusCode == http.StatusOK && response.Header.Get("ETag") != untagged {
		tag = response.Header.Get("ETag")
	}
	read.failed = read.failed || tag == ""
	read.read = append(read.read, source{request.URL.String(), request.Header.Get("Accept"), tag})
	return response, err
}

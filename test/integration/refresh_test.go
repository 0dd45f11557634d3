package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/flotilla-kube/flotilla/pkg/informer"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// meter counts the requests for a resource, and the bytes of the answers.
type meter struct {
	resource             string
	lists, watches, sent atomic.Int64
}

func (m *meter) over(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return metered{m, next} })
	return config
}

func (m *meter) reset() {
	m.lists.Store(0)
	m.watches.Store(0)
	m.sent.Store(0)
}

type metered struct {
	*meter
	next http.RoundTripper
}

func (m metered) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := m.next.RoundTrip(request)
	if err != nil || request.Method != http.MethodGet || !strings.HasSuffix(request.URL.Path, "/"+m.resource) {
		return response, err
	}
	if request.URL.Query().Get("watch") != "" {
		m.watches.Add(1)
	} else {
		m.lists.Add(1)
	}
	response.Body = counting{response.Body, &m.sent}
	return response, nil
}

type counting struct {
	io.ReadCloser
	bytes *atomic.Int64
}

func (c counting) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

// TestClaimOfGroupsListsLittle claims three groups at once that share a cache without events, while
// the rest of the cluster has changed. The metadata of all its objects must not be listed, and
// later writes must be seen.
func TestClaimOfGroupsListsLittle(t *testing.T) {
	const objects = 2500
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	admin, err := kubernetes.NewForConfig(unthrottled(plane.AdminConfig()))
	if err != nil {
		t.Fatal(err)
	}
	space, err := admin.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "claim-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, admin, space.Name, objects)

	m := &meter{resource: configMaps.Resource}
	client, err := kubernetes.NewForConfig(m.over(plane.AdminConfig()))
	if err != nil {
		t.Fatal(err)
	}
	objectMetadata, err := metadata.NewForConfig(m.over(plane.AdminConfig()))
	if err != nil {
		t.Fatal(err)
	}
	list, err := objectMetadata.Resource(configMaps).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) < objects {
		t.Fatalf("%d objects, %v", len(list.Items), err)
	}
	all := m.sent.Load()
	pool, err := informer.NewPool(informer.PoolConfig{Client: client, Metadata: objectMetadata})
	if err != nil {
		t.Fatal(err)
	}
	var groups []*informer.Factory
	for range 3 {
		group := pool.NewFactory(shard.Everything(), nil)
		t.Cleanup(group.Shutdown)
		if _, err := group.ForResource(configMaps); err != nil {
			t.Fatal(err)
		}
		if err := group.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		groups = append(groups, group)
	}
	claim := func(what string) time.Duration {
		t.Helper()
		// A change, but not of a cached object.
		_, err := admin.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "other-"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		m.reset()
		began := time.Now()
		var claiming sync.WaitGroup
		for _, group := range groups {
			claiming.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				if err := group.Refresh(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		claiming.Wait()
		took := time.Since(began)
		t.Logf("%s: %d lists, %d watches and %d bytes of %d in %v", what, m.lists.Load(), m.watches.Load(), m.sent.Load(), all, took.Round(time.Millisecond))
		return took
	}
	claim("nothing has changed")
	if lists, watches := m.lists.Load(), m.watches.Load(); lists < 1 || lists > 2 || watches > 2 {
		t.Errorf("%d lists and %d watches, want one or two pages, and as many watches", lists, watches)
	}
	if sent := m.sent.Load(); sent > all/5 {
		t.Errorf("%d bytes, want at most a fifth of the %d of the metadata of all", sent, all)
	}
	for i := range 3 {
		name := fmt.Sprintf("late-%d", i)
		if _, err := admin.CoreV1().ConfigMaps(space.Name).Create(t.Context(), newObject(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		claim("something has changed")
		for _, group := range groups {
			typed, err := group.ForResource(configMaps)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := typed.Lister().ByNamespace(space.Name).Get(name); err != nil {
				t.Errorf("an object written before the claim is missing: %v", err)
			}
		}
	}
}

// unthrottled returns config without a rate limit.
func unthrottled(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	return config
}

func newObject(name string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": "b"}}
}

// fill creates this many ConfigMaps.
func fill(t *testing.T, client kubernetes.Interface, namespace string, objects int) {
	t.Helper()
	const atOnce = 8
	var filling sync.WaitGroup
	for worker := range atOnce {
		filling.Go(func() {
			for i := worker; i < objects; i += atOnce {
				if _, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), newObject(fmt.Sprintf("object-%d", i)), metav1.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	filling.Wait()
}

package cloud

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/controller-manager/pkg/clientbuilder"

	"github.com/flotilla-kube/flotilla/pkg/election/fence"
)

// TestConfigurationsAreRemembered checks that a constructor that asks again for what was there gets
// it, even if the service account cannot be read then.
func TestConfigurationsAreRemembered(t *testing.T) {
	var asked int
	away := true
	builder := builder{configs: configs(func(name string) (*rest.Config, error) {
		if asked++; away {
			return nil, errors.New("the server is away")
		}
		return &rest.Config{UserAgent: name}, nil
	}).remembering()}
	if _, err := builder.Config("route-controller"); err == nil {
		t.Error("no error, though the server is away")
	}
	away = false
	first := builder.ConfigOrDie("route-controller")
	first.Host = "changed"
	away = true
	second := builder.ConfigOrDie("route-controller")
	if second.UserAgent != "route-controller" || second.Host != "" || asked != 2 {
		t.Errorf("got %+v after %d questions", second, asked)
	}
	if _, err := builder.Config("service-controller"); err == nil {
		t.Error("another name has the same answer")
	}
}

// TestShardsShareOneQuestion has three shards that ask at once for a configuration that the API
// server takes 30 seconds to refuse.
func TestShardsShareOneQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		ask := configs(func(name string) (*rest.Config, error) {
			if name == "other" {
				return &rest.Config{}, nil
			}
			asked.Add(1)
			time.Sleep(30 * time.Second) // virtual
			return nil, errAway
		}).remembering()
		began := time.Now()
		var shards sync.WaitGroup
		for range 3 {
			shards.Go(func() {
				if _, err := ask("route-controller"); !errors.Is(err, errAway) {
					t.Errorf("the error is %v, want the server's", err)
				}
			})
		}
		synctest.Wait()
		if _, err := ask("other"); err != nil || time.Since(began) > 0 {
			t.Errorf("another name waits for %v, and gets %v", time.Since(began), err)
		}
		shards.Wait()
		if took := time.Since(began); took != 30*time.Second || asked.Load() != 1 {
			t.Errorf("%d questions in %v, want one of 30 s", asked.Load(), took)
		}
		if _, _ = ask("route-controller"); asked.Load() != 2 {
			t.Error("the error is remembered")
		}
	})
}

// TestAClientThatCannotBeMadeYet checks that a constructor that asks for a client while the service
// account cannot be read does not end the process, and that the client works later.
func TestAClientThatCannotBeMadeYet(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"` +
			r.Header.Get("Authorization") + `"}}`))
	}))
	defer server.Close()
	accounts := &accounts{host: server.URL}
	c := &config.Config{ClientBuilder: accounts}
	c.ComponentConfig.KubeCloudShared.UseServiceAccountCredentials = true
	m := newManager(t.Context(), Controllers{Config: c.Complete(), Cloud: parts{}})
	of := func(wrapped *int) builder {
		return m.shardBuilder(func() *rest.Config {
			return &rest.Config{Host: server.URL, WrapTransport: func(rt http.RoundTripper) http.RoundTripper {
				*wrapped++
				return rt
			}}
		})
	}
	var fences int
	get := func(client kubernetes.Interface) error {
		node, err := client.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
		if err == nil && node.Name != "Bearer volume-controller" {
			t.Errorf("the request is from %q", node.Name)
		}
		return err
	}
	accounts.away.Store(true)
	client := of(&fences).ClientOrDie("volume-controller")
	if err := get(client); !errors.Is(err, errAway) {
		t.Errorf("without a service account: %v, want the reason", err)
	}
	accounts.away.Store(false)
	if err := get(client); err != nil {
		t.Errorf("with a service account again: %v", err)
	}
	if fences != 1 {
		t.Errorf("the client has %d fences", fences)
	}
	// Another shard of the process needs no server.
	accounts.away.Store(true)
	if err := get(of(&fences).ClientOrDie("volume-controller")); err != nil {
		t.Errorf("what the process knows is lost: %v", err)
	}
}

var errAway = errors.New("the server is away")

// accounts is upstream's builder of clients with service accounts, as far as it is used.
type accounts struct {
	clientbuilder.ControllerClientBuilder
	host string
	away atomic.Bool
}

func (a *accounts) Config(name string) (*rest.Config, error) {
	if a.away.Load() {
		return nil, errAway
	}
	return &rest.Config{Host: a.host, BearerToken: name}, nil
}

// TestTheProcessKnowsTheServersPath connects to a pod with a client of the process, which has no
// shard. The path in the server's address looks like the API's.
func TestTheProcessKnowsTheServersPath(t *testing.T) {
	const serverPath = "/api/clusters/c-1"
	host := "http://127.0.0.1:1" + serverPath
	c := &config.Config{ClientBuilder: &accounts{host: host}, Kubeconfig: &rest.Config{Host: host}}
	m := newManager(t.Context(), Controllers{Config: c.Complete(), Cloud: parts{}})
	own, err := m.processBuilder().Config("provider")
	if err != nil {
		t.Fatal(err)
	}
	for path, refused := range map[string]bool{
		"/api/v1/namespaces/a/pods/b/exec": true, "/api/v1/namespaces/a/pods/b": false,
	} {
		req := request(t, t.Context(), http.MethodGet)
		req.URL.Path = serverPath + path
		resp, err := own.WrapTransport(&wire{}).RoundTrip(req)
		if errors.Is(err, fence.ErrRefused) != refused {
			t.Errorf("GET %s: %v, want it refused: %t", path, err, refused)
		}
		if err == nil {
			_ = resp.Body.Close()
		}
	}
}

// TestNewKindsAreFound asks for a kind before and after it is there.
func TestNewKindsAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{}}
		kind := func(name, resource string) *metav1.APIResourceList {
			return &metav1.APIResourceList{
				GroupVersion: "sky.io/v1", APIResources: []metav1.APIResource{
					{Name: resource, Kind: name, Version: "v1", Group: "sky.io"},
				},
			}
		}
		server.Resources = []*metav1.APIResourceList{kind("Cloud", "clouds")}
		mapper := restmapper.NewDeferredDiscoveryRESTMapper(cacheddiscovery.NewMemCacheClient(server))
		ctx, cancel := context.WithCancel(t.Context())
		var refreshing sync.WaitGroup
		refreshing.Go(func() { refresh(ctx, mapper) })
		synctest.Wait()
		find := func(resource string) error {
			_, err := mapper.KindFor(schema.GroupVersionResource{Resource: resource})
			return err
		}
		if err := find("clouds"); err != nil {
			t.Fatal(err)
		}
		server.Resources = []*metav1.APIResourceList{kind("Rain", "rains")}
		if find("rains") == nil {
			t.Error("nothing is remembered: the test would find no difference")
		}
		time.Sleep(mapperMaxAge) // virtual
		synctest.Wait()
		if err := find("rains"); err != nil {
			t.Errorf("half a minute after the kind came: %v", err)
		}
		cancel()
		refreshing.Wait()
	})
}

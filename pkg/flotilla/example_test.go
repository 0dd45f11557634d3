package flotilla_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/flotilla"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// A program with a controller of namespaced objects, of which one instance runs on each range, and
// a controller of which one instance runs in the fleet.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	f, err := flotilla.New(config, flotilla.Options{
		Fleet: "certs", Namespace: "certs", Member: os.Getenv("POD_NAME"),
		LeaderLocks: []string{"certs-leader"}, // the Lease of the previous leader election
	})
	if err != nil {
		log.Fatal(err)
	}
	f.Namespaced("issuer", newIssuer)
	f.Singleton("webhook-ca", newWebhookCA)
	if err := f.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// newIssuer builds the controller of one range.
func newIssuer(_ context.Context, s *flotilla.Shard) (flotilla.Runnable, error) {
	client, err := kubernetes.NewForConfig(s.Config()) // writes while the shard is owned
	if err != nil {
		return nil, err
	}
	secrets := s.Informers().Core().V1().Secrets() // the Secrets of the range
	_, err = secrets.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{ /* ... */ })
	if err != nil {
		return nil, err
	}
	return flotilla.RunnableFunc(func(ctx context.Context) error {
		_ = client
		<-ctx.Done()
		return nil
	}), nil
}

func newWebhookCA(context.Context, *flotilla.Shard) (flotilla.Runnable, error) {
	return flotilla.RunnableFunc(func(ctx context.Context) error { <-ctx.Done(); return nil }), nil
}

// A program that builds whole shards, such as kube-controller-manager's fleet: two controllers that
// share memory, on each of two ranges.
func ExampleFleet_Shards() {
	f, err := flotilla.New(&rest.Config{Host: "https://127.0.0.1:6443"}, flotilla.Options{
		Fleet: "certs", Namespace: "certs", Member: "certs-0",
	})
	if err != nil {
		log.Fatal(err)
	}
	ranges, err := shard.EqualShards(flotilla.NamespacesRing, 2)
	if err != nil {
		log.Fatal(err)
	}
	f.Shards(flotilla.Shards{
		Plan: shard.Plan{Generation: 1, Rings: []shard.Ring{{
			Name: flotilla.NamespacesRing, Scope: shard.ScopeNamespaced,
			Controllers: []string{"approver", "issuer"}, Shards: ranges,
		}}},
		Build: func(_ context.Context, w fleet.Work) (fleet.Instance, error) {
			return newCerts(w)
		},
	})
	member, err := f.Prepare(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("shards before Run:", len(member.Shards()))
	// Output: shards before Run: 0
}

// newCerts would make the instance of one range.
func newCerts(w fleet.Work) (fleet.Instance, error) {
	return nil, fmt.Errorf("%s is not built in this example", w.Shard.ID)
}

// Probes for a kubelet.
func ExampleFleet_Ready() {
	f, err := flotilla.New(&rest.Config{Host: "https://127.0.0.1:6443"}, flotilla.Options{
		Fleet: "certs", Namespace: "certs", Member: "certs-0",
	})
	if err != nil {
		log.Fatal(err)
	}
	for path, probe := range map[string]func() error{"/readyz": f.Ready, "/healthz": f.Live} {
		http.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			if err := probe(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
			}
		})
	}
	fmt.Println(f.Ready())
	// Output: the fleet has not been run yet
}

// A client of the API server that does not come from Shard.Config needs the fence, too.
func ExampleShard_WrapAPI() {
	_ = func(_ context.Context, s *flotilla.Shard) (flotilla.Runnable, error) {
		server := &http.Client{Transport: s.WrapAPI(http.DefaultTransport)}
		return flotilla.RunnableFunc(func(ctx context.Context) error {
			const url = "https://127.0.0.1:6443/api/v1/namespaces/certs/secrets/a"
			req, err := http.NewRequestWithContext(ctx, http.MethodDelete, url, nil)
			if err != nil {
				return err
			}
			resp, err := server.Do(req)
			if err != nil {
				return err
			}
			return resp.Body.Close()
		}), nil
	}
}

// Writes to something other than Kubernetes, such as a cloud, are fenced too.
func ExampleShard_Wrap() {
	_ = func(_ context.Context, s *flotilla.Shard) (flotilla.Runnable, error) {
		cloud := &http.Client{Transport: s.Wrap(http.DefaultTransport)}
		return flotilla.RunnableFunc(func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodPut, "https://cloud.example.com/balancers/a", nil)
			if err != nil {
				return err
			}
			resp, err := cloud.Do(req) // fence.ErrRefused once the shard is gone
			if err != nil {
				return err
			}
			return resp.Body.Close()
		}), nil
	}
}

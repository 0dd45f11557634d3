package flotilla_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/flotilla"
	"github.com/flotilla-kube/flotilla/pkg/informer"
)

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// The function that returns a Build takes what the controller needs besides its Shard.
func ExampleBuild() {
	every := func(interval time.Duration) flotilla.Build {
		return func(ctx context.Context, s *flotilla.Shard) (flotilla.Runnable, error) {
			client, err := kubernetes.NewForConfig(s.Config())
			if err != nil {
				return nil, err
			}
			// The logger adds the names of the shard and the controller.
			klog.FromContext(ctx).Info("Built", "interval", interval)
			return newRenewer(client, interval), nil
		}
	}
	_ = every(time.Hour) // for Fleet.Namespaced
}

func newRenewer(kubernetes.Interface, time.Duration) flotilla.Runnable {
	return flotilla.RunnableFunc(func(ctx context.Context) error { <-ctx.Done(); return nil })
}

// rates is a controller with a cache of its own and a queue.
type rates struct {
	queue workqueue.TypedInterface[string]
	table map[string]float64
}

// Run works until ctx ends.
func (r *rates) Run(ctx context.Context) error {
	defer r.queue.ShutDown()
	<-ctx.Done()
	return nil
}

// Warm fills the cache before the shard is owned.
func (r *rates) Warm(context.Context) error {
	r.table = map[string]float64{"EUR": 1}
	return nil
}

// Close ends what Build has started, if Run is never called.
func (r *rates) Close() { r.queue.ShutDown() }

// A cache that is not an informer's is full before the shard is handed over.
func ExampleWarmer() {
	controller := &rates{queue: workqueue.NewTyped[string]()}
	var warmer flotilla.Warmer = controller
	fmt.Println(warmer.Warm(context.Background()), len(controller.table))
	// Output: <nil> 1
}

// A queue is shut down even if the controller never ran.
func ExampleCloser() {
	controller := &rates{queue: workqueue.NewTyped[string]()}
	var closer flotilla.Closer = controller
	closer.Close()
	fmt.Println(controller.queue.ShuttingDown())
	// Output: true
}

// Work that comes from elsewhere than the shard's informers is assigned by its namespace.
func ExampleShard_Owns() {
	_ = func(ctx context.Context, s *flotilla.Shard) (flotilla.Runnable, error) {
		logger := klog.FromContext(ctx)
		return flotilla.RunnableFunc(func(ctx context.Context) error {
			for _, namespace := range messages(ctx) {
				if s.Owns(namespace) {
					logger.Info("Working", "namespace", namespace)
				}
			}
			<-ctx.Done()
			return nil
		}), nil
	}
}

func messages(context.Context) []string { return nil }

// Every member may ask for the same namespace to be backed up: the annotation is the same from all.
// Everything else in that namespace belongs to its owner.
func ExampleShard_AnyNamespace() {
	_ = func(_ context.Context, s *flotilla.Shard) (flotilla.Runnable, error) {
		own, err := kubernetes.NewForConfig(s.Config())
		if err != nil {
			return nil, err
		}
		all, err := kubernetes.NewForConfig(s.AnyNamespace())
		if err != nil {
			return nil, err
		}
		request := []byte(`{"metadata":{"annotations":{"backup":"wanted"}}}`)
		patch := func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			_, err := client.CoreV1().Namespaces().Patch(
				ctx, namespace, types.MergePatchType, request, metav1.PatchOptions{})
			return err
		}
		return flotilla.RunnableFunc(func(ctx context.Context) error {
			for _, namespace := range messages(ctx) {
				err := patch(ctx, own, namespace)
				if errors.Is(err, flotilla.ErrOutside) {
					err = patch(ctx, all, namespace)
				}
				if err != nil {
					return err
				}
			}
			<-ctx.Done()
			return nil
		}), nil
	}
}

// A worker's error ends the shard at once, although other workers may take long to return.
func ExampleShard_Fail() {
	_ = func(_ context.Context, s *flotilla.Shard) (flotilla.Runnable, error) {
		return flotilla.RunnableFunc(func(ctx context.Context) error {
			var workers sync.WaitGroup
			for range 5 {
				workers.Go(func() {
					if err := convert(ctx); err != nil {
						s.Fail(err)
					}
				})
			}
			workers.Wait()
			return nil
		}), nil
	}
}

func convert(ctx context.Context) error { <-ctx.Done(); return nil }

// A store other than an API server refuses an outdated owner: it compares the term, which grows
// with every owner of the shard.
func ExampleShard_Term() {
	_ = func(_ context.Context, s *flotilla.Shard) (flotilla.Runnable, error) {
		return flotilla.RunnableFunc(func(ctx context.Context) error {
			url := "https://store.example.com/" + s.ID().Name
			req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, nil)
			if err != nil {
				return err
			}
			req.Header.Set("Term", strconv.Itoa(int(s.Term())))
			req.Header.Set("From", s.Controller()+" of "+s.String())
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			return resp.Body.Close()
		}), nil
	}
}

// Background work that does not see the end of Run's context ends with the claim at the latest.
func ExampleShard_Closed() {
	_ = func(_ context.Context, s *flotilla.Shard) (flotilla.Runnable, error) {
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			<-s.Closed()
			cancel()
		}()
		return flotilla.RunnableFunc(func(running context.Context) error {
			go archive(ctx)
			<-running.Done()
			return nil
		}), nil
	}
}

func archive(context.Context) {}

// An informer of a type that the usual accessors do not have. It reads through Reading, because all
// shards of the process share it; for the same reason it must not select.
func ExampleShard_Reading() {
	_ = func(_ context.Context, s *flotilla.Shard) (flotilla.Runnable, error) {
		client, err := kubernetes.NewForConfig(s.Reading())
		if err != nil {
			return nil, err
		}
		reads := client.CoreV1().RESTClient()
		services, err := s.Informers().Custom(informer.Resource{
			GVR:           corev1.SchemeGroupVersion.WithResource("services"),
			Scope:         meta.RESTScopeNameNamespace,
			Object:        &corev1.Service{},
			ListerWatcher: cache.NewListWatchFromClient(reads, "services", "", fields.Everything()),
		})
		if err != nil {
			return nil, err
		}
		return flotilla.RunnableFunc(func(ctx context.Context) error {
			_ = services.GetStore().List() // of the shard's range
			<-ctx.Done()
			return nil
		}), nil
	}
}

// Informers of client-go's kinds, of unstructured objects, and of metadata alone.
func ExampleShard_Informers() {
	_ = func(_ context.Context, s *flotilla.Shard) (flotilla.Runnable, error) {
		pods := s.Informers().Core().V1().Pods().Lister()
		resource := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "pages"}
		pages, err := s.Informers().Dynamic(resource)
		if err != nil {
			return nil, err
		}
		names, err := s.Informers().Metadata(secrets)
		if err != nil {
			return nil, err
		}
		return flotilla.RunnableFunc(func(ctx context.Context) error {
			_, _, _ = pods, pages.Lister(), names.Lister() // of the shard's range
			<-ctx.Done()
			return nil
		}), nil
	}
}

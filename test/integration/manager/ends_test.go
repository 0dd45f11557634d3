package manager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcluster "sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/flotilla-kube/flotilla/pkg/flotilla"
	"github.com/flotilla-kube/flotilla/pkg/manager"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// TestAnErrorBesideARunnableThatHangs checks that the process ends: nothing would work on the shard
// any more, and the member would keep it.
func TestAnErrorBesideARunnableThatHangs(t *testing.T) {
	t.Parallel()
	free, fail := make(chan struct{}), make(chan struct{})
	exits := make(chan string, 10)
	var hanging atomic.Int32
	hangs := func(context.Context) error { hanging.Add(1); <-free; return nil }
	fails := func(ctx context.Context) error {
		select {
		case <-fail:
			return errors.New("no cloud today")
		case <-ctx.Done():
			return nil
		}
	}
	f, _ := begin(t, plane.AdminConfig(), func(f *flotilla.Fleet) {
		for name, r := range map[string]ctrlmanager.Runnable{"owned": ctrlmanager.RunnableFunc(fails), "always": always(fails)} {
			f.Singleton(name, manager.Build(clientscheme.Scheme, func(mgr ctrlmanager.Manager) error {
				return errors.Join(mgr.Add(ctrlmanager.RunnableFunc(hangs)), mgr.Add(r))
			}))
		}
	}, func(o *flotilla.Options) {
		o.HandoffTimeout = time.Second
		o.Exit = func(reason string) { exits <- reason }
	})
	t.Cleanup(func() { close(free) }) // before the fleet is ended
	awaitReady(t, f)
	// A controller that fails before is only built again: nothing hangs yet.
	harness.Eventually(t, harness.Patience, "both shards have a runnable that hangs", func(context.Context) error {
		if n := hanging.Load(); n < 2 {
			return fmt.Errorf("%d have", n)
		}
		return nil
	})
	close(fail)
	var reasons []string
	for range 2 {
		select {
		case reason := <-exits:
			reasons = append(reasons, reason)
		case <-time.After(harness.Patience):
			t.Fatalf("the process was ended for %q, want both controllers", reasons)
		}
	}
	slices.Sort(reasons)
	for i, name := range []string{"always", "owned"} {
		if r := reasons[i]; !strings.Contains(r, "controller "+name+" on cluster/"+name+": no cloud today") || !strings.HasSuffix(r, "not returned: "+name) {
			t.Errorf("the reason is %q, want the error and the controller", r)
		}
	}
}

// TestAClusterThatNeverSyncs checks that a shard's Manager ends although another cluster, from
// which its controller reads, does not answer.
func TestAClusterThatNeverSyncs(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	added := make(chan struct{}, 10)
	_, end := begin(t, plane.AdminConfig(), func(f *flotilla.Fleet) {
		f.Singleton("a", manager.Build(clientscheme.Scheme, func(mgr ctrlmanager.Manager) error {
			other, err := ctrlcluster.New(&rest.Config{Host: "http://" + listener.Addr().String()}, func(o *ctrlcluster.Options) {
				o.Scheme = mgr.GetScheme()
				o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mgr.GetRESTMapper(), nil }
			})
			if err != nil {
				return err
			}
			_, err = other.GetCache().GetInformer(t.Context(), &corev1.Secret{}, cache.BlockUntilSynced(false))
			added <- struct{}{}
			return errors.Join(err, mgr.Add(other))
		}))
	})
	select {
	case <-added:
	case <-time.After(harness.Patience):
		t.Fatal("nothing was built")
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// TestEventsOfClusterScopedObjects has controllers that map them to objects in namespaces. All
// shards get them, and only the owner may act. Owns keeps the others from trying.
func TestEventsOfClusterScopedObjects(t *testing.T) {
	t.Parallel()
	const node = "mapped"
	var mu sync.Mutex
	wrote, refused := map[string]int{}, map[string]int{}
	mapped := func(name string, owns func(mgr ctrlmanager.Manager, namespace string) bool) flotilla.Build {
		return manager.Build(clientscheme.Scheme, func(mgr ctrlmanager.Manager) error {
			toTeams := func(_ context.Context, n *corev1.Node) (requests []reconcile.Request) {
				for i := range teams {
					if n.Name == node && owns(mgr, team(i)) {
						key := ctrlclient.ObjectKey{Namespace: team(i), Name: node + "-" + name}
						requests = append(requests, reconcile.Request{NamespacedName: key})
					}
				}
				return requests
			}
			return builder.ControllerManagedBy(mgr).Named(name).
				WatchesRawSource(source.Kind(mgr.GetCache(), &corev1.Node{}, handler.TypedEnqueueRequestsFromMapFunc(toTeams))).
				Complete(reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
					err := mgr.GetClient().Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}})
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						wrote[name]++
					case errors.Is(err, flotilla.ErrOutside):
						refused[name]++
					default:
						t.Errorf("%s, writing in %s: %v", name, r.Namespace, err)
					}
					return reconcile.Result{}, nil
				}))
		})
	}
	f, _ := begin(t, plane.AdminConfig(), func(f *flotilla.Fleet) {
		f.Namespaced("asks", mapped("asks", manager.Owns))
		f.Namespaced("rash", mapped("rash", func(ctrlmanager.Manager, string) bool { return true }))
	})
	awaitReady(t, f)
	_, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, harness.Patience, "every namespace was written to once", func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if wrote["asks"] != teams || wrote["rash"] != teams || refused["asks"] != 0 || refused["rash"] != teams*(ranges-1) {
			return fmt.Errorf("%v writes passed, and %v were refused", wrote, refused)
		}
		return nil
	})
}

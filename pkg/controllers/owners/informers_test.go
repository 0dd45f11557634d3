package owners

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/informer"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

func TestMain(m *testing.M) {
	// The default handlers of errors, such as of lists that fail, limit their rate by a clock that
	// all bubbles of virtual time would share.
	klog.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	nodes      = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
)

// collected is a factory as a garbage collector uses it. ConfigMaps own Secrets, which own nodes,
// and nodes are cached already.
type collected struct {
	*informer.Factory
	first                *Informers
	maps, secrets, nodes *kind
	told                 recorder
	controllers          map[string]cache.Controller
	stop                 chan struct{}
	// growing keeps the graph from containing what handlers have received.
	growing sync.RWMutex
	// settling is how many wait for the graph.
	settling atomic.Int32
}

// settle waits for the graph, as the collector's Settle does. It takes a second to end.
func (c *collected) settle(ctx context.Context) error {
	c.settling.Add(1)
	defer c.settling.Add(-1)
	for !c.growing.TryRLock() {
		time.Sleep(time.Second) // virtual
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	c.growing.RUnlock()
	return nil
}

func newCollected(t *testing.T) *collected {
	c := &collected{maps: newKind(t), secrets: newKind(t), nodes: newKind(t), controllers: map[string]cache.Controller{}, stop: make(chan struct{})}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://server.test", Transport: noServer{t}})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := informer.NewPool(informer.PoolConfig{
		Client: client, Metadata: kinds{configMaps: c.maps, secrets: c.secrets, nodes: c.nodes}, Clock: clock.RealClock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Factory = pool.NewFactory(shard.Everything(), nil)
	t.Cleanup(c.Shutdown)
	for _, name := range []string{"a", "b"} {
		c.maps.Add(dependentOf("map-"+name, ""))
		c.secrets.Add(dependentOf("secret-"+name, "map-"+name))
		c.nodes.Add(dependentOf("node-"+name, "secret-"+name))
	}
	all := c.ObjectOrMetadata()
	if _, err := all.ForResource(nodes); err != nil {
		t.Fatal(err)
	}
	c.StartWithContext(t.Context())
	synctest.Wait()
	c.first = First(all, c.settle)
	t.Cleanup(c.first.Close)
	return c
}

// noServer fails the test at each request.
type noServer struct{ t *testing.T }

// RoundTrip implements http.RoundTripper.
func (s noServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.t.Errorf("%s %s was sent", r.Method, r.URL)
	return nil, errors.New("there is no server")
}

// kinds read the metadata of objects. They implement metadata.Interface.
type kinds map[schema.GroupVersionResource]*kind

// Resource implements metadata.Interface.
func (k kinds) Resource(gvr schema.GroupVersionResource) metadata.Getter { return reads{of: k[gvr]} }

// kind has the objects of a kind, and can be made unreachable.
type kind struct {
	*fcache.FakeControllerSource
	down atomic.Bool
}

func newKind(t *testing.T) *kind {
	k := &kind{FakeControllerSource: fcache.NewFakeControllerSource()}
	t.Cleanup(k.Broadcaster.Shutdown)
	return k
}

// reads implements the part of metadata.Getter that informers use.
type reads struct {
	metadata.Getter
	of *kind
}

// List implements metadata.ResourceInterface.
func (r reads) List(_ context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	if r.of.down.Load() {
		return nil, errors.New("cut off")
	}
	all, err := r.of.FakeControllerSource.List(o)
	if err != nil {
		return nil, err
	}
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: all.(*v1.List).ResourceVersion}}
	return list, meta.EachListItem(all, func(obj runtime.Object) error {
		list.Items = append(list.Items, *obj.(*metav1.PartialObjectMetadata))
		return nil
	})
}

// Watch implements metadata.ResourceInterface, without lists in the form of watches.
func (r reads) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if r.of.down.Load() || o.SendInitialEvents != nil {
		return nil, errors.New("cut off, or a streaming list")
	}
	return r.of.FakeControllerSource.Watch(o)
}

// recorder notes what handlers are told.
type recorder struct {
	mu    sync.Mutex
	calls []string
}

func (r *recorder) note(call string, obj any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call+" "+obj.(metav1.Object).GetName())
}

// take returns the calls since it was last called.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

func (r *recorder) OnAdd(obj any, _ bool) { r.note("add", obj) }
func (r *recorder) OnUpdate(_, obj any)   { r.note("update", obj) }
func (r *recorder) OnDelete(obj any)      { r.note("delete", obj) }

// dependentOf returns the metadata of an object with an owner, "" for none; its UID is its name.
func dependentOf(name, owner string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	if owner != "" {
		m.OwnerReferences = []metav1.OwnerReference{{Name: owner, UID: types.UID(owner)}}
	}
	return m
}

// monitor adds a handler and waits for it, as the garbage collector does for each kind.
func (c *collected) monitor(t *testing.T, gvr schema.GroupVersionResource) {
	t.Helper()
	i, err := c.first.ForResource(gvr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.Informer().AddEventHandlerWithResyncPeriod(&c.told, 0); err != nil {
		t.Fatal(err)
	}
	c.controllers[gvr.Resource] = i.Informer().GetController()
}

func (c *collected) checkTold(t *testing.T, when, want string) {
	t.Helper()
	synctest.Wait()
	var kinds []string
	for _, call := range c.told.take() {
		kind, _, _ := strings.Cut(strings.TrimPrefix(call, "add "), "-")
		kinds = append(kinds, kind)
	}
	if got := strings.Join(kinds, " "); got != want {
		t.Errorf("%s handlers were told of %q, want %q", when, got, want)
	}
}

// checkSynced checks that exactly these kinds have synced.
func (c *collected) checkSynced(t *testing.T, when string, want ...string) {
	t.Helper()
	synctest.Wait()
	var got []string
	for name, controller := range c.controllers {
		if controller.HasSynced() {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s %v have synced, want %v", when, got, want)
	}
}

// TestOwnersAreToldFirst fills the caches of dependents before those of their owners.
func TestOwnersAreToldFirst(t *testing.T) {
	for _, order := range [][]schema.GroupVersionResource{{nodes, secrets, configMaps}, {configMaps, nodes, secrets}, {secrets, configMaps, nodes}} {
		synctest.Test(t, func(t *testing.T) {
			c := newCollected(t)
			c.maps.down.Store(true)
			for _, gvr := range order {
				c.monitor(t, gvr)
			}
			c.checkTold(t, "before the start", "")
			c.first.Start(c.stop)
			c.checkTold(t, "while owners cannot be listed", "")
			c.checkSynced(t, "while owners cannot be listed")
			c.maps.down.Store(false)
			time.Sleep(ownersPatience / 2) // virtual: the Reflector tries again
			c.checkTold(t, "after all have been listed", "map map secret secret node node")
			c.checkSynced(t, "after all have been listed", "configmaps", "nodes", "secrets")

			c.nodes.Add(dependentOf("node-c", ""))
			c.maps.Add(dependentOf("map-c", ""))
			synctest.Wait()
			if calls := c.told.take(); len(calls) != 2 {
				t.Errorf("what came later was told as %q", calls)
			}
		})
	}
}

// TestOwnersAreWaitedForSoLong has a kind that cannot be listed. The handlers of the others stop
// waiting for it.
func TestOwnersAreWaitedForSoLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCollected(t)
		c.secrets.down.Store(true)
		for _, gvr := range []schema.GroupVersionResource{nodes, secrets, configMaps} {
			c.monitor(t, gvr)
		}
		c.first.Start(c.stop)
		time.Sleep(ownersPatience - time.Millisecond) // virtual, as are all below
		c.checkTold(t, "shortly before", "")
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if calls := c.told.take(); len(calls) != 4 {
			t.Errorf("without the kind in the middle handlers were told %q, want both nodes and both ConfigMaps", calls)
		}
		c.checkSynced(t, "without the kind in the middle", "configmaps", "nodes")
		c.secrets.down.Store(false)
		time.Sleep(time.Minute)
		c.checkTold(t, "when it can be listed", "secret secret")
		c.checkSynced(t, "when it can be listed", "configmaps", "nodes", "secrets")
	})
}

// TestOwnersInACircle has a ConfigMap that is owned by a node, which closes a circle.
func TestOwnersInACircle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCollected(t)
		c.maps.Add(dependentOf("map-c", "node-a"))
		for _, gvr := range []schema.GroupVersionResource{nodes, secrets, configMaps} {
			c.monitor(t, gvr)
		}
		c.first.Start(c.stop)
		synctest.Wait()
		if calls := c.told.take(); len(calls) != 7 {
			t.Errorf("handlers were told %q, want all 7", calls)
		}
		c.checkSynced(t, "in a circle", "configmaps", "nodes", "secrets")
	})
}

// TestKindsThatComeLater checks that the handlers of later kinds are told by themselves, and that
// earlier ones are not told again.
func TestKindsThatComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCollected(t)
		c.monitor(t, nodes)
		c.first.Start(c.stop)
		c.first.Start(c.stop)
		c.checkTold(t, "at first", "node node")
		c.monitor(t, configMaps)
		c.checkSynced(t, "before the second start", "nodes")
		c.first.Start(c.stop)
		c.checkTold(t, "later", "map map")
		c.checkSynced(t, "later", "configmaps", "nodes")
	})
}

// TestEndWhileOwnersAreWaitedFor closes the informers, or ends the context of the garbage
// collector, while handlers wait. They receive nothing, and no goroutine is left.
func TestEndWhileOwnersAreWaitedFor(t *testing.T) {
	for name, end := range map[string]func(*collected){
		"the informers": func(c *collected) { c.first.Close() },
		"the factory first": func(c *collected) {
			c.Shutdown()
			c.first.Close()
		},
		"the garbage collector": func(c *collected) {
			close(c.stop)
			synctest.Wait()
			c.maps.down.Store(false)
			time.Sleep(time.Minute) // virtual
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCollected(t)
				c.maps.down.Store(true)
				c.monitor(t, nodes)
				c.monitor(t, configMaps)
				c.first.Start(c.stop)
				synctest.Wait()
				end(c)
				c.checkTold(t, "at the end", "")
				c.monitor(t, secrets)
				c.first.Start(c.stop)
				c.checkTold(t, "after the end", "")
			})
		})
	}
}

// TestCloseWaits closes the informers while the graph grows.
func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCollected(t)
		c.monitor(t, nodes)
		c.growing.Lock()
		c.first.Start(c.stop)
		c.checkTold(t, "while the graph grows", "node node")
		if n := c.settling.Load(); n != 1 {
			t.Errorf("%d wait for the graph, want 1", n)
		}
		c.first.Close()
		if n := c.settling.Load(); n != 0 {
			t.Errorf("%d wait for the graph after Close", n)
		}
		c.checkSynced(t, "after Close")
	})
}

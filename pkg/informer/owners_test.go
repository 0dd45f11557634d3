package informer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// collected is a factory as a garbage collector uses it. ConfigMaps own Secrets, which own nodes,
// and nodes are cached already.
type collected struct {
	*Factory
	first                *OwnersFirst
	maps, secrets, nodes *fakeResource
	told                 recorder
	controllers          map[string]cache.Controller
	stop                 chan struct{}
	// growing keeps the graph from containing what handlers have received.
	growing sync.RWMutex
}

// settle waits for the graph, as the collector's Settle does.
func (c *collected) settle(ctx context.Context) error {
	for !c.growing.TryRLock() {
		select {
		case <-time.After(time.Second): // virtual
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	c.growing.RUnlock()
	return nil
}

func newCollected(t *testing.T) *collected {
	pool := newTestPool(t, &apiServer{}, clock.RealClock{}, 0)
	c := &collected{
		Factory: pool.NewFactory(shard.Everything(), nil),
		maps:    newFakeResource(t), secrets: newFakeResource(t), nodes: newFakeResource(t),
		controllers: map[string]cache.Controller{}, stop: make(chan struct{}),
	}
	t.Cleanup(c.Shutdown)
	for _, name := range []string{"a", "b"} {
		c.maps.Add(&v1.ConfigMap{ObjectMeta: dependentOf("map-"+name, "")})
		c.secrets.Add(&v1.Secret{ObjectMeta: dependentOf("secret-"+name, "map-"+name)})
		c.nodes.Add(&v1.Node{ObjectMeta: dependentOf("node-"+name, "secret-"+name)})
	}
	c.reading(nodes, c.nodes, &v1.Node{})
	c.StartWithContext(t.Context())
	synctest.Wait()
	c.reading(configMaps, c.maps, &v1.ConfigMap{})
	c.reading(secrets, c.secrets, &v1.Secret{})
	c.first = c.ObjectOrMetadata().OwnersFirst(c.settle)
	return c
}

// dependentOf returns the metadata of an object with owners; its UID is its name.
func dependentOf(name, owner string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name, UID: types.UID(name)}
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
		kind, _, _ := strings.Cut(strings.TrimPrefix(call, "add /"), "-")
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
			c.maps.cut(true)
			for _, gvr := range order {
				c.monitor(t, gvr)
			}
			c.checkTold(t, "before the start", "")
			c.first.Start(c.stop)
			c.checkTold(t, "while owners cannot be listed", "")
			c.checkSynced(t, "while owners cannot be listed")
			c.maps.cut(false)
			time.Sleep(ownersPatience / 2) // virtual: the Reflector tries again
			c.checkTold(t, "after all have been listed", "map map secret secret node node")
			c.checkSynced(t, "after all have been listed", "configmaps", "nodes", "secrets")

			c.nodes.Add(&v1.Node{ObjectMeta: dependentOf("node-c", "")})
			c.maps.Add(&v1.ConfigMap{ObjectMeta: dependentOf("map-c", "")})
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
		c.secrets.cut(true)
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
		c.secrets.cut(false)
		time.Sleep(time.Minute)
		c.checkTold(t, "when it can be listed", "secret secret")
		c.checkSynced(t, "when it can be listed", "configmaps", "nodes", "secrets")
	})
}

// TestOwnersInACircle has a ConfigMap that is owned by a node, which closes a circle.
func TestOwnersInACircle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCollected(t)
		c.maps.Add(&v1.ConfigMap{ObjectMeta: dependentOf("map-c", "node-a")})
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

// TestShutdownWhileOwnersAreWaitedFor ends a factory, or the context of the garbage collector,
// while handlers wait. They receive nothing, and no goroutine is left.
func TestShutdownWhileOwnersAreWaitedFor(t *testing.T) {
	for name, end := range map[string]func(*collected){
		"the factory": func(c *collected) { c.Shutdown() },
		"the garbage collector": func(c *collected) {
			close(c.stop)
			synctest.Wait()
			c.maps.cut(false)
			time.Sleep(time.Minute) // virtual
			c.Shutdown()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCollected(t)
				c.maps.cut(true)
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

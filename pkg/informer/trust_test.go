package informer

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/listwatch"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// second is a group that starts in a process whose first group has been reading ConfigMaps.
type second struct {
	pool     *Pool
	server   *apiServer
	resource *fakeResource
	group    *Factory
	told     informertest.Recorder
	handle   interface{ HasSynced() bool }
	began    time.Time
}

// newSecond has the first group fill its cache from r, and then writes an object, which the cache
// sees unless r is deaf.
func newSecond(t *testing.T, r func(*fakeResource) listwatch.Reader) *second {
	t.Helper()
	s := &second{server: &apiServer{takes: time.Millisecond}, resource: newFakeResource(t)}
	s.resource.Add(newConfigMap("a", "one")) // 1
	s.pool = newTestPool(t, s.server, clock.RealClock{}, 0)
	time.Sleep(time.Second) // virtual
	whole(t, s.pool, configMaps, r(s.resource))
	time.Sleep(time.Hour)                    // virtual
	s.resource.Add(newConfigMap("a", "two")) // 2
	synctest.Wait()
	serve(s.pool, configMaps, s.resource)
	s.server.requests()
	s.resource.ledger()
	s.began = time.Now()
	s.group = s.pool.NewFactory(shard.Everything(), nil)
	t.Cleanup(s.group.Shutdown)
	i := s.group.informer(sharedKey{resource: configMaps}, nil, true, s.resource, &v1.ConfigMap{})
	s.handle = informertest.MustAdd(t, i, &s.told)
	return s
}

func deaf(r *fakeResource) listwatch.Reader  { return deafResource{r} }
func hears(r *fakeResource) listwatch.Reader { return r }
func (s *second) took() time.Duration        { return time.Since(s.began) }

// TestGroupTrustsNoStalledCache starts a group in a process whose cache has a stalled watch. The
// group begins with the state of its start or a later one, and lists again only if it must.
func TestGroupTrustsNoStalledCache(t *testing.T) {
	for _, test := range []struct {
		name   string
		reader func(*fakeResource) listwatch.Reader
		warm   bool
		checks int // how many checks for freshness there were
		asked  string
		atMost time.Duration
	}{
		{"the watch has stalled", deaf, false, 1, "list", freshPatience + time.Second},
		{"the watch has stalled, and it is prepared", deaf, true, 1, "list", freshPatience + time.Second},
		{"the watch goes on", hears, false, 1, "", 2 * time.Millisecond},
		{"the watch goes on, and it is prepared", hears, true, 1, "", 2 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSecond(t, test.reader)
				if test.warm {
					if err := s.group.Warm(t.Context()); err != nil {
						t.Fatal(err)
					}
					informertest.CheckCalls(t, "a handler of a group that is prepared", &s.told)
				}
				s.group.StartWithContext(t.Context())
				if err := s.group.WaitForCacheSyncWithContext(t.Context()).Err; err != nil {
					t.Fatal(err)
				}
				if took := s.took(); took > test.atMost {
					t.Errorf("synced after %v, want at most %v", took, test.atMost)
				}
				informertest.CheckCalls(t, "a handler", &s.told, "add a/one@1 initial=true", "add a/two@2 initial=true")
				if !s.handle.HasSynced() {
					t.Error("a handler that was told everything has not synced")
				}
				if limited, full := s.server.lists(); limited != test.checks || full != 0 {
					t.Errorf("was asked %d times for what there is, and %d times for all of it; want %d and 0", limited, full, test.checks)
				}
				checkAsked(t, "the group", s.resource, test.asked)
			})
		})
	}
}

// TestGroupWaitsForAnAnswer checks that a group does not begin while the check for freshness has no
// answer: its handlers receive nothing, and the watch, which may be fine, is left alone.
func TestGroupWaitsForAnAnswer(t *testing.T) {
	for name, fails := range map[string]func(server *apiServer, fails bool){
		"an error": func(server *apiServer, fails bool) {
			server.fails = map[bool]int{true: http.StatusServiceUnavailable}[fails]
		},
		"no answer": func(server *apiServer, fails bool) { server.hangs = fails },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSecond(t, hears)
				s.server.set(func(server *apiServer) { fails(server, true) })
				s.group.StartWithContext(t.Context())
				patience, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				if err := s.group.WaitForCacheSyncWithContext(patience).Err; err == nil || s.handle.HasSynced() {
					t.Error("has synced though nobody could tell whether it may")
				}
				informertest.CheckCalls(t, "a handler", &s.told)
				checkAsked(t, "the group", s.resource, "")
				s.server.set(func(server *apiServer) { fails(server, false) })
				time.Sleep(3 * freshPatience) // virtual
				informertest.CheckCalls(t, "a handler", &s.told, "add a/one@1 initial=true", "add a/two@2 initial=true")
			})
		})
	}
}

// TestGroupEndsWhileItWaits ends a waiting group. The bubble fails if a goroutine is left.
func TestGroupEndsWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecond(t, deaf)
		s.server.set(func(server *apiServer) { server.hangs = true })
		s.group.StartWithContext(t.Context())
		time.Sleep(time.Second) // virtual
		s.group.Shutdown()
		informertest.CheckCalls(t, "a handler", &s.told)
	})
}

// TestStalledWholeIsReadAnewForMetadata checks that a stalled informer lists again for the sake of
// metadata that follows it.
func TestStalledWholeIsReadAnewForMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := newFakeResource(t)
		resource.Add(newConfigMap("a", "one"))
		pool := newTestPool(t, &apiServer{takes: time.Millisecond}, clock.RealClock{}, 0)
		whole(t, pool, configMaps, deafResource{resource})
		synctest.Wait()
		serve(pool, configMaps, resource)
		begin := func() (objects int) {
			group := pool.NewFactory(shard.Everything(), nil)
			t.Cleanup(group.Shutdown)
			key := sharedKey{resource: configMaps, metadata: true}
			i := group.informer(key, nil, true, resource, &metav1.PartialObjectMetadata{})
			group.StartWithContext(t.Context())
			if err := group.WaitForCacheSyncWithContext(t.Context()).Err; err != nil {
				t.Fatal(err)
			}
			return len(i.GetStore().List())
		}
		if n := begin(); n != 1 {
			t.Errorf("has synced with %d objects of 1", n)
		}
		resource.Add(newConfigMap("a", "two"))
		resource.ledger()
		if n := begin(); n != 2 {
			t.Errorf("has synced with %d objects of 2", n)
		}
		checkAsked(t, "metadata", resource, "list")
		checkFollowed(t, pool, configMaps, 1)
	})
}

// TestStalledNamespacesAreReadAnew checks that a stalled Namespace informer lists again for a
// range, which cannot read Namespaces by itself.
func TestStalledNamespacesAreReadAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		low, _ := namesInHalves(t)
		resource := newFakeResource(t)
		pool := newTestPool(t, &apiServer{takes: time.Millisecond}, clock.RealClock{}, 0)
		group := pool.NewFactory(shard.Everything(), nil)
		defer group.Shutdown()
		group.reading(namespaces, deafResource{resource}, &v1.Namespace{})
		group.StartWithContext(t.Context())
		time.Sleep(time.Second) // virtual
		resource.Add(newNamespace(low))
		ranged, _ := halves(t, pool)
		i := ranged.reading(namespaces, resource, &v1.Namespace{})
		began := time.Now()
		ranged.StartWithContext(t.Context())
		if err := ranged.WaitForCacheSyncWithContext(t.Context()).Err; err != nil {
			t.Fatal(err)
		}
		if n, took := len(i.GetStore().List()), time.Since(began); n != 1 || took > freshPatience+time.Second {
			t.Errorf("has synced with %d Namespaces of 1, after %v", n, took)
		}
	})
}

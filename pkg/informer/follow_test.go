package informer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/listwatch"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// whole starts an informer of everything that reads from r.
func whole(t *testing.T, p *Pool, gvr schema.GroupVersionResource, r listwatch.Reader) (*Factory, cache.SharedIndexInformer) {
	t.Helper()
	f := p.NewFactory(shard.Everything(), nil)
	t.Cleanup(f.Shutdown)
	i := f.reading(gvr, r, &v1.ConfigMap{})
	f.StartWithContext(context.WithoutCancel(t.Context()))
	return f, i
}

func checkFollowed(t *testing.T, p *Pool, gvr schema.GroupVersionResource, want int) {
	t.Helper()
	synctest.Wait()
	if got := p.Followed()[gvr]; got != want {
		t.Errorf("%d informers of %s follow, want %d", got, gvr.Resource, want)
	}
}

// TestRangesFollowTheWhole starts an informer of everything before two ranges, ends it, and starts
// it again.
func TestRangesFollowTheWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := newFakeResource(t)
		low, high := namesInHalves(t)
		resource.Add(newConfigMap(low, "one"))
		resource.Add(newConfigMap(high, "two"))
		pool := newTestPool(t, &apiServer{shards: true}, clock.RealClock{}, 0)
		all, everything := whole(t, pool, configMaps, resource)
		inLow, inHigh := halves(t, pool)
		first, second := inLow.reading(configMaps, resource, &v1.ConfigMap{}), inHigh.reading(configMaps, resource, &v1.ConfigMap{})
		var told informertest.Recorder
		informertest.MustAdd(t, first, &told)
		for _, f := range []*Factory{inLow, inHigh} {
			f.StartWithContext(t.Context())
		}
		informertest.CheckCalls(t, "a range that follows", &told, "add "+low+"/one@1 initial=true")
		checkFollowed(t, pool, configMaps, 2)
		if n := resource.requests(); n != 2 || len(pool.Modes()) != 0 {
			t.Errorf("%d requests and probes for %v, want a list and a watch, and none", n, pool.Modes())
		}
		mine, _, _ := first.GetStore().GetByKey(low + "/one")
		if theirs, _, _ := everything.GetStore().GetByKey(low + "/one"); mine != theirs {
			t.Error("an object is held twice")
		}
		if len(second.GetStore().List()) != 1 || inLow.Objects()[configMaps] != 1 || inLow.Weights()[low] != 1 {
			t.Errorf("the ranges have %d and %d objects, weights %v", inLow.Objects()[configMaps], inHigh.Objects()[configMaps], inLow.Weights())
		}
		resource.Add(newConfigMap(high, "three")) // 3
		synctest.Wait()
		if v := first.LastSyncResourceVersion(); v != "3" {
			t.Errorf("what is outside its range left a follower at version %s, want 3", v)
		}

		all.Shutdown()
		resource.Modify(newConfigMap(low, "one")) // 4
		informertest.CheckCalls(t, "a range that was left", &told, "update "+low+"/one@1 -> "+low+"/one@4")
		checkFollowed(t, pool, configMaps, 0)
		if n := resource.requests(); n != 4 {
			t.Errorf("%d requests, want a watch for each range too, and no list", n)
		}
		_, everything = whole(t, pool, configMaps, resource)
		time.Sleep(2 * time.Second)
		checkFollowed(t, pool, configMaps, 2)
		resource.Delete(newConfigMap(low, "one")) // 5
		informertest.CheckCalls(t, "a range that follows again", &told, "delete "+low+"/one@5")
		if n := resource.requests(); n != 6 || first.LastSyncResourceVersion() != everything.LastSyncResourceVersion() {
			t.Errorf("%d requests, want two more; versions %s and %s", n, first.LastSyncResourceVersion(), everything.LastSyncResourceVersion())
		}
	})
}

// slowReader lists only once it is released.
type slowReader struct {
	*fakeResource
	list chan struct{}
}

func (r slowReader) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	select {
	case <-r.list:
		return r.fakeResource.List(ctx, o)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestWaitsForTheWholeToBeFilled checks that a range waits for the informer of everything to fill,
// but not for ever.
func TestWaitsForTheWholeToBeFilled(t *testing.T) {
	for _, takes := range []time.Duration{fillPatience / 2, 4 * fillPatience} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				low, _ := namesInHalves(t)
				resource := newFakeResource(t)
				resource.Add(newConfigMap(low, "one"))
				pool := newTestPool(t, &apiServer{shards: true}, clock.RealClock{}, 0)
				slow := slowReader{resource, make(chan struct{})}
				whole(t, pool, configMaps, slow)
				inLow, inHigh := halves(t, pool)
				i := inLow.reading(configMaps, resource, &v1.ConfigMap{})
				ended := inHigh.reading(configMaps, resource, &v1.ConfigMap{})
				inLow.StartWithContext(t.Context())
				inHigh.StartWithContext(t.Context())
				synctest.Wait()
				inHigh.Shutdown() // while it waits
				time.AfterFunc(takes, func() { close(slow.list) })
				began := time.Now()
				<-i.HasSyncedChecker().Done()
				if took := time.Since(began); took != min(takes, fillPatience) {
					t.Errorf("the range was filled after %v, want %v", took, min(takes, fillPatience))
				}
				time.Sleep(5 * fillPatience)
				checkFollowed(t, pool, configMaps, 1)
				want := 2 // a list and a watch
				if takes > fillPatience {
					want = 4
				}
				if n := resource.requests(); n != want || ended.HasSynced() {
					t.Errorf("%d requests, want %d; a range that has ended has synced: %t", n, want, ended.HasSynced())
				}
			})
		})
	}
}

// deafResource has watches that never send an event.
type deafResource struct{ *fakeResource }

func (r deafResource) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.SendInitialEvents != nil {
		return nil, errors.New("no streaming lists")
	}
	return watch.NewFake(), nil
}

// lists returns the lists that a server was asked for, each with its limit.
func (s *apiServer) lists() (limited, full int) {
	for _, r := range s.requests() {
		switch {
		case r.URL.Query().Get("shardSelector") != "":
		case r.URL.Query().Get("limit") != "":
			limited++
		default:
			full++
		}
	}
	return limited, full
}

// TestFollowersAreOfThePresent starts ranges beside an informer of everything that was filled
// earlier.
func TestFollowersAreOfThePresent(t *testing.T) {
	low, _ := namesInHalves(t)
	for name, c := range map[string]struct {
		missed    bool
		other     bool
		follows   int
		atMost    time.Duration
		mostLists int
	}{
		"nothing has happened":                   {follows: 16, mostLists: 2, atMost: 2 * time.Millisecond},
		"the watch is behind for good":           {missed: true, atMost: freshPatience + time.Second},
		"the watch is behind, and nothing moves": {missed: true, other: true, atMost: freshPatience + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				resource, server := newFakeResource(t), &apiServer{takes: time.Millisecond}
				resource.Add(newConfigMap(low, "one"))
				pool := newTestPool(t, server, clock.RealClock{}, 0)
				whole(t, pool, configMaps, deafResource{resource})
				synctest.Wait()
				if c.missed {
					resource.Add(newConfigMap(low, "two"))
				}
				ranges, err := shard.EqualRanges(16)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				var factories []*Factory
				for _, r := range ranges {
					f := pool.NewFactory(r, nil)
					defer f.Shutdown()
					factories = append(factories, f)
					f.reading(configMaps, resource, &v1.ConfigMap{})
					f.StartWithContext(t.Context())
				}
				serve(pool, configMaps, resource)
				held := 0
				for _, f := range factories {
					if err := f.WaitForCacheSyncWithContext(t.Context()).Err; err != nil {
						t.Fatal(err)
					}
					held += f.Objects()[configMaps]
				}
				if want := len(resource.Server.FakeControllerSource.Items); held != want || time.Since(began) > c.atMost {
					t.Errorf("the ranges hold %d objects of %d after %v, want all within %v", held, want, time.Since(began), c.atMost)
				}
				checkFollowed(t, pool, configMaps, c.follows)
				if limited, full := server.lists(); c.follows > 0 && (limited == 0 || limited > c.mostLists || full > 0) {
					t.Errorf("16 ranges made %d limited lists and %d full ones of metadata, want at most %d, and none", limited, full, c.mostLists)
				}
			})
		})
	}
}

// late lists after a time, and its watches receive nothing.
type late struct {
	deafResource
	takes time.Duration
}

// List implements listwatch.Reader.
func (l late) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	time.Sleep(l.takes) // virtual
	return l.deafResource.List(ctx, o)
}

// TestWaitsAsLongAsReadingTook starts a range while another one is being checked, and each check
// takes 4 s, fails after 9 s because the cache is behind, or gets no answer.
func TestWaitsAsLongAsReadingTook(t *testing.T) {
	low, _ := namesInHalves(t)
	for name, c := range map[string]struct {
		listed, looked time.Duration
		behind, hangs  bool
		follow         int
	}{
		"as long":                    {listed: 10 * time.Second, looked: 8200 * time.Millisecond, follow: 2},
		"not longer":                 {listed: time.Second, looked: 8200 * time.Millisecond, follow: 1},
		"it is given up when behind": {listed: 30 * time.Second, looked: 19 * time.Second, behind: true},
		"for a minute at most":       {listed: 5 * time.Minute, looked: fillPatience + 10*time.Second, hangs: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				resource, server := newFakeResource(t), &apiServer{takes: time.Millisecond}
				resource.Add(newConfigMap(low, "one"))
				pool := newTestPool(t, server, clock.RealClock{}, 0)
				serve(pool, configMaps, resource)
				whole(t, pool, configMaps, late{deafResource{resource}, c.listed})
				time.Sleep(time.Hour) // virtual
				if c.behind {
					resource.Add(newConfigMap(low, "two"))
				}
				server.set(func(s *apiServer) { s.takes, s.hangs = 4*time.Second, c.hangs })
				began := time.Now()
				var ranges []*Factory
				for range 2 {
					f, _ := halves(t, pool)
					f.reading(configMaps, resource, &v1.ConfigMap{})
					f.StartWithContext(t.Context())
					ranges = append(ranges, f)
					time.Sleep(100 * time.Millisecond) // virtual
				}
				time.Sleep(time.Until(began.Add(c.looked))) // virtual
				checkFollowed(t, pool, configMaps, c.follow)
				for i, f := range ranges[:c.follow] {
					if !f.HasSynced() {
						t.Errorf("range %d has not synced", i)
					}
				}
			})
		})
	}
}

// TestShutdownWhileItIsHeldAgainstThePresent ends a range, or the informer that it follows, while
// the server does not answer the check for freshness.
func TestShutdownWhileItIsHeldAgainstThePresent(t *testing.T) {
	for _, first := range []string{"range", "whole"} {
		t.Run(first, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				resource, server := newFakeResource(t), &apiServer{}
				pool := newTestPool(t, server, clock.RealClock{}, 0)
				all, _ := whole(t, pool, configMaps, resource)
				synctest.Wait()
				server.set(func(s *apiServer) { s.hangs = true })
				low, _ := halves(t, pool)
				i := low.reading(configMaps, resource, &v1.ConfigMap{})
				low.StartWithContext(t.Context())
				checkFollowed(t, pool, configMaps, 1)
				if i.HasSynced() {
					t.Error("it has synced though nobody knows whether it is of the present")
				}
				began := time.Now()
				if first == "range" {
					low.Shutdown()
					all.Shutdown()
				} else {
					server.set(func(s *apiServer) { s.hangs = false })
					all.Shutdown()
					<-i.HasSyncedChecker().Done()
				}
				if took := time.Since(began); took > time.Minute || first == "range" && took > 0 {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// TestMetadataFollowsWholeObjects has informers of metadata, one of everything and one of a range,
// follow an informer of whole objects.
func TestMetadataFollowsWholeObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name, _ := namesInHalves(t)
		typed, untyped := newFakeResource(t), newFakeResource(t)
		partial := func(version string) *metav1.PartialObjectMetadata {
			m := metav1.PartialObjectMetadata{ObjectMeta: newConfigMap(name, "one").ObjectMeta}
			m.ResourceVersion = version
			return &m
		}
		typed.Add(newConfigMap(name, "one"))
		untyped.Add(partial("1"))
		pool := newTestPool(t, &apiServer{shards: true}, clock.RealClock{}, 0)
		objects, _ := whole(t, pool, configMaps, typed)
		synctest.Wait()
		key := sharedKey{resource: configMaps, metadata: true}
		garbage := pool.NewFactory(shard.Everything(), nil)
		defer garbage.Shutdown()
		low, _ := halves(t, pool)
		var told [2]informertest.Recorder
		var stores [2]cache.SharedIndexInformer
		for i, f := range []*Factory{garbage, low} {
			stores[i] = f.informer(key, nil, true, untyped, &metav1.PartialObjectMetadata{})
			informertest.MustAdd(t, stores[i], &told[i])
			f.StartWithContext(t.Context())
		}
		held := func() (types []string) {
			for _, s := range stores {
				for _, obj := range s.GetStore().List() {
					types = append(types, strings.TrimPrefix(strings.TrimPrefix(typeName(obj), "*v1."), "*"))
				}
			}
			return types
		}
		for i := range told {
			informertest.CheckCalls(t, "a handler of metadata", &told[i], "add "+name+"/one@1 initial=true")
		}
		checkFollowed(t, pool, configMaps, 2)
		if diff := cmp.Diff([]string{"ConfigMap", "ConfigMap"}, held()); diff != "" || untyped.requests() != 0 {
			t.Errorf("%d requests, and it holds (-want +got):\n%s", untyped.requests(), diff)
		}
		lister := low.metadata(configMaps).Lister()
		if got, err := lister.ByNamespace(name).Get("one"); err != nil || got == nil {
			t.Errorf("the lister of metadata has %v, %v", got, err)
		}

		objects.Shutdown()
		time.Sleep(time.Second)
		// The range follows the metadata of everything, which reads by itself.
		checkFollowed(t, pool, configMaps, 1)
		if diff := cmp.Diff([]string{"PartialObjectMetadata", "PartialObjectMetadata"}, held()); diff != "" {
			t.Errorf("whole objects are kept when nobody has them any more (-want +got):\n%s", diff)
		}
		untyped.Modify(partial("2"))
		for i := range told {
			informertest.CheckCalls(t, "a handler of metadata", &told[i], "update "+name+"/one@1 -> "+name+"/one@2")
		}
		if diff := cmp.Diff([]string{"PartialObjectMetadata", "PartialObjectMetadata"}, held()); diff != "" || !slices.Contains([]int{1, 2}, untyped.requests()) {
			t.Errorf("%d requests, and it holds (-want +got):\n%s", untyped.requests(), diff)
		}
		garbage.Shutdown()
		untyped.Modify(partial("3"))
		informertest.CheckCalls(t, "a range that was left", &told[1], "update "+name+"/one@2 -> "+name+"/one@3")
		checkFollowed(t, pool, configMaps, 0)
	})
}

func typeName(obj any) string {
	if _, ok := obj.(*v1.ConfigMap); ok {
		return "ConfigMap"
	}
	return "PartialObjectMetadata"
}

// TestNamespacesLearnOfAList checks that a list of the process's Namespace informer advances the
// shards' informers even if it changes nothing.
func TestNamespacesLearnOfAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		low, high := namesInHalves(t)
		spaces := newFakeResource(t)
		spaces.Add(newNamespace(low))
		pool := newTestPool(t, &apiServer{}, clock.RealClock{}, 0)
		inLow, _ := halves(t, pool)
		i := inLow.reading(namespaces, spaces, &v1.Namespace{})
		inLow.StartWithContext(t.Context())
		synctest.Wait()
		spaces.Cut(true)
		spaces.Add(newNamespace(high))
		spaces.Delete(newNamespace(high))
		spaces.Cut(false)
		time.Sleep(time.Minute)
		if v := i.LastSyncResourceVersion(); v != "3" {
			t.Errorf("the shard's Namespaces are at version %s, want 3", v)
		}
	})
}

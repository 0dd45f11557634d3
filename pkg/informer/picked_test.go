package informer

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/listwatch"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// chosen returns an object that is picked if it has an owner.
func chosen(name string, picked bool) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID("uid-" + name)}}
	if picked {
		m.OwnerReferences = []metav1.OwnerReference{{Name: "owner"}}
	}
	return m
}

func isChosen(obj metav1.Object) bool { return len(obj.GetOwnerReferences()) > 0 }

// picking starts an informer that picks, in a pool whose server filters or does not.
func picking(t *testing.T, filters bool, r listwatch.Reader) (*Pool, *Factory, cache.SharedIndexInformer, *informertest.Recorder) {
	t.Helper()
	pool := newTestPool(t, &apiServer{shards: filters}, clock.RealClock{}, 0)
	f := pool.NewFactory(shard.Everything(), nil)
	t.Cleanup(f.Shutdown)
	serve(pool, configMaps, r)
	i := inner(f.pickedFrom(configMaps, r, isChosen))
	told := &informertest.Recorder{}
	informertest.MustAdd(t, i, told)
	f.StartWithContext(t.Context())
	time.Sleep(time.Second) // virtual: longer than ranges that read together wait for each other
	return pool, f, i, told
}

// TestPickedStays checks that a picked object stays until it is deleted, so that no handler is told
// of a deletion that did not happen.
func TestPickedStays(t *testing.T) {
	for name, filters := range map[string]bool{"the server filters": true, "the process reads together": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newFakeResource(t)
				all.Add(chosen("one", true))    // 1
				all.Add(chosen("two", false))   // 2
				all.Add(chosen("three", false)) // 3
				_, _, i, told := picking(t, filters, all)
				informertest.CheckCalls(t, "at the start", told, "add a/one@1 initial=true")
				all.Modify(chosen("one", false)) // 4
				all.Modify(chosen("two", true))  // 5
				informertest.CheckCalls(t, "a handler", told, "update a/one@1 -> a/one@4", "add a/two@5 initial=false")
				all.expire()
				time.Sleep(time.Minute)
				informertest.CheckCalls(t, "after another list", told)
				if got := i.LastSyncResourceVersion(); got != "5" {
					t.Errorf("it has come to version %s, want 5", got)
				}
				all.Delete(chosen("one", false))   // 6
				all.Delete(chosen("three", false)) // 7
				informertest.CheckCalls(t, "of deletions", told, "delete a/one@6")
				if keys := i.GetStore().ListKeys(); len(keys) != 1 || keys[0] != "a/two" {
					t.Errorf("the cache holds %v, want what was picked and is there", keys)
				}
				synctest.Wait()
				if got := i.LastSyncResourceVersion(); got != "7" {
					t.Errorf("what was not picked left it at version %s, want 7", got)
				}
			})
		})
	}
}

// script is a resource whose lists are watches with events that the test sends one by one. It
// implements listwatch.Reader.
type script struct {
	t       *testing.T
	events  chan watch.Event
	version int
}

// List implements listwatch.Reader.
func (s *script) List(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return nil, errors.New("lists are watches here")
}

// Watch implements listwatch.Reader.
func (s *script) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if !listwatch.Streams(o) {
		s.t.Error("a list in the form of a watch has not gone on as a watch")
	}
	return &ticking{events: s.events, stop: sync.OnceFunc(func() { close(s.events) })}, nil
}

// send sends an event, with the next version.
func (s *script) send(event watch.EventType, obj *metav1.PartialObjectMetadata) {
	s.version++
	obj.ResourceVersion = fmt.Sprint(s.version)
	s.events <- watch.Event{Type: event, Object: obj}
}

// endList sends the bookmark that ends the list.
func (s *script) endList() {
	end := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: fmt.Sprint(s.version),
		Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
	s.events <- watch.Event{Type: watch.Bookmark, Object: end}
}

// TestPickedInAStream checks that an object which changes or goes during a streamed list is not
// kept as it was at first.
func TestPickedInAStream(t *testing.T) {
	for name, filters := range map[string]bool{"the server filters": true, "the process reads together": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := &script{t: t, events: make(chan watch.Event)}
				pool, _, i, told := picking(t, filters, all)
				for _, name := range []string{"loses", "loses-and-goes", "goes", "stays", "again"} {
					all.send(watch.Added, chosen(name, true)) // 1 to 5
				}
				all.send(watch.Added, chosen("gets", false)) // 6
				all.send(watch.Added, chosen("never", false))
				all.send(watch.Modified, chosen("loses", false))          // 8
				all.send(watch.Modified, chosen("loses-and-goes", false)) // 9
				all.send(watch.Deleted, chosen("loses-and-goes", false))  // 10
				all.send(watch.Deleted, chosen("goes", true))             // 11
				all.send(watch.Modified, chosen("gets", true))            // 12
				all.send(watch.Deleted, chosen("again", true))            // 13
				another := chosen("again", false)
				another.UID = "another"
				all.send(watch.Added, another) // 14
				all.endList()
				informertest.CheckCalls(t, "at the end of the list", told, "add a/gets@12 initial=true", "add a/stays@4 initial=true")
				all.send(watch.Modified, chosen("stays", false)) // 15
				all.send(watch.Modified, chosen("loses", true))  // 16
				all.send(watch.Deleted, chosen("gets", false))   // 17
				all.send(watch.Deleted, chosen("stays", false))  // 18
				informertest.CheckCalls(t, "later", told, "delete a/gets@17", "add a/loses@16 initial=false", "update a/stays@4 -> a/stays@15", "delete a/stays@18")
				if keys := i.GetStore().ListKeys(); len(keys) != 1 || keys[0] != "a/loses" {
					t.Errorf("the cache holds %v, want what was picked and is there", keys)
				}
				if n := pool.Discarded(); n != 0 {
					t.Errorf("%d objects and events count as outside of a range", n)
				}
			})
		})
	}
}

// TestPickedListIsNotGathered checks that objects which are not picked are dropped while a list
// streams, not at its end.
func TestPickedListIsNotGathered(t *testing.T) {
	for name, filters := range map[string]bool{"the server filters": true, "the process reads together": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := &script{t: t, events: make(chan watch.Event)}
				_, _, i, _ := picking(t, filters, all)
				var sent []weak.Pointer[metav1.PartialObjectMetadata]
				for n := range 40 {
					obj := chosen(fmt.Sprint(n), n%8 == 0)
					if n%8 > 0 {
						sent = append(sent, weak.Make(obj))
					}
					all.send(watch.Added, obj)
				}
				synctest.Wait()
				goruntime.GC()
				goruntime.GC()
				kept := 0
				for _, obj := range sent {
					if obj.Value() != nil {
						kept++
					}
				}
				if kept > 2 { // the last ones may still be on a stack
					t.Errorf("%d objects that are not picked are kept until the end of the list", kept)
				}
				all.endList()
				synctest.Wait()
				if got := len(i.GetStore().ListKeys()); got != 5 {
					t.Errorf("%d picked objects, want 5", got)
				}
			})
		})
	}
}

// TestPickedIsTheObject checks that another object with the same name counts as not picked.
func TestPickedIsTheObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newFakeResource(t)
		all.Add(chosen("one", true)) // 1
		_, _, i, told := picking(t, true, all)
		informertest.CheckCalls(t, "at the start", told, "add a/one@1 initial=true")
		all.Cut(true)
		all.end()
		all.Delete(chosen("one", true)) // 2
		another := chosen("one", false)
		another.UID = "another"
		all.Add(another) // 3
		all.expire()
		all.Cut(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		calls := told.Take()
		if len(calls) != 1 || calls[0] != "missed a/one@1 a/one" && calls[0] != "delete a/one@2" {
			t.Errorf("after the object was made again a handler was told %v, want its deletion alone", calls)
		}
		if keys := i.GetStore().ListKeys(); len(keys) != 0 {
			t.Errorf("the cache holds %v", keys)
		}
	})
}

// TestPickedFollows checks that picked objects are taken from the process's whole objects, if there
// are any, and not held twice.
func TestPickedFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := newFakeResource(t)
		one := newConfigMap("a", "one")
		one.OwnerReferences = []metav1.OwnerReference{{Name: "owner"}}
		resource.Add(one)                      // 1
		resource.Add(newConfigMap("a", "two")) // 2
		pool := newTestPool(t, &apiServer{shards: true}, clock.RealClock{}, 0)
		_, everything := whole(t, pool, configMaps, resource)
		synctest.Wait()
		f := pool.NewFactory(shard.Everything(), nil)
		defer f.Shutdown()
		i := inner(f.pickedFrom(configMaps, resource, isChosen))
		var told informertest.Recorder
		informertest.MustAdd(t, i, &told)
		f.StartWithContext(t.Context())
		informertest.CheckCalls(t, "a follower", &told, "add a/one@1 initial=true")
		checkFollowed(t, pool, configMaps, 1)
		mine, _, _ := i.GetStore().GetByKey("a/one")
		if theirs, _, _ := everything.GetStore().GetByKey("a/one"); mine != theirs {
			t.Error("an object is held twice")
		}
		if n := resource.requests(); n != 2 {
			t.Errorf("%d requests, want a list and a watch", n)
		}
	})
}

// TestPickedIsShed checks that a picking informer which followed whole objects keeps only their
// metadata once their informer has gone.
func TestPickedIsShed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := newFakeResource(t)
		one := newConfigMap("a", "one")
		one.OwnerReferences = []metav1.OwnerReference{{Name: "owner"}}
		resource.Add(one) // 1
		pool := newTestPool(t, &apiServer{shards: true}, clock.RealClock{}, 0)
		all, _ := whole(t, pool, configMaps, resource)
		synctest.Wait()
		f := pool.NewFactory(shard.Everything(), nil)
		defer f.Shutdown()
		i := inner(f.pickedFrom(configMaps, resource, isChosen))
		var told informertest.Recorder
		informertest.MustAdd(t, i, &told)
		f.StartWithContext(t.Context())
		informertest.CheckCalls(t, "a follower", &told, "add a/one@1 initial=true")
		checkFollowed(t, pool, configMaps, 1)
		all.Shutdown()
		synctest.Wait()
		obj, there, err := i.GetStore().GetByKey("a/one")
		if _, slim := obj.(*metav1.PartialObjectMetadata); !slim || !there || err != nil {
			t.Errorf("it holds %T, there: %t, %v; want metadata alone", obj, there, err)
		}
		informertest.CheckCalls(t, "a follower that reads by itself", &told)
	})
}

// TestPickedReadsTogether checks that a picking informer shares one list and one watch with ranges
// that read the kind's metadata, if the server does not filter.
func TestPickedReadsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := newFakeResource(t)
		resource.Add(chosen("one", true))  // 1
		resource.Add(chosen("two", false)) // 2
		pool := newTestPool(t, &apiServer{}, clock.RealClock{}, 0)
		low, high := halves(t, pool)
		f := pool.NewFactory(shard.Everything(), nil)
		defer f.Shutdown()
		serve(pool, configMaps, resource)
		for _, half := range []*Factory{low, high} {
			half.informer(sharedKey{resource: configMaps, metadata: true}, nil, true, resource, &metav1.PartialObjectMetadata{})
		}
		i := f.pickedFrom(configMaps, resource, isChosen)
		for _, each := range []*Factory{low, high, f} {
			each.StartWithContext(t.Context())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := pool.Discarded(); n != 0 {
			t.Errorf("%d objects count as outside of a range", n)
		}
		if n := resource.requests(); n != 2 || len(i.GetStore().ListKeys()) != 1 {
			t.Errorf("%d requests, want a list and a watch; picked: %v", n, i.GetStore().ListKeys())
		}
	})
}

// TestPickedResources checks that cluster-scoped resources are not picked from, and that a factory
// that has ended has no resources.
func TestPickedResources(t *testing.T) {
	pool := newTestPool(t, &apiServer{}, clock.RealClock{}, 0)
	f := pool.NewFactory(shard.Everything(), nil)
	picking := f.ObjectOrMetadata().Picking(isChosen)
	ofNodes, err := picking.ForResource(nodes)
	if err != nil {
		t.Fatal(err)
	}
	if all := f.metadata(nodes); ofNodes.Informer().GetIndexer() != all.Informer().GetIndexer() && ofNodes.Informer() != all.Informer() {
		t.Error("of nodes there is an informer apart")
	}
	first, err := picking.ForResource(v1.SchemeGroupVersion.WithResource("configmaps"))
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := picking.ForResource(configMaps); again.Informer() != first.Informer() {
		t.Error("asked again, another informer answers")
	}
	if all := f.metadata(configMaps); first.Informer() == all.Informer() {
		t.Error("what is picked is in the informer of all")
	}
	f.Shutdown()
	late, err := picking.ForResource(secrets)
	if err != nil || len(late.Informer().GetStore().List()) != 0 {
		t.Errorf("after the end: %v", err)
	}
}

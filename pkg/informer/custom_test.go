package informer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/listwatch"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/store"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// inBoth returns namespaces that alternate between the two halves of the keyspace.
func inBoth(t *testing.T, q *quay, names ...string) (all, low []string) {
	t.Helper()
	for half, namespace := range []string{inHalf(t, 0), inHalf(t, 1)} {
		for _, name := range names {
			q.Add(newBerth(namespace, name))
			all = append(all, namespace+"/"+name)
			if half == 0 {
				low = append(low, namespace+"/"+name)
			}
		}
	}
	slices.Sort(all)
	return all, low
}

func keysOf(i cache.SharedIndexInformer) []string {
	keys := i.GetStore().ListKeys()
	slices.Sort(keys)
	return keys
}

// TestAnyTypeIsPartitioned checks that two ranges partition a custom resource in each form, by list
// and by watch, whether the server filters or the client does. If the server does not filter, the
// ranges read together.
func TestAnyTypeIsPartitioned(t *testing.T) {
	for _, form := range forms {
		for _, filters := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, the server filters: %t", form.name, filters), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q, pool := newQuay(t)
					q.filters = filters
					inBoth(t, q, "listed")
					low, high := halvesOf(t, pool, namespacedBerths)
					first, second := form.ask(t, low, q), form.ask(t, high, q)
					if again := form.ask(t, low, q); again != first {
						t.Error("asked again, a factory has another informer")
					}
					stray := cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
						if accessor, err := meta.Accessor(obj); err != nil || !form.is(obj) || !low.Range().ContainsNamespace(accessor.GetNamespace()) {
							t.Errorf("the lower half's handler was given %T %v", obj, obj)
						}
					}}
					informertest.MustAdd(t, first, stray)
					for _, f := range []*Factory{low, high} {
						f.StartWithContext(t.Context())
						if err := f.WaitForCacheSyncWithContext(t.Context()).Err; err != nil {
							t.Fatal(err)
						}
					}
					all, lower := inBoth(t, q, "watched")
					synctest.Wait()
					for _, key := range slices.Clone(all) {
						all = append(all, strings.Replace(key, "watched", "listed", 1))
					}
					lower = append(lower, strings.Replace(lower[0], "watched", "listed", 1))
					slices.Sort(all)
					slices.Sort(lower)
					got := append(keysOf(first), keysOf(second)...)
					slices.Sort(got)
					if diff := cmp.Diff(all, got); diff != "" {
						t.Errorf("both halves (-want +got):\n%s", diff)
					}
					if diff := cmp.Diff(lower, keysOf(first)); diff != "" {
						t.Errorf("the lower half (-want +got):\n%s", diff)
					}
					watches, mode := 1, listwatch.ClientSide
					if filters {
						watches, mode = 2, listwatch.ServerSide
					}
					if got := q.watchers(); got != watches {
						t.Errorf("%d watches, want %d", got, watches)
					}
					if got := pool.Modes()[berths]; got != mode {
						t.Errorf("the mode is %s, want %s", got, mode)
					}
				})
			})
		}
	}
}

// TestAnyTypeIsShared checks that factories of everything share a custom resource, form by form,
// and that ranges follow it.
func TestAnyTypeIsShared(t *testing.T) {
	eachForm(t, func(t *testing.T, form form, q *quay, pool *Pool) {
		all, lower := inBoth(t, q, "one")
		low, _ := halvesOf(t, pool, namespacedBerths)
		part := form.ask(t, low, q)
		var whole []cache.SharedIndexInformer
		for range 2 {
			f := pool.NewFactory(shard.Everything(), namespacedBerths)
			defer f.Shutdown()
			whole = append(whole, form.ask(t, f, q))
			f.StartWithContext(t.Context())
		}
		low.StartWithContext(t.Context())
		synctest.Wait()
		checkShared(t, pool, berths)
		if got := q.watchers(); got != 1 {
			t.Errorf("%d watches of three factories, want 1", got)
		}
		if got := pool.Followed()[berths]; got != 1 {
			t.Errorf("%d informers follow, want the range's", got)
		}
		for _, i := range whole {
			if diff := cmp.Diff(all, keysOf(i)); diff != "" {
				t.Errorf("everything (-want +got):\n%s", diff)
			}
		}
		if diff := cmp.Diff(lower, keysOf(part)); diff != "" {
			t.Errorf("the lower half (-want +got):\n%s", diff)
		}
	})
}

// TestUnknownScope checks that asking fails if nobody knows whether a resource is namespaced.
func TestUnknownScope(t *testing.T) {
	q, pool := newQuay(t)
	low, _ := halvesOf(t, pool, nil)
	knows, _ := halvesOf(t, pool, namespacedBerths)
	custom := func(f *Factory, r Resource) error { _, err := f.Custom(r); return err }
	dynamic := func(f *Factory, gvr schema.GroupVersionResource) error { _, err := f.Dynamic(gvr); return err }
	metadata := func(f *Factory, gvr schema.GroupVersionResource) error { _, err := f.Metadata(gvr); return err }
	builtIn := q.resource(meta.RESTScopeNameRoot)
	builtIn.GVR = configMaps
	wrong := q.resource("Namespaced")
	empty := q.resource(meta.RESTScopeNameNamespace)
	empty.ListerWatcher = nil
	for _, test := range []struct {
		name string
		err  error
		want string // empty for no error
	}{
		{"dynamic", dynamic(low, berths), "not known"},
		{"metadata", metadata(low, berths), "not known"},
		{"custom", custom(low, q.resource("")), "not known"},
		{"custom, said", custom(low, q.resource(meta.RESTScopeNameNamespace)), ""},
		{"dynamic, known", dynamic(knows, berths), ""},
		{"metadata, known", metadata(knows, berths), ""},
		{"custom, known", custom(knows, q.resource("")), ""},
		{"custom, said and known", custom(knows, q.resource(meta.RESTScopeNameNamespace)), ""},
		{"custom, said otherwise", custom(knows, q.resource(meta.RESTScopeNameRoot)), "is namespaced: true"},
		{"custom of what is built in, said otherwise", custom(low, builtIn), "is namespaced: true"},
		{"dynamic of what is built in", dynamic(low, configMaps), ""},
		{"metadata of what is built in", metadata(low, configMaps), ""},
		{"no such scope", custom(low, wrong), "Scope"},
		{"no way to read", custom(low, empty), "ListerWatcher"},
		{"no object", custom(low, Resource{GVR: berths}), "Object"},
		{"no resource", custom(low, Resource{}), "GVR"},
	} {
		if got := fmt.Sprint(test.err); (test.err == nil) != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: got error %v, want one that says %q", test.name, test.err, test.want)
		}
	}
	pool.config.Dynamic = nil
	if err := dynamic(knows, schema.GroupVersionResource{Version: "v1", Resource: "pods"}); err == nil {
		t.Error("got a dynamic informer without a client")
	}
}

// TestClusterScopedThatIsNot checks that an informer holds no foreign objects of a resource that
// became namespaced after it was asked for as cluster-scoped.
func TestClusterScopedThatIsNot(t *testing.T) {
	for _, form := range []string{"dynamic", "metadata", "custom"} {
		t.Run(form, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, pool := newQuay(t)
				low, _ := halvesOf(t, pool, func(schema.GroupVersionResource) (bool, error) { return false, nil })
				whole := pool.NewFactory(shard.Everything(), namespacedBerths)
				defer whole.Shutdown()
				for _, f := range forms {
					if f.name == form {
						f.ask(t, whole, q) // must not be the cache that the range shares
					}
				}
				i := map[string]func() cache.SharedIndexInformer{
					"dynamic":  func() cache.SharedIndexInformer { i, _ := low.Dynamic(berths); return i.Informer() },
					"metadata": func() cache.SharedIndexInformer { i, _ := low.Metadata(berths); return i.Informer() },
					"custom":   func() cache.SharedIndexInformer { i, _ := low.Custom(q.resource("")); return i },
				}[form]()
				q.Add(newBerth("", "listed"))
				q.Add(newBerth(inHalf(t, 1), "listed"))
				whole.StartWithContext(t.Context())
				low.StartWithContext(t.Context())
				synctest.Wait()
				q.Add(newBerth("", "watched"))
				q.Add(newBerth(inHalf(t, 1), "watched"))
				synctest.Wait()
				if diff := cmp.Diff([]string{"listed", "watched"}, keysOf(i)); diff != "" {
					t.Errorf("a range's cache (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestStrictMetadata checks that handlers and listers of Metadata receive metadata even while it
// follows whole objects.
func TestStrictMetadata(t *testing.T) {
	for name, r := range map[string]shard.Range{"a range": listwatch.KeyspaceHalves[1], "everything": shard.Everything()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool := newTestPool(t, &apiServer{}, clock.RealClock{}, 0)
				object := func(payload string) *v1.ConfigMap {
					c := informertest.ConfigMap(inHalf(t, 1), "one")
					c.Data = map[string]string{"payload": payload}
					return c
				}
				resource := newFakeResource(t)
				resource.Add(object("heavy"))
				whole(t, pool, configMaps, resource)
				f := pool.NewFactory(r, nil)
				defer f.Shutdown()
				generic, err := f.Metadata(configMaps)
				if err != nil {
					t.Fatal(err)
				}
				told := 0
				look := func(obj any) {
					if told++; !isType[*metav1.PartialObjectMetadata](obj) {
						t.Errorf("a handler was given %T", obj)
					}
				}
				informertest.MustAdd(t, generic.Informer(), cache.ResourceEventHandlerFuncs{
					AddFunc: look, DeleteFunc: look, UpdateFunc: func(old, obj any) { look(old); look(obj) },
				})
				f.StartWithContext(t.Context())
				synctest.Wait()
				if got := pool.Followed()[configMaps]; got != 1 {
					t.Fatalf("%d informers follow, want that of the metadata", got)
				}
				resource.Modify(object("light"))
				synctest.Wait()
				objects, err := generic.Lister().List(labels.Everything())
				if err != nil || len(objects) != 1 || !isType[*metav1.PartialObjectMetadata](objects[0]) {
					t.Errorf("the lister has %v, error %v", objects, err)
				}
				resource.Delete(object("none"))
				synctest.Wait()
				if told != 4 { // added, updated from and to, deleted
					t.Errorf("handlers were told of %d objects, want 4", told)
				}
			})
		})
	}
}

// TestTypesOfASchemeOfOnesOwn checks that a registered type is found by type and by resource, and
// is the one that Custom returns.
func TestTypesOfASchemeOfOnesOwn(t *testing.T) {
	q, pool := newQuay(t)
	config := pool.config
	config.Resources = []Resource{q.resource(meta.RESTScopeNameNamespace)}
	pool, err := NewPool(config)
	if err != nil {
		t.Fatal(err)
	}
	low, _ := halvesOf(t, pool, nil)
	want, err := low.Custom(q.resource(meta.RESTScopeNameNamespace))
	if err != nil {
		t.Fatal(err)
	}
	if low.InformerFor(&berth{}, nil) != want {
		t.Error("InformerFor has another informer than Custom")
	}
	if i, err := low.ForResource(berths); err != nil || i.Informer() != want {
		t.Errorf("ForResource has another informer than Custom, error %v", err)
	}
	pods := Resource{GVR: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Object: &v1.Pod{}, ListerWatcher: q.resource("").ListerWatcher}
	if i, err := low.Custom(pods); err != nil || i != low.InformerFor(&v1.Pod{}, nil) {
		t.Errorf("Custom has another informer of a built-in type than InformerFor, error %v", err)
	}

	unscoped, generic := q.resource(""), q.resource(meta.RESTScopeNameNamespace)
	generic.Object = &unstructured.Unstructured{}
	pods.Scope = meta.RESTScopeNameNamespace
	for _, resources := range [][]Resource{
		{unscoped}, {generic}, {pods}, {{}}, {q.resource(meta.RESTScopeNameNamespace), q.resource(meta.RESTScopeNameNamespace)},
	} {
		config.Resources = resources
		if _, err := NewPool(config); err == nil || !strings.Contains(err.Error(), "Resources") {
			t.Errorf("got error %v of resources that cannot be registered", err)
		}
	}
	contradicts, _ := halvesOf(t, pool, func(schema.GroupVersionResource) (bool, error) { return false, nil })
	for _, f := range []func(){
		func() { low.InformerFor(&unstructured.Unstructured{}, nil) },
		func() { contradicts.InformerFor(&berth{}, nil) },
	} {
		func() {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.Contains(said, "PoolConfig.Resources") {
					t.Errorf("InformerFor said %s; want what to do instead", said)
				}
			}()
			f()
		}()
	}
}

// TestResourceThatComesAndGoes checks that nobody waits for a resource that the API server does not
// have, that its informer fills once the resource is defined, and that Refresh expects it to be
// empty once the resource is gone.
func TestResourceThatComesAndGoes(t *testing.T) {
	for _, form := range forms {
		for _, within := range []shard.Range{listwatch.KeyspaceHalves[0], shard.Everything()} {
			t.Run(fmt.Sprintf("%s of %s", form.name, within), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q, pool := newQuay(t)
					q.absent.Store(true)
					f := pool.NewFactory(within, namespacedBerths)
					defer f.Shutdown()
					i := form.ask(t, f, q)
					refresh := func() error {
						ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
						defer cancel()
						return f.Refresh(ctx)
					}
					warmed, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					if err := f.Warm(warmed); err != nil {
						t.Errorf("Warm waits for a resource that is not there: %v", err)
					}
					if i.HasSynced() || f.HasSynced() {
						t.Error("an informer that could not be filled has synced")
					}
					mark := map[schema.GroupResource]Mark{berths.GroupResource(): {Version: "5"}}
					for what, err := range map[string]error{"Refresh": refresh(), "CatchUp": f.CatchUp(warmed, mark)} {
						if err != nil {
							t.Errorf("%s waits for a resource that is not there: %v", what, err)
						}
					}

					time.Sleep(10 * time.Minute) // virtual
					if got := q.refused.Load(); got < 10 || got > 100 {
						t.Errorf("asked %d times for what is not there in 10 minutes; want 10 to 100", got)
					}
					namespace := inHalf(t, 0)
					q.Add(newBerth(namespace, "one"))
					q.absent.Store(false)
					f.StartWithContext(t.Context())
					if err := f.WaitForCacheSyncWithContext(t.Context()).Err; err != nil || len(keysOf(i)) != 1 {
						t.Fatalf("the cache has %v after the resource came, error %v", keysOf(i), err)
					}
					if err := refresh(); err != nil {
						t.Error(err)
					}
					late := pool.NewFactory(within, namespacedBerths)
					defer late.Shutdown()
					form.ask(t, late, q)
					if err := late.Warm(t.Context()); err != nil || !cache.IsDone(late.filling()[0].checker()) {
						t.Errorf("Warm does not wait for a resource that has come, error %v", err)
					}
					late.Shutdown()

					synctest.Wait() // It watches already, so it receives the deletions.
					q.absent.Store(true)
					if err := refresh(); err == nil || !strings.Contains(err.Error(), berths.GroupResource().String()) {
						t.Errorf("a cache that holds an object of a resource that is gone: Refresh returned %v; want an error that names it", err)
					}
					q.Delete(newBerth(namespace, "one"))
					synctest.Wait()
					q.end()
					time.Sleep(time.Minute) // virtual
					if err := refresh(); err != nil {
						t.Errorf("an empty cache of a resource that is gone is not fresh: %v", err)
					}

					q.absent.Store(false)
					q.Add(newBerth(namespace, "two"))
					time.Sleep(2 * time.Minute) // virtual
					if diff := cmp.Diff([]string{namespace + "/two"}, keysOf(i)); diff != "" {
						t.Errorf("after the resource has come back (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}

// TestAbsentResourceIsAskedForTogether checks that the API server is asked for a resource that has
// gone about as often as by one informer, however many ranges have one, and that all of them find
// it when it has come back.
func TestAbsentResourceIsAskedForTogether(t *testing.T) {
	eachForm(t, func(t *testing.T, form form, q *quay, pool *Pool) {
		q.filters = true // Each range reads by itself.
		var there []*unstructured.Unstructured
		for i, within := range sixteenths {
			for n := 0; len(there) == i; n++ {
				if name := fmt.Sprintf("%d-namespace", n); within.ContainsNamespace(name) {
					there = append(there, newBerth(name, "one"))
				}
			}
			q.Add(there[i])
		}
		var all []*Factory
		var stores []cache.SharedIndexInformer
		for _, within := range sixteenths {
			f := pool.NewFactory(within, namespacedBerths)
			t.Cleanup(f.Shutdown)
			all, stores = append(all, f), append(stores, form.ask(t, f, q))
			f.StartWithContext(t.Context())
			if err := f.WaitForCacheSyncWithContext(t.Context()).Err; err != nil {
				t.Fatal(err)
			}
		}

		q.absent.Store(true)
		for _, berth := range there {
			q.Delete(berth)
		}
		q.end()
		time.Sleep(10 * time.Minute) // virtual
		if got := q.refused.Load(); got < 10 || got > 60 {
			t.Errorf("asked %d times for what is not there in 10 minutes; want 10 to 60", got)
		}

		q.absent.Store(false)
		for _, berth := range there {
			q.Add(berth)
		}
		time.Sleep(2 * time.Minute) // virtual
		for i, berth := range there {
			if diff := cmp.Diff([]string{berth.GetNamespace() + "/one"}, keysOf(stores[i])); diff != "" {
				t.Errorf("range %d after the resource has come back (-want +got):\n%s", i, diff)
			}
			if err := all[i].Refresh(t.Context()); err != nil {
				t.Errorf("range %d: %v", i, err)
			}
		}
	})
}

// TestAbsenceIsNotTakenForGranted checks what makes the next request go to the API server.
func TestAbsenceIsNotTakenForGranted(t *testing.T) {
	gone, broken := apierrors.NewNotFound(berths.GroupResource(), ""), apierrors.NewServiceUnavailable("")
	for name, tc := range map[string]struct {
		then  func(*absence, time.Time)
		after time.Duration
		asks  bool
	}{
		"nothing":              {func(*absence, time.Time) {}, 29 * time.Second, false},
		"time":                 {func(*absence, time.Time) {}, 30 * time.Second, true},
		"another absence":      {func(a *absence, at time.Time) { a.note(gone, at) }, 0, false},
		"an answer":            {func(a *absence, at time.Time) { a.note(nil, at) }, 0, true},
		"the lack of one":      {func(a *absence, at time.Time) { a.note(broken, at) }, 0, true},
		"a list as a watch":    {func(a *absence, _ time.Time) { a.begun() }, 0, true},
		"somebody asks for it": {func(a *absence, _ time.Time) { a.expect() }, 0, true},
		"a reader that gives up": {func(a *absence, _ time.Time) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			observedResource{absence: a}.note(ctx, context.Canceled)
		}, 0, true},
	} {
		a, at := &absence{noted: make(chan struct{})}, time.Unix(0, 0)
		a.note(gone, at)
		at = at.Add(time.Hour)
		if err := a.ask(at); err != nil {
			t.Fatalf("%s: not asked for an hour: %v", name, err)
		}
		a.note(gone, at)
		tc.then(a, at)
		if err := a.ask(at.Add(tc.after)); (err == nil) != tc.asks || err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("%s: ask returned %v; want a request: %t", name, err, tc.asks)
		}
	}

	a, at := &absence{noted: make(chan struct{})}, time.Unix(0, 0)
	a.note(gone, at)
	var asked []time.Duration
	for now := time.Duration(0); now < 2*time.Minute; now += time.Second {
		if a.ask(at.Add(now)) == nil {
			asked = append(asked, now/time.Second)
			a.note(gone, at.Add(now))
		}
	}
	if diff := cmp.Diff([]time.Duration{0, 1, 2, 4, 8, 16, 32, 62, 92}, asked); diff != "" {
		t.Errorf("seconds at which many readers ask for what is absent (-want +got):\n%s", diff)
	}
}

// TestKindThatCannotBeListed checks that nobody waits long for a cache of ObjectOrMetadata whose
// resource the API server fails to list, and that everybody waits for it once it can be listed, or
// if somebody has asked for it by Metadata.
func TestKindThatCannotBeListed(t *testing.T) {
	for _, within := range []shard.Range{listwatch.KeyspaceHalves[0], shard.Everything()} {
		for _, picking := range []bool{false, true} {
			if picking && !within.IsEverything() {
				continue
			}
			t.Run(fmt.Sprintf("%s, picking %t", within, picking), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q, pool := newQuay(t)
					q.broken.Store(true)
					q.Add(newBerth(inHalf(t, 0), "one"))
					f := pool.NewFactory(within, namespacedBerths)
					defer f.Shutdown()
					some := f.ObjectOrMetadata()
					if picking {
						some = some.Picking(func(metav1.Object) bool { return true })
					}
					i, err := some.ForResource(berths)
					if err != nil {
						t.Fatal(err)
					}
					keys := i.Informer().GetStore().ListKeys
					mark := map[schema.GroupResource]Mark{berths.GroupResource(): {Version: "1"}}
					within := func(limit time.Duration, what string, call func(context.Context) error) {
						t.Helper()
						ctx, cancel := context.WithTimeout(t.Context(), limit)
						defer cancel()
						if err := call(ctx); err != nil {
							t.Errorf("%s: %v", what, err)
						}
					}
					catchUp := func(ctx context.Context) error { return f.CatchUp(ctx, mark) }
					within(optionalPatience+time.Second, "Warm", f.Warm)
					f.StartWithContext(t.Context())
					within(optionalPatience+time.Second, "AwaitFilled", f.AwaitFilled)
					within(time.Second, "Refresh", f.Refresh)
					within(time.Second, "CatchUp", catchUp)
					if len(keys()) > 0 || f.HasSynced() {
						t.Errorf("the cache of what cannot be listed has %v", keys())
					}
					if failing := pool.Failing(); !slices.Equal(failing, []schema.GroupResource{berths.GroupResource()}) {
						t.Errorf("failing resources are %v", failing)
					}

					q.broken.Store(false)
					if err := f.WaitForCacheSyncWithContext(t.Context()).Err; err != nil || len(keys()) != 1 {
						t.Errorf("the cache has %v once it can be listed (%v)", keys(), err)
					}
					if failing := pool.Failing(); len(failing) > 0 {
						t.Errorf("resources %v still fail", failing)
					}
					within(time.Second, "Refresh of a full cache", f.Refresh)
					mark[berths.GroupResource()] = Mark{Version: "99"}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					if err := catchUp(ctx); err == nil {
						t.Error("a full cache has caught up with a write that it has not seen")
					}

					q.broken.Store(true)
					other := pool.NewFactory(shard.Everything(), namespacedBerths)
					defer other.Shutdown()
					if _, err := other.ObjectOrMetadata().ForResource(berths); err != nil {
						t.Fatal(err)
					}
					if _, err := other.Metadata(berths); err != nil {
						t.Fatal(err)
					}
					ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					if err := other.Warm(ctx); err == nil && !other.HasSynced() {
						t.Error("Warm has not waited for a cache that somebody wants for itself")
					}
				})
			})
		}
	}
}

// TestCatchUpOfAnyType checks that CatchUp returns once the cache has seen a write, and not before.
func TestCatchUpOfAnyType(t *testing.T) {
	eachForm(t, func(t *testing.T, form form, q *quay, pool *Pool) {
		low, _ := halvesOf(t, pool, namespacedBerths)
		i := form.ask(t, low, q)
		if err := low.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		caught := make(chan error, 2)
		go func() {
			caught <- low.CatchUp(t.Context(), map[schema.GroupResource]Mark{berths.GroupResource(): {Version: "2"}})
		}()
		go func() { caught <- low.See(t.Context(), berths.GroupResource(), "2") }()
		q.Add(newBerth(inHalf(t, 0), "one"))
		synctest.Wait()
		if n := len(caught); n != 0 {
			t.Errorf("%d of 2 that wait for a write were told that it had been seen before it was made", n)
		}
		q.Add(newBerth(inHalf(t, 0), "two"))
		for range 2 {
			if err := <-caught; err != nil {
				t.Error(err)
			}
		}
		if got := len(keysOf(i)); got != 2 {
			t.Errorf("caught up with %d objects in the cache, want 2", got)
		}
	})
}

// wideBerth is another type for the same resource.
type wideBerth struct{ berth }

// DeepCopyObject implements runtime.Object.
func (b *wideBerth) DeepCopyObject() runtime.Object {
	return &wideBerth{*b.berth.DeepCopyObject().(*berth)}
}

// TestFormsAreApart checks that asking for one form or type of a resource never returns another.
func TestFormsAreApart(t *testing.T) {
	q, pool := newQuay(t)
	low, _ := halvesOf(t, pool, namespacedBerths)
	custom := func(gvr schema.GroupVersionResource, object runtime.Object) cache.SharedIndexInformer {
		r := q.resource(meta.RESTScopeNameNamespace)
		r.GVR, r.Object = gvr, object
		i, err := low.Custom(r)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	generic := func(i informers.GenericInformer, err error) cache.SharedIndexInformer {
		if err != nil {
			t.Fatal(err)
		}
		return i.Informer()
	}
	apart := map[cache.SharedIndexInformer]string{}
	for name, i := range map[string]cache.SharedIndexInformer{
		"dynamic": forms[0].ask(t, low, q), "metadata": forms[1].ask(t, low, q), "custom": forms[2].ask(t, low, q),
		"another type": custom(berths, &wideBerth{}), "metadata by a reader of one's own": custom(berths, &metav1.PartialObjectMetadata{}),
		"built in": low.InformerFor(&v1.ConfigMap{}, nil), "built in, of another type": custom(configMaps, &berth{}),
		"built in, dynamic": generic(low.Dynamic(configMaps)), "built in, metadata": generic(low.Metadata(configMaps)),
		"built in, metadata or whole": low.metadata(configMaps).Informer(),
	} {
		if other, there := apart[i]; there {
			t.Errorf("%s and %s are one informer", name, other)
		}
		apart[i] = name
	}
	if custom(berths, &unstructured.Unstructured{}) != forms[0].ask(t, low, q) {
		t.Error("unstructured objects by a reader of one's own are not what Dynamic has")
	}
}

// TestFormsCountOnce checks that an object cached in several forms counts once, even if one form is
// not filled, and that its memory is that of all forms.
func TestFormsCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, pool := newQuay(t)
		inBoth(t, q, "one", "two", "three")
		low, _ := halvesOf(t, pool, namespacedBerths)
		var took int64
		for n, form := range forms {
			form.ask(t, low, q)
			if n == len(forms)-1 {
				break // not started
			}
			low.StartWithContext(t.Context())
			if err := low.WaitForCacheSyncWithContext(t.Context()).Err; err != nil {
				t.Fatal(err)
			}
			load, ok := low.Load()
			if !ok || load.Objects != 3 || load.Namespaces[inHalf(t, 0)] <= took {
				t.Errorf("load is %v with %d forms, of which one less took %d; want 3 objects", load, n+1, took)
			}
			took = load.Namespaces[inHalf(t, 0)]
		}
		if diff := cmp.Diff(map[string]int64{inHalf(t, 0): 3}, low.Weights()); diff != "" {
			t.Errorf("weights (-want +got):\n%s", diff)
		}
	})
}

// TestPartsCountWithTheWhole checks that among forms with different parts of a resource the largest
// counts, in any order.
func TestPartsCountWithTheWhole(t *testing.T) {
	holding := func(names ...string) cache.Indexer {
		i := store.New(store.Config{Example: &v1.ConfigMap{}})
		for _, name := range names {
			if err := i.GetIndexer().Add(informertest.ConfigMap("a", name)); err != nil {
				t.Fatal(err)
			}
		}
		return i.GetIndexer()
	}
	part, whole := holding("one"), holding("one", "two", "three")
	for _, forms := range [][]cache.Indexer{{part, whole}, {whole, part}} {
		if diff := cmp.Diff(map[string]int64{"a": 3}, countOnce(forms)); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
	}
}

// TestRunsByItself has a controller that asks for informers while it runs and starts them by
// themselves, as it would those of client-go.
func TestRunsByItself(t *testing.T) {
	eachForm(t, func(t *testing.T, form form, q *quay, pool *Pool) {
		inBoth(t, q, "one")
		low, _ := halvesOf(t, pool, namespacedBerths)
		group := pool.NewFactory(shard.Everything(), namespacedBerths)
		defer group.Shutdown()
		for _, f := range []*Factory{low, group} {
			f.StartWithContext(t.Context())
			i := form.ask(t, f, q)
			var told informertest.Recorder
			informertest.MustAdd(t, i, &told)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { i.RunWithContext(ctx); close(ended) }()
			time.Sleep(time.Second) // virtual
			if objects, calls := len(keysOf(i)), told.Take(); !i.HasSynced() || objects == 0 || len(calls) != objects {
				t.Errorf("synced: %t, %d objects, handlers received %v", i.HasSynced(), objects, calls)
			}
			i.Run(nil) // returns at once
			cancel()
			<-ended
		}
	})
}

// TestForgetsAnyType checks that a lister keeps no objects alive after Forget.
func TestForgetsAnyType(t *testing.T) {
	eachForm(t, func(t *testing.T, form form, q *quay, pool *Pool) {
		inBoth(t, q, "one")
		low, _ := halvesOf(t, pool, namespacedBerths)
		i := form.ask(t, low, q)
		low.StartWithContext(t.Context())
		time.Sleep(time.Second) // virtual
		if got := len(keysOf(i)); got != 1 {
			t.Errorf("the cache has %d objects, want 1", got)
		}
		low.Shutdown()
		low.Forget()
		if got := keysOf(i); len(got) != 0 {
			t.Errorf("the cache still has %v", got)
		}
		if late := form.ask(t, low, q); late.HasSynced() {
			if got := keysOf(late); len(got) != 0 {
				t.Errorf("an informer of a factory that has ended has %v", got)
			}
		}
	})
}

// TestClientsWithoutStreamingLists checks that a ListerWatcher without lists in the form of
// watches, such as a fake client's, is asked for a list at once.
func TestClientsWithoutStreamingLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, pool := newQuay(t)
		low, _ := halvesOf(t, pool, namespacedBerths)
		r := q.resource("")
		streamed := 0
		from := r.ListerWatcher.(*cache.ListWatch)
		watches := from.WatchFuncWithContext
		from.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if listwatch.Streams(o) {
				streamed++
				return nil, errors.New("a fake that would send no bookmark")
			}
			return watches(ctx, o)
		}
		r.ListerWatcher = informertest.WithoutStreaming{ListWatch: from}
		i, err := low.Custom(r)
		if err != nil {
			t.Fatal(err)
		}
		low.StartWithContext(t.Context())
		time.Sleep(time.Second) // virtual
		if !i.HasSynced() || streamed != 0 {
			t.Errorf("synced %t, asked for %d lists in the form of watches; want true, 0", i.HasSynced(), streamed)
		}
	})
}

// TestNoTransform checks that setting a nil transform, as controller-runtime does, keeps the
// pool's.
func TestNoTransform(t *testing.T) {
	q, pool := newQuay(t)
	pool.config.Transform = func(obj any) (any, error) { return obj, nil }
	low, _ := halvesOf(t, pool, namespacedBerths)
	whole := pool.NewFactory(shard.Everything(), namespacedBerths)
	defer whole.Shutdown()
	own, shared := forms[0].ask(t, low, q), forms[0].ask(t, whole, q)
	if err := errors.Join(own.SetTransform(nil), shared.SetTransform(nil)); err != nil {
		t.Error(err)
	}
	if (&store.Sink{Informer: inner(own).(*store.Informer)}).Transformer() == nil {
		t.Error("the pool's transform is gone")
	}
	for name, i := range map[string]cache.SharedIndexInformer{"shared": shared, "range's": own} {
		if err := i.SetTransform(pool.config.Transform); err == nil {
			t.Errorf("the %s informer has taken a transform, for objects that others may have too", name)
		}
	}
}

// TestStrictMetadataFollowsMetadata checks that there is no second watch if the process already has
// the metadata of everything in the form that may be whole objects.
func TestStrictMetadataFollowsMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, pool := newQuay(t)
		all, _ := inBoth(t, q, "one")
		group, f := pool.NewFactory(shard.Everything(), nil), pool.NewFactory(shard.Everything(), nil)
		defer group.Shutdown()
		defer f.Shutdown()
		group.metadata(configMaps)
		strict, err := f.Metadata(configMaps)
		if err != nil {
			t.Fatal(err)
		}
		group.StartWithContext(t.Context())
		synctest.Wait()
		f.StartWithContext(t.Context())
		checkFollowed(t, pool, configMaps, 1)
		if got := q.watchers(); got != 1 {
			t.Errorf("%d watches of one resource, want 1", got)
		}
		if diff := cmp.Diff(all, keysOf(strict.Informer())); diff != "" {
			t.Errorf("what follows holds (-want +got):\n%s", diff)
		}
	})
}

package informer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

func TestMain(m *testing.M) {
	// Reflectors log errors about connections that tests cut. The default handlers also rate-limit
	// errors by a clock that all bubbles of virtual time would share.
	klog.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

// recorder records a handler's notifications.
type recorder struct {
	repetitions bool
	mu          sync.Mutex
	calls       []string
}

func (r *recorder) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

func (r *recorder) OnAdd(obj any, initial bool) { r.note("add %s initial=%v", name(obj), initial) }

// OnUpdate leaves out repetitions. client-go passes those of a list on to handlers that want
// resyncs, and at first takes every handler for one of them.
func (r *recorder) OnUpdate(old, obj any) {
	if name(old) != name(obj) || r.repetitions {
		r.note("update %s -> %s", name(old), name(obj))
	}
}

func (r *recorder) OnDelete(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		r.note("missed %s %s", name(gone.Obj), gone.Key)
		return
	}
	r.note("delete %s", name(obj))
}

func name(obj any) string {
	m, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Sprintf("%T", obj)
	}
	return fmt.Sprintf("%s/%s@%s", m.GetNamespace(), m.GetName(), m.GetResourceVersion())
}

func configMap(namespace, name string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name),
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "test"}},
	}}
}

func inRange(r shard.Range) func(any) bool {
	return func(obj any) bool {
		m, err := meta.Accessor(obj)
		return err == nil && r.ContainsNamespace(m.GetNamespace())
	}
}

// running runs an informer until the test ends, and waits for it.
func running(t *testing.T, i cache.SharedInformer) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); i.RunWithContext(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
}

// TestLikeClientGo compares notifications and store with those of client-go's informer, whose input
// is filtered by other means: for an informer that reads by itself, and for one that follows
// another.
func TestLikeClientGo(t *testing.T) {
	for range 50 {
		seed := rand.Uint64()
		for _, follows := range []bool{false, true} {
			t.Run(fmt.Sprintf("seed=%#x/follows=%t", seed, follows), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { likeClientGo(t, rand.New(rand.NewPCG(seed, 0)), follows) })
			})
		}
	}
}

func likeClientGo(t *testing.T, random *rand.Rand, follows bool) {
	within, err := shard.NewRange(1<<62, 3<<62)
	if err != nil {
		t.Fatal(err)
	}
	keep := inRange(within)
	all, filtered := newFakeResource(t), newServer()
	defer filtered.close()
	change := func(f func(*fcache.FakeControllerSource, *v1.ConfigMap), obj *v1.ConfigMap) {
		f(all.FakeControllerSource, obj.DeepCopy())
		if keep(obj) {
			f(filtered.FakeControllerSource, obj.DeepCopy())
			return
		}
		// Keep the resource versions of both in step.
		f(filtered.FakeControllerSource, configMap("passed-over", obj.Name))
	}
	from := reflected(all.listWatch(), &v1.ConfigMap{}, "configmaps")
	if follows {
		pool := newTestPool(t, &apiServer{}, clock.RealClock{}, 0)
		whole(t, pool, configMaps, all)
		from = following{pool: pool, keys: []sharedKey{{resource: configMaps}}, read: func(context.Context, *sink) {
			t.Error("it reads by itself")
		}}.source()
	}
	ours := newInformer(config{example: &v1.ConfigMap{}, source: from, keep: keep})
	theirs := cache.NewSharedIndexInformer(filtered.listWatch(), &v1.ConfigMap{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	var got, want recorder
	mustAdd(t, ours, &got)
	mustAdd(t, theirs, cache.FilteringResourceEventHandler{Handler: &want, FilterFunc: func(obj any) bool {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		return keep(obj)
	}})

	live := map[string]*v1.ConfigMap{}
	for round := range 12 {
		// In every other round the server cannot be reached while objects change, so that both
		// learn of the changes from a list.
		down := round%2 == 1
		all.cut(down)
		filtered.cut(down)
		for range random.IntN(20) {
			obj := configMap(fmt.Sprintf("ns-%c", 'a'+random.IntN(12)), fmt.Sprint(random.IntN(4)))
			key := string(obj.UID)
			switch {
			case live[key] == nil:
				change(add, obj)
				live[key] = obj
			case random.IntN(3) == 0:
				change(remove, obj)
				delete(live, key)
			default:
				change(modify, obj)
			}
			synctest.Wait() // otherwise client-go's queue would merge notifications that ours delivers one by one
		}
		if round == 2 {
			running(t, ours)
			running(t, theirs)
		}
		all.cut(false)
		filtered.cut(false)
		time.Sleep(time.Minute) // virtual: past the reflectors' back-off
		synctest.Wait()
		compare(t, round, ours, theirs, keep, &got, &want)
	}
}

func compare(t *testing.T, round int, ours, theirs cache.SharedIndexInformer, keep func(any) bool, got, want *recorder) {
	t.Helper()
	if diff := cmp.Diff(sortedBy(want.take()), sortedBy(got.take())); diff != "" {
		t.Fatalf("round %d: notifications (-client-go +ours):\n%s", round, diff)
	}
	if diff := cmp.Diff(contents(theirs, keep), contents(ours, func(any) bool { return true })); diff != "" {
		t.Fatalf("round %d: stores (-client-go +ours):\n%s", round, diff)
	}
}

// sortedBy sorts notifications by object and keeps the order within each object: a list has no
// order.
func sortedBy(calls []string) []string {
	key := func(call string) string {
		var verb, object string
		fmt.Sscan(call, &verb, &object)
		if i := slices.Index([]byte(object), '@'); i >= 0 {
			object = object[:i]
		}
		return object
	}
	slices.SortStableFunc(calls, func(a, b string) int { return cmpStrings(key(a), key(b)) })
	return calls
}

func cmpStrings(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func contents(i cache.SharedIndexInformer, keep func(any) bool) []string {
	var names []string
	for _, obj := range i.GetStore().List() {
		if keep(obj) {
			names = append(names, name(obj))
		}
	}
	slices.Sort(names)
	return names
}

// server is a source that can be made unreachable.
type server struct {
	*fcache.FakeControllerSource
	down atomic.Bool
}

func newServer() *server { return &server{FakeControllerSource: fcache.NewFakeControllerSource()} }

// cut ends all watches and refuses requests until it is called with false.
func (s *server) cut(down bool) {
	if down {
		synctest.Wait() // both informers must have seen the same before the cut
		s.down.Store(true)
		s.ResetWatch()
		return
	}
	s.down.Store(false)
}

func (s *server) close() { s.Broadcaster.Shutdown() }

func (s *server) listWatch() cache.ListerWatcher {
	return withoutStreaming{&cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if s.down.Load() {
				return nil, errors.New("cut off")
			}
			return s.List(o)
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if s.down.Load() {
				return nil, errors.New("cut off")
			}
			return s.Watch(o)
		},
	}}
}

// withoutStreaming tells reflectors that the source has no streaming lists.
type withoutStreaming struct{ *cache.ListWatch }

func (withoutStreaming) IsWatchListSemanticsUnSupported() bool { return true }

func add(s *fcache.FakeControllerSource, obj *v1.ConfigMap)    { s.Add(obj) }
func modify(s *fcache.FakeControllerSource, obj *v1.ConfigMap) { s.Modify(obj) }
func remove(s *fcache.FakeControllerSource, obj *v1.ConfigMap) { s.Delete(obj) }

func mustAdd(t *testing.T, i cache.SharedInformer, h cache.ResourceEventHandler) cache.ResourceEventHandlerRegistration {
	t.Helper()
	handle, err := i.AddEventHandler(h)
	if err != nil {
		t.Fatal(err)
	}
	return handle
}

func TestLateHandlerGetsTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newServer()
		defer source.close()
		source.Add(configMap("a", "1"))
		i := newInformer(config{example: &v1.ConfigMap{}, source: reflected(source.listWatch(), &v1.ConfigMap{}, "configmaps")})
		running(t, i)
		synctest.Wait()
		if !i.HasSynced() {
			t.Fatal("informer has not synced")
		}
		var late recorder
		handle := mustAdd(t, i, &late)
		synctest.Wait()
		if !handle.HasSynced() {
			t.Error("handler has not synced")
		}
		if diff := cmp.Diff([]string{"add a/1@1 initial=true"}, late.take()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestHandlerSyncsOnlyWhenAllInitialAddsAreDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newServer()
		defer source.close()
		source.Add(configMap("a", "1"))
		i := newInformer(config{example: &v1.ConfigMap{}, source: reflected(source.listWatch(), &v1.ConfigMap{}, "configmaps")})
		block := make(chan struct{})
		handle := mustAdd(t, i, cache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-block }})
		running(t, i)
		synctest.Wait()
		if !i.HasSynced() || handle.HasSynced() {
			t.Errorf("informer synced %v, handler synced %v; want true, false", i.HasSynced(), handle.HasSynced())
		}
		close(block)
		synctest.Wait()
		if !handle.HasSynced() {
			t.Error("handler has not synced though all was delivered")
		}
	})
}

func TestBlockedHandlerHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newServer()
		defer source.close()
		i := newInformer(config{example: &v1.ConfigMap{}, source: reflected(source.listWatch(), &v1.ConfigMap{}, "configmaps")})
		block := make(chan struct{})
		mustAdd(t, i, cache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-block }})
		var free recorder
		mustAdd(t, i, &free)
		running(t, i)
		synctest.Wait()
		source.Add(configMap("a", "1"))
		source.Add(configMap("a", "2"))
		synctest.Wait()
		if got := len(free.take()); got != 2 {
			t.Errorf("the other handler was told of %d objects, want 2", got)
		}
		close(block)
	})
}

func TestResyncIsEachHandlersOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newServer()
		defer source.close()
		source.Add(configMap("a", "1"))
		i := newInformer(config{example: &v1.ConfigMap{}, source: reflected(source.listWatch(), &v1.ConfigMap{}, "configmaps"), resync: 12 * time.Hour})
		often, seldom := recorder{repetitions: true}, recorder{repetitions: true}
		if _, err := i.AddEventHandlerWithOptions(&often, cache.HandlerOptions{ResyncPeriod: ptr.To(15 * time.Second)}); err != nil {
			t.Fatal(err)
		}
		mustAdd(t, i, &seldom)
		running(t, i)
		synctest.Wait()
		often.take()
		seldom.take()
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if got := len(often.take()); got != 4 {
			t.Errorf("handler with a resync period of 15 s was called %d times in 61 s, want 4", got)
		}
		if got := seldom.take(); len(got) != 0 {
			t.Errorf("handler with a resync period of 12 h was called in a minute: %v", got)
		}
	})
}

func TestRunWaitsForHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newServer()
		defer source.close()
		source.Add(configMap("a", "1"))
		i := newInformer(config{example: &v1.ConfigMap{}, source: reflected(source.listWatch(), &v1.ConfigMap{}, "configmaps")})
		block := make(chan struct{})
		mustAdd(t, i, cache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-block }})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); i.RunWithContext(ctx) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("Run returned while a handler was at work")
		default:
		}
		close(block)
		<-ended
		if _, err := i.AddEventHandler(&recorder{}); err == nil {
			t.Error("a stopped informer took a handler")
		}
	})
}

func TestRemovedHandlerIsNotCalledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newServer()
		defer source.close()
		i := newInformer(config{example: &v1.ConfigMap{}, source: reflected(source.listWatch(), &v1.ConfigMap{}, "configmaps")})
		var r recorder
		handle := mustAdd(t, i, &r)
		running(t, i)
		synctest.Wait()
		if err := cache.ShutDownEventHandler(i, handle); err != nil {
			t.Fatal(err)
		}
		source.Add(configMap("a", "1"))
		synctest.Wait()
		if got := r.take(); len(got) != 0 {
			t.Errorf("removed handler was told %v", got)
		}
	})
}

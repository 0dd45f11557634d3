package informer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/listwatch"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/store"
	"github.com/flotilla-kube/flotilla/pkg/informer/present"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// quarters are the factories of a process with four shards.
func quarters(t *testing.T, p *Pool) []*Factory {
	t.Helper()
	ranges, err := shard.EqualRanges(4)
	if err != nil {
		t.Fatal(err)
	}
	factories := make([]*Factory, 0, len(ranges))
	for _, r := range ranges {
		f := p.NewFactory(r, nil)
		t.Cleanup(f.Shutdown)
		factories = append(factories, f)
	}
	return factories
}

// inQuarters returns a namespace for each of four equal ranges.
func inQuarters(t *testing.T) []string {
	t.Helper()
	names := make([]string, 4)
	for i := range 100 {
		name := fmt.Sprintf("%d-orders", i)
		names[shard.Hash(name)>>62] = name
	}
	return names
}

// sharing returns how many ranges each reading of the process has.
func (p *Pool) sharing() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ranges []int
	for _, f := range p.feeds {
		f.mu.Lock()
		for _, r := range f.readings {
			ranges = append(ranges, len(r.portions))
		}
		f.mu.Unlock()
	}
	return ranges
}

// ledger summarises the requests for a fake resource since the last call.
func (r *fakeResource) ledger() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var asked []string
	for _, o := range r.options {
		if o.Watch || o.AllowWatchBookmarks {
			asked = append(asked, "watch")
		} else {
			asked = append(asked, "list")
		}
	}
	r.options = nil
	return strings.Join(asked, " ")
}

func checkAsked(t *testing.T, what string, r *fakeResource, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := r.ledger(); !slices.Contains(want, got) {
		t.Errorf("%s asked for %q, want one of %q", what, got, want)
	}
}

// TestRangesReadTogether has four ranges read a resource that the API server does not filter.
// Ranges that begin together share a list, a later one lists by itself, and in the end all share
// one watch.
func TestRangesReadTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := newFakeResource(t)
		names := inQuarters(t)
		for _, name := range names {
			resource.Add(newConfigMap(name, "one")) // 1 to 4
		}
		pool := newTestPool(t, &apiServer{}, clock.RealClock{}, 0)
		ranges := quarters(t, pool)
		told := make([]informertest.Recorder, len(ranges))
		for i, f := range ranges {
			informertest.MustAdd(t, f.reading(configMaps, resource, &v1.ConfigMap{}), &told[i])
		}
		for _, f := range ranges[:3] {
			f.StartWithContext(t.Context())
			time.Sleep(gatherPatience / 3)
		}
		time.Sleep(gatherPatience)
		checkAsked(t, "three ranges", resource, "list watch")
		for i := range 3 {
			informertest.CheckCalls(t, "a range", &told[i], fmt.Sprintf("add %s/one@%d initial=true", names[i], i+1))
		}
		if n := pool.Discarded(); n != 1 {
			t.Errorf("discarded %d objects, want that of the fourth range", n)
		}

		ranges[3].StartWithContext(t.Context())
		time.Sleep(gatherPatience)
		checkAsked(t, "a range that came later", resource, "list watch")
		if n := resource.watchers(); n != 2 {
			t.Errorf("%d watches, want two before anything has shown that the first one goes on", n)
		}
		for _, name := range names {
			resource.Modify(newConfigMap(name, "one")) // 5 to 8
		}
		synctest.Wait()
		if n := resource.watchers(); n != 1 {
			t.Errorf("%d watches of four ranges, want one", n)
		}
		resource.Delete(newConfigMap(names[3], "one")) // 9
		informertest.CheckCalls(t, "the range that came later", &told[3], "add "+names[3]+"/one@4 initial=true",
			"update "+names[3]+"/one@4 -> "+names[3]+"/one@8", "delete "+names[3]+"/one@9")
		for _, f := range ranges {
			i := f.reading(configMaps, resource, &v1.ConfigMap{})
			if v := i.LastSyncResourceVersion(); v != "9" {
				t.Errorf("a range is at version %s, want 9: what is not for it passes, too", v)
			}
		}

		ranges[0].Shutdown() // one of those that began the reading
		resource.Add(newConfigMap(names[0], "two"))
		resource.Add(newConfigMap(names[3], "two")) // 11
		informertest.CheckCalls(t, "the range that came later", &told[3], "add "+names[3]+"/two@11 initial=false")
		informertest.CheckCalls(t, "a range that has ended", &told[0], "update "+names[0]+"/one@1 -> "+names[0]+"/one@5")
		checkAsked(t, "ranges that stay", resource, "")
		for _, f := range ranges {
			f.Shutdown()
		}
		synctest.Wait()
		if n, readings := resource.watchers(), pool.sharing(); n != 0 || len(readings) != 0 {
			t.Errorf("%d watches and %d readings left", n, len(readings))
		}
	})
}

// TestServerComesToFilter checks that ranges which read together part at the next request once the
// server filters, and read together again at the next request once it does not. Nothing is listed
// for that.
func TestServerComesToFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := newFakeResource(t)
		names := inQuarters(t)
		for _, name := range names {
			resource.Add(newConfigMap(name, "one"))
		}
		server := &apiServer{}
		pool := newTestPool(t, server, clock.RealClock{}, 0)
		ranges := quarters(t, pool)
		told := make([]informertest.Recorder, len(ranges))
		for i, f := range ranges {
			informertest.MustAdd(t, f.reading(configMaps, resource, &v1.ConfigMap{}), &told[i])
			f.StartWithContext(t.Context())
		}
		time.Sleep(listwatch.ProbeFor) // virtual
		checkAsked(t, "ranges", resource, "list watch")
		server.set(func(s *apiServer) { s.shards = true })
		time.Sleep(listwatch.ProbeFor) // virtual
		resource.expire()
		time.Sleep(time.Minute)
		synctest.Wait()
		asked := strings.Join(slices.Sorted(slices.Values(strings.Fields(resource.ledger()))), " ")
		if want := "watch watch watch watch"; asked != want || resource.watchers() != 4 || len(pool.sharing()) != 0 {
			t.Errorf("of a server that filters, %d watches and %d readings after asking for %s", resource.watchers(), len(pool.sharing()), asked)
		}

		server.set(func(s *apiServer) { s.shards = false })
		time.Sleep(time.Minute)
		checkAsked(t, "ranges that need nothing new", resource, "")
		resource.Modify(newConfigMap(names[0], "one")) // 5: the watches have brought something
		synctest.Wait()
		resource.expire()
		time.Sleep(time.Minute) // virtual: they watch again after pauses of random length
		resource.Modify(newConfigMap(names[0], "one"))
		synctest.Wait()
		if asked := resource.ledger(); strings.Contains(asked, "list") {
			t.Errorf("ranges that come together again asked for %s", asked)
		}
		if n := resource.watchers(); n != 1 || len(pool.sharing()) != 1 {
			t.Errorf("of a server that does not filter any more, %d watches and readings of %v ranges", n, pool.sharing())
		}
		for i := range told {
			want := []string{fmt.Sprintf("add %s/one@%d initial=true", names[i], i+1)}
			if i == 0 {
				want = append(want, "update "+names[0]+"/one@1 -> "+names[0]+"/one@5", "update "+names[0]+"/one@5 -> "+names[0]+"/one@6")
			}
			informertest.CheckCalls(t, "a range", &told[i], want...)
		}
	})
}

// TestServerFiltersThoughTheFirstProbeFailed checks that ranges which began to read together after
// a failed probe part as soon as a probe succeeds, not when the watch ends.
func TestServerFiltersThoughTheFirstProbeFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := newFakeResource(t)
		server := &apiServer{shards: true, fails: http.StatusServiceUnavailable}
		pool := newTestPool(t, server, clock.RealClock{}, 0)
		for _, f := range quarters(t, pool) {
			f.reading(configMaps, resource, &v1.ConfigMap{})
			f.StartWithContext(t.Context())
		}
		time.Sleep(10 * listwatch.ProbeAgain) // virtual
		synctest.Wait()
		if got := pool.sharing(); len(got) != 1 || got[0] != 4 {
			t.Fatalf("readings of %v ranges while nobody can tell, want one of 4", got)
		}
		server.set(func(s *apiServer) { s.fails = 0 })
		time.Sleep(2 * listwatch.ProbeAgain) // virtual
		synctest.Wait()
		if got := pool.sharing(); len(got) != 0 || resource.watchers() != 4 {
			t.Errorf("%d watches and readings of %v ranges once the server has said that it filters, want 4 and none", resource.watchers(), got)
		}
	})
}

// TestRangeIsNotTakenBack checks that a range never goes back in time, although the reading that it
// joins may be behind it, and may list an older state.
func TestRangeIsNotTakenBack(t *testing.T) {
	f := &feed{pool: newTestPool(t, &apiServer{}, clock.RealClock{}, 0), key: sharedKey{resource: configMaps}}
	begin := func() *reading {
		ctx, cancel := context.WithCancel(t.Context())
		r := &reading{feed: f, ctx: ctx, stop: cancel, portions: map[*portion]struct{}{}, synced: make(chan struct{})}
		f.readings = append(f.readings, r)
		return r
	}
	first, second := begin(), begin()
	informers := make([]*store.Informer, 0, 2)
	for _, r := range f.readings {
		i := store.New(store.Config{Example: &v1.ConfigMap{}})
		r.portions[&portion{into: &store.Sink{Informer: i, Stored: true}, reading: r}] = struct{}{}
		informers = append(informers, i)
	}
	at := func(version string) *v1.ConfigMap {
		c := informertest.ConfigMap("ns", "1")
		c.ResourceVersion = version
		return c
	}
	bookmark := func(r *reading, version string) {
		t.Helper()
		if err := r.Bookmark(version); err != nil {
			t.Fatal(err)
		}
	}
	late := informers[1]
	check := func(after string, joined bool, version string) {
		t.Helper()
		held, _, _ := late.GetStore().GetByKey("ns/1")
		if held == nil || present.VersionOf(held) != version || (len(second.portions) == 0) != joined {
			t.Errorf("after %s the range holds %v, has gone over: %t; want %t, version %s", after, held, len(second.portions) == 0, joined, version)
		}
	}
	replace := func(r *reading, version string, objects ...any) {
		t.Helper()
		if err := r.Replace(objects, version); err != nil {
			t.Fatal(err)
		}
	}
	replace(first, "5", at("3"))
	bookmark(first, "6")
	replace(second, "20", at("18"))
	bookmark(second, "21")
	check("nothing of the other reading", false, "18")
	bookmark(first, "30")
	bookmark(second, "22")
	check("being behind", false, "18")
	take, _, err := first.begin(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := take(at("30")); !ok {
		t.Fatal("a list of all does not keep all")
	}
	bookmark(second, "31")
	check("a list that has nothing for it", false, "18")
	replace(first, "35", at("33"))
	bookmark(second, "40")
	check("being ahead of a reading that goes on", true, "18")
	for _, step := range []func(any) error{first.Update, first.Delete, first.Add} {
		if err := step(at("35")); err != nil {
			t.Fatal(err)
		}
	}
	check("events that it has seen", true, "18")
	replace(first, "39", at("35"))
	check("a list that is older", true, "18")
	if v := late.LastSyncResourceVersion(); v != "40" {
		t.Errorf("the range has gone to version %s, want 40", v)
	}
	if err := first.Update(at("41")); err != nil {
		t.Fatal(err)
	}
	check("news", true, "41")
	replace(first, "50")
	if left := append(late.GetStore().ListKeys(), informers[0].GetStore().ListKeys()...); len(left) != 0 {
		t.Errorf("after a list of nothing, %v is held", left)
	}
	bookmark(second, "60") // which the second reading has already received
	if err := second.Add(at("60")); err != nil || late.LastSyncResourceVersion() != "50" {
		t.Errorf("what has ended was passed on: version %s, %v", late.LastSyncResourceVersion(), err)
	}
}

// TestListOfLateRangesWaits checks that ranges which arrive during a list share the next one, which
// waits for the list in progress and contains everything written before they arrived.
func TestListOfLateRangesWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := inQuarters(t)
		slow := slowReader{newFakeResource(t), make(chan struct{})}
		pool := newTestPool(t, &apiServer{}, clock.RealClock{}, 0)
		ranges := quarters(t, pool)
		caches := make([]cache.SharedIndexInformer, 0, len(ranges))
		for _, f := range ranges {
			caches = append(caches, f.informer(sharedKey{resource: configMaps}, nil, true, slow, &v1.ConfigMap{}))
		}
		ranges[0].StartWithContext(t.Context())
		time.Sleep(time.Second)
		for _, name := range names {
			slow.Add(newConfigMap(name, "one"))
		}
		for _, f := range ranges[1:] {
			f.StartWithContext(t.Context())
			time.Sleep(time.Second)
		}
		checkAsked(t, "ranges during a list", slow.fakeResource, "")
		ranges[2].Shutdown() // while it waits
		close(slow.list)
		// Two goroutines begin the second list and the watch after the first list, in any order.
		checkAsked(t, "ranges after a list", slow.fakeResource, "list watch list watch", "list list watch watch")
		for i, c := range caches {
			want := []string{names[i] + "/one"}
			if i == 2 {
				want = nil
			}
			if diff := cmp.Diff(want, append([]string(nil), c.GetStore().ListKeys()...)); diff != "" || c.HasSynced() == (i == 2) {
				t.Errorf("range %d, synced: %t, holds (-want +got):\n%s", i, c.HasSynced(), diff)
			}
		}
	})
}

// TestReadingIsSentWhatCameAfterItsList checks that a reading also receives changes outside its
// ranges: other ranges may join it.
func TestReadingIsSentWhatCameAfterItsList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := informertest.ConfigMap("", "")
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		names := inQuarters(t)
		sent := informertest.NewStream(true, false, watch.Event{Type: watch.Added, Object: newConfigMap(names[0], "one")},
			watch.Event{Type: watch.Added, Object: newConfigMap(names[1], "one")}, watch.Event{Type: watch.Bookmark, Object: end},
			watch.Event{Type: watch.Added, Object: newConfigMap(names[1], "two")})
		mine := store.New(store.Config{Example: &v1.ConfigMap{}, Keep: func(obj any) bool { return obj.(*v1.ConfigMap).Namespace == names[0] }})
		f := &feed{pool: newTestPool(t, &apiServer{}, clock.RealClock{}, 0), key: sharedKey{resource: configMaps}, read: streaming{sent}}
		r := &reading{feed: f, portions: map[*portion]struct{}{{into: &store.Sink{Informer: mine}}: {}}}
		lw := cache.ToListerWatcherWithContext(r.listWatch())
		w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{SendInitialEvents: ptr.To(true)})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		var got []string
		for event := range w.ResultChan() {
			got = append(got, fmt.Sprintf("%s %s", event.Type, informertest.Name(event.Object)))
		}
		want := []string{"ADDED " + names[0] + "/one@", "BOOKMARK /@", "ADDED " + names[1] + "/two@"}
		if diff := cmp.Diff(want, got); diff != "" || f.pool.Discarded() != 1 {
			t.Errorf("discarded %d, want 1; events (-want +got):\n%s", f.pool.Discarded(), diff)
		}
	})
}

// streaming is a reader with a single watch.
type streaming struct{ watch.Interface }

func (s streaming) List(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return nil, errors.New("no lists")
}

func (s streaming) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return s.Interface, nil
}

// TestFeedThatIsOverTakesNoMoreRanges checks that a range does not return to the feed that it has
// just left, if the server's answers vary.
func TestFeedThatIsOverTakesNoMoreRanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newTestPool(t, &apiServer{shards: true}, clock.RealClock{}, 0)
		key := sharedKey{resource: configMaps}
		old := pool.enter(key, nil, &v1.ConfigMap{})
		ctx, cancel := context.WithCancel(t.Context())
		asked := make(chan error)
		go func() {
			_, _, err := (&reading{feed: old}).begin(ctx, true)
			asked <- err
		}()
		<-old.filters
		next := pool.enter(key, nil, &v1.ConfigMap{})
		if next == old {
			t.Error("a feed that is over takes a range")
		}
		cancel()
		if err := <-asked; !errors.Is(err, context.Canceled) {
			t.Errorf("the request that found it out ended with %v", err)
		}
		pool.leave(old)
		if pool.feeds[key] != next {
			t.Error("the end of one feed has taken away another")
		}
		pool.leave(next)
		if len(pool.feeds) != 0 {
			t.Errorf("%d feeds left", len(pool.feeds))
		}
	})
}

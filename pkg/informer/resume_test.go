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

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/listwatch"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/store"
)

// forgetful is a resource whose server may not know versions from before the last list.
type forgetful struct {
	*fakeResource
	mu      sync.Mutex
	forgets bool
	// listed are the selectors that have listed since.
	listed map[string]bool
}

func (r *forgetful) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgets, r.listed = true, map[string]bool{}
}

// List implements listwatch.Reader.
func (r *forgetful) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.forgets {
		r.listed[o.ShardSelector] = true
	}
	return r.fakeResource.List(ctx, o)
}

// Watch implements listwatch.Reader.
func (r *forgetful) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.forgets && o.SendInitialEvents == nil && !r.listed[o.ShardSelector] {
		r.note(o)
		return nil, apierrors.NewResourceExpired("too old")
	}
	return r.fakeResource.Watch(ctx, o)
}

// sortedLedger is ledger, sorted.
func (r *fakeResource) sortedLedger() string {
	synctest.Wait()
	return strings.Join(slices.Sorted(slices.Values(strings.Fields(r.ledger()))), " ")
}

// TestRangesGoOnWithoutTheWhole ends the informer that four ranges follow. Whether they read alone
// or together after that, they miss no change and list nothing, unless the server has forgotten
// their version: then they list at once.
func TestRangesGoOnWithoutTheWhole(t *testing.T) {
	for _, test := range []struct {
		name    string
		filters bool
		forgets bool
		want    string
	}{
		{"the server filters", true, false, "watch watch watch watch"},
		{"the server does not filter", false, false, "watch"},
		{"the server filters, and forgets", true, true, "list list list list watch watch watch watch watch watch watch watch"},
		{"the server does not filter, and forgets", false, true, "list watch watch"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				resource := &forgetful{fakeResource: newFakeResource(t)}
				names := inQuarters(t)
				for _, name := range names {
					resource.Add(newConfigMap(name, "one")) // 1 to 4
				}
				pool := newTestPool(t, &apiServer{shards: test.filters}, clock.RealClock{}, 0)
				serve(pool, configMaps, resource.fakeResource)
				all, _ := whole(t, pool, configMaps, resource)
				synctest.Wait()
				told := make([]informertest.Recorder, 4)
				for i, f := range quarters(t, pool) {
					informertest.MustAdd(t, f.reading(configMaps, resource, &v1.ConfigMap{}), &told[i])
					f.StartWithContext(t.Context())
				}
				checkFollowed(t, pool, configMaps, 4)
				for i := range told {
					informertest.CheckCalls(t, "a range that follows", &told[i], fmt.Sprintf("add %s/one@%d initial=true", names[i], i+1))
				}
				resource.sortedLedger()
				if test.forgets {
					resource.forget()
				}
				began := time.Now()

				all.Shutdown()
				for _, name := range names {
					resource.Modify(newConfigMap(name, "one")) // 5 to 8
				}
				resource.Add(newConfigMap(names[0], "two")) // 9
				time.Sleep(2 * gatherPatience)              // virtual
				if got := resource.sortedLedger(); got != test.want {
					t.Errorf("ranges that were left asked for %q, want %q", got, test.want)
				}
				for i := range told {
					want := []string{fmt.Sprintf("update %s/one@%d -> %s/one@%d", names[i], i+1, names[i], i+5)}
					if i == 0 {
						want = append(want, "add "+names[0]+"/two@9 initial=false")
					}
					informertest.CheckCalls(t, fmt.Sprintf("range %d, after %v,", i, time.Since(began)), &told[i], want...)
				}
			})
		})
	}
}

// TestRangesPartWithoutAList checks that ranges which read together each continue from their
// version when the server starts to filter.
func TestRangesPartWithoutAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := newFakeResource(t)
		names := inQuarters(t)
		resource.Add(newConfigMap(names[0], "zero")) // 1
		server := &apiServer{}
		pool := newTestPool(t, server, clock.RealClock{}, 0)
		told := make([]informertest.Recorder, 4)
		for i, f := range quarters(t, pool) {
			informertest.MustAdd(t, f.reading(configMaps, resource, &v1.ConfigMap{}), &told[i])
			f.StartWithContext(t.Context())
		}
		time.Sleep(listwatch.ProbeFor) // virtual
		informertest.CheckCalls(t, "a range", &told[0], "add "+names[0]+"/zero@1 initial=true")
		resource.sortedLedger()
		server.set(func(s *apiServer) { s.shards = true })
		resource.end()
		for _, name := range names {
			resource.Add(newConfigMap(name, "one")) // 2 to 5
		}
		time.Sleep(10 * time.Second) // virtual: longer than a Reflector waits before it asks again.
		if got, want := resource.sortedLedger(), "watch watch watch watch"; got != want || len(pool.sharing()) != 0 {
			t.Errorf("ranges that part, of which %v read together still, asked for %q, want %q", pool.sharing(), got, want)
		}
		for i := range told {
			informertest.CheckCalls(t, "a range", &told[i], fmt.Sprintf("add %s/one@%d initial=false", names[i], i+2))
		}
	})
}

// TestResumedRangesAreNotTakenBack has ranges at different versions continue together. Each takes
// only what it has not seen, even after joining a reading that is behind.
func TestResumedRangesAreNotTakenBack(t *testing.T) {
	f := &feed{pool: newTestPool(t, &apiServer{}, clock.RealClock{}, 0), key: sharedKey{resource: configMaps}}
	begin := func(resumes bool, versions ...string) (*reading, []*store.Informer) {
		ctx, cancel := context.WithCancel(t.Context())
		r := &reading{feed: f, ctx: ctx, stop: cancel, resumes: resumes, portions: map[*portion]struct{}{}, synced: make(chan struct{})}
		f.readings = append(f.readings, r)
		var informers []*store.Informer
		for _, version := range versions {
			into := &store.Sink{Informer: store.New(store.Config{Example: &v1.ConfigMap{}}), Stored: true}
			if err := into.Replace(nil, version); err != nil {
				t.Fatal(err)
			}
			r.portions[&portion{into: into, reading: r, since: into.Place()}] = struct{}{}
			informers = append(informers, into.Informer)
		}
		return r, informers
	}
	check := func(after string, informers []*store.Informer, want ...string) {
		t.Helper()
		var got []string
		for _, i := range informers {
			got = append(got, i.LastSyncResourceVersion())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("after %s the ranges are at (-want +got):\n%s", after, diff)
		}
	}
	pass := func(r *reading, version string) {
		t.Helper()
		if err := r.Bookmark(version); err != nil {
			t.Fatal(err)
		}
	}
	oldest, others := begin(false, "5")
	close(oldest.synced)
	oldest.version = "5"
	late, informers := begin(true, "20", "9", "30")
	late.resume()
	if from := late.Place(); from != "9" {
		t.Fatalf("reads from version %s, want that of the last of the ranges", from)
	}
	pass(late, "12")
	check("what two have seen", informers, "20", "12", "30")
	pass(late, "25")
	check("what one has seen", informers, "25", "25", "30")
	pass(oldest, "7")
	pass(late, "26")
	pass(oldest, "8")
	if len(late.portions) != 0 {
		t.Fatal("have not gone over to the oldest reading")
	}
	for _, version := range []string{"10", "26", "28"} {
		pass(oldest, version)
	}
	check("the oldest reading has come to 28", informers, "28", "28", "30")
	pass(oldest, "31")
	check("news for all", append(informers, others...), "31", "31", "31", "31")
}

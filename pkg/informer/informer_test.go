package informer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/store"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

func TestMain(m *testing.M) { informertest.Main(m) }

// TestLikeClientGo compares notifications and store with those of client-go's informer, whose input
// is filtered by other means: for an informer that reads by itself, and for one that follows
// another. Where client-go's informer lists and ours continues its watch, it compares what became
// of each object.
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
	keep := informertest.InRange(within)
	all, filtered := newFakeResource(t), informertest.NewServer()
	defer filtered.Close()
	change := func(f func(*fcache.FakeControllerSource, *v1.ConfigMap), obj *v1.ConfigMap) {
		f(all.FakeControllerSource, obj.DeepCopy())
		if keep(obj) {
			f(filtered.FakeControllerSource, obj.DeepCopy())
			return
		}
		// Keep the resource versions of both in step.
		f(filtered.FakeControllerSource, informertest.ConfigMap("passed-over", obj.Name))
	}
	from := reflected(all.ListWatch(), &v1.ConfigMap{}, "configmaps")
	if follows {
		pool := newTestPool(t, &apiServer{}, clock.RealClock{}, 0)
		whole(t, pool, configMaps, all)
		from = following{pool: pool, keys: []sharedKey{{resource: configMaps}}, read: func(context.Context, *store.Sink) {
			t.Error("it reads by itself")
		}}.source()
	}
	ours := store.New(store.Config{Example: &v1.ConfigMap{}, Source: from, Keep: keep})
	theirs := cache.NewSharedIndexInformer(filtered.ListWatch(), &v1.ConfigMap{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	var got, want informertest.Recorder
	informertest.MustAdd(t, ours, &got)
	informertest.MustAdd(t, theirs, cache.FilteringResourceEventHandler{Handler: &want, FilterFunc: func(obj any) bool {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		return keep(obj)
	}})

	live := map[string]*v1.ConfigMap{}
	for round := range 12 {
		// In every other round the server cannot be reached while objects change, so that both
		// learn of the changes from a list.
		down, interrupted := round%2 == 1, round > 2 && round%4 == 2
		all.Cut(down)
		filtered.Cut(down)
		if interrupted {
			change(add, informertest.ConfigMap("passed-over", "seen")) // after what the servers have forgotten
			all.Interrupt()
			filtered.Interrupt()
		}
		for range random.IntN(20) {
			obj := informertest.ConfigMap(fmt.Sprintf("ns-%c", 'a'+random.IntN(12)), fmt.Sprint(random.IntN(4)))
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
			informertest.Run(t, ours)
			informertest.Run(t, theirs)
		}
		all.Cut(false)
		filtered.Cut(false)
		time.Sleep(time.Minute) // virtual: past the reflectors' back-off
		synctest.Wait()
		compare(t, round, ours, theirs, keep, interrupted, &got, &want)
	}
}

func compare(t *testing.T, round int, ours, theirs cache.SharedIndexInformer, keep func(any) bool, interrupted bool, got, want *informertest.Recorder) {
	t.Helper()
	theirCalls, ourCalls := want.Take(), got.Take()
	for who, calls := range map[string][]string{"client-go": theirCalls, "ours": ourCalls} {
		if i := slices.IndexFunc(calls, func(call string) bool { return !isMissed(call) }); i >= 0 && slices.ContainsFunc(calls[i:], isMissed) {
			t.Errorf("round %d: %s tells of a deletion that was missed after something else: %q", round, who, calls)
		}
	}
	if interrupted {
		if slices.ContainsFunc(ourCalls, isMissed) {
			t.Errorf("round %d: ours has listed: %q", round, ourCalls)
		}
		theirCalls, ourCalls = outcomes(theirCalls), outcomes(ourCalls)
	} else {
		theirCalls, ourCalls = informertest.SortedBy(theirCalls), informertest.SortedBy(ourCalls)
	}
	if diff := cmp.Diff(theirCalls, ourCalls); diff != "" {
		t.Fatalf("round %d: notifications (-client-go +ours):\n%s", round, diff)
	}
	if diff := cmp.Diff(contents(theirs, keep), contents(ours, func(any) bool { return true })); diff != "" {
		t.Fatalf("round %d: stores (-client-go +ours):\n%s", round, diff)
	}
}

// isMissed reports whether a handler was told of a deletion that the watch did not bring.
func isMissed(call string) bool { return strings.HasPrefix(call, "missed ") }

// outcomes returns what notifications amount to for each object: whether it was there before, and
// its version after. "-" stands for none.
func outcomes(calls []string) []string {
	before, after := map[string]string{}, map[string]string{}
	for _, call := range calls {
		words := strings.Fields(strings.ReplaceAll(call, "->", ""))
		object, version, _ := strings.Cut(words[1], "@")
		if _, told := before[object]; !told {
			before[object] = "there"
			if words[0] == "add" {
				before[object] = "-"
			}
		}
		switch words[0] {
		case "add":
			after[object] = version
		case "update":
			_, after[object], _ = strings.Cut(words[2], "@")
		default:
			after[object] = "-"
		}
	}
	var all []string
	for object := range before {
		if before[object] != "-" || after[object] != "-" { // a list does not show what came and went
			all = append(all, fmt.Sprintf("%s: %s, then %s", object, before[object], after[object]))
		}
	}
	slices.Sort(all)
	return all
}

func contents(i cache.SharedIndexInformer, keep func(any) bool) []string {
	var names []string
	for _, obj := range i.GetStore().List() {
		if keep(obj) {
			names = append(names, informertest.Name(obj))
		}
	}
	slices.Sort(names)
	return names
}

func add(s *fcache.FakeControllerSource, obj *v1.ConfigMap)    { s.Add(obj) }
func modify(s *fcache.FakeControllerSource, obj *v1.ConfigMap) { s.Modify(obj) }
func remove(s *fcache.FakeControllerSource, obj *v1.ConfigMap) { s.Delete(obj) }

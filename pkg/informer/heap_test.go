package informer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// heavy is a number of large objects in two namespaces, created for each list. It implements
// reader.
type heavy struct {
	namespaces    [2]string
	objects, size int
}

// List implements listwatch.Reader.
func (h heavy) List(context.Context, metav1.ListOptions) (kruntime.Object, error) {
	list := &v1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	for n := range h.objects {
		c := newConfigMap(h.namespaces[n%2], fmt.Sprint(n))
		c.ResourceVersion = "5"
		c.Data = map[string]string{"payload": strings.Repeat("x", h.size)}
		list.Items = append(list.Items, *c)
	}
	return list, nil
}

// Watch implements listwatch.Reader.
func (h heavy) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.SendInitialEvents != nil {
		return nil, errors.New("no streaming lists")
	}
	return watch.NewFake(), nil
}

// liveHeap returns the live heap in megabytes.
func liveHeap() float64 {
	runtime.GC()
	runtime.GC() // garbage with finalizers needs a second collection
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc) / (1 << 20)
}

// TestWhatHasEndedHoldsNothing has a group and ranges leave a process and return, while something
// keeps their listers, as upstream's metrics keep those of the first instance for ever.
func TestWhatHasEndedHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const megabytes = 32
		inLow, inHigh := namesInHalves(t)
		resource := heavy{namespaces: [2]string{inLow, inHigh}, objects: 2048, size: megabytes << 20 / 2048}
		pool := newTestPool(t, &apiServer{shards: true}, clock.RealClock{}, 0)
		ranges, err := shard.EqualRanges(2)
		if err != nil {
			t.Fatal(err)
		}
		var kept []cache.Indexer
		before := liveHeap()
		check := func(when string, want float64) {
			t.Helper()
			synctest.Wait()
			if got := liveHeap() - before; got < want-4 || got > want+4 {
				t.Errorf("%s %.1f MB are in use, want about %.0f", when, got, want)
			}
		}
		begin := func(r shard.Range) *Factory {
			f := pool.NewFactory(r, nil)
			kept = append(kept, f.reading(configMaps, resource, &v1.ConfigMap{}).GetIndexer())
			f.StartWithContext(t.Context())
			if err := f.WaitForCacheSyncWithContext(t.Context()).Err; err != nil {
				t.Fatal(err)
			}
			return f
		}
		end := func(f *Factory) {
			f.Forget()
			if n := len(kept[len(kept)-1].List()); n == 0 {
				t.Error("what runs has been emptied")
			}
			f.Shutdown()
			f.Forget()
			f.Forget()
		}
		for _, when := range []string{"at first", "once it has come back"} {
			low, high := begin(ranges[0]), begin(ranges[1])
			check(when+", with ranges,", megabytes)
			group := begin(shard.Everything())
			time.Sleep(time.Minute) // virtual: the ranges follow it by then.
			check(when+", with ranges and a group,", megabytes)
			end(low)
			end(high)
			check(when+", with a group,", megabytes)
			end(group)
			check(when+", when all have left,", 0)
			low = begin(ranges[0])
			check(when+", with a range,", megabytes/2)
			end(low)
			check(when+", when that has left,", 0)
			if low.Weights() != nil {
				t.Error("what has ended weighs nothing, instead of not being weighed")
			}
		}
		for _, indexer := range kept {
			if n := len(indexer.List()) + len(indexer.ListIndexFuncValues(cache.NamespaceIndex)); n != 0 {
				t.Errorf("a lister that was kept has %d objects and namespaces", n)
			}
		}
	})
}

// TestForgetWhileSomebodyAsks has a goroutine that outlives its controller ask for informers during
// Forget. A concurrent read and write of a map would end the process.
func TestForgetWhileSomebodyAsks(t *testing.T) {
	pool := newTestPool(t, &apiServer{}, clock.RealClock{}, 0)
	resource := func(n int) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "test.flotilla.dev", Version: "v1", Resource: fmt.Sprint("kind-", n)}
	}
	for range 5 {
		f := pool.NewFactory(shard.Range{Start: 1, End: 0}, nil)
		const kinds = 500
		for n := range kinds {
			f.metadata(resource(n))
		}
		f.Shutdown()
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			for n := range kinds {
				f.metadata(resource(kinds + n))
			}
		}()
		f.Forget()
		<-asked
	}
}

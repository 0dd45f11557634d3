package store

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
)

func TestMain(m *testing.M) { informertest.Main(m) }

func TestLateHandlerGetsTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, i := newRead(t)
		source.Add(informertest.ConfigMap("a", "1"))
		informertest.Run(t, i)
		synctest.Wait()
		if !i.HasSynced() {
			t.Fatal("informer has not synced")
		}
		var late informertest.Recorder
		handle := informertest.MustAdd(t, i, &late)
		synctest.Wait()
		if !handle.HasSynced() {
			t.Error("handler has not synced")
		}
		if diff := cmp.Diff([]string{"add a/1@1 initial=true"}, late.Take()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestHandlerSyncsOnlyWhenAllInitialAddsAreDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, i := newRead(t)
		source.Add(informertest.ConfigMap("a", "1"))
		block := make(chan struct{})
		handle := informertest.MustAdd(t, i, cache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-block }})
		informertest.Run(t, i)
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
		source, i := newRead(t)
		block := make(chan struct{})
		informertest.MustAdd(t, i, cache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-block }})
		var free informertest.Recorder
		informertest.MustAdd(t, i, &free)
		informertest.Run(t, i)
		synctest.Wait()
		source.Add(informertest.ConfigMap("a", "1"))
		source.Add(informertest.ConfigMap("a", "2"))
		synctest.Wait()
		if got := len(free.Take()); got != 2 {
			t.Errorf("the other handler was told of %d objects, want 2", got)
		}
		close(block)
	})
}

func TestResyncIsEachHandlersOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, i := newRead(t)
		source.Add(informertest.ConfigMap("a", "1"))
		often, seldom := informertest.Recorder{Repetitions: true}, informertest.Recorder{Repetitions: true}
		if _, err := i.AddEventHandlerWithOptions(&often, cache.HandlerOptions{ResyncPeriod: ptr.To(15 * time.Second)}); err != nil {
			t.Fatal(err)
		}
		informertest.MustAdd(t, i, &seldom)
		informertest.Run(t, i)
		synctest.Wait()
		often.Take()
		seldom.Take()
		time.Sleep(time.Minute + time.Second) // virtual
		synctest.Wait()
		if got := len(often.Take()); got != 4 {
			t.Errorf("handler with a resync period of 15 s was called %d times in 61 s, want 4", got)
		}
		if got := seldom.Take(); len(got) != 0 {
			t.Errorf("handler with a resync period of 12 h was called in a minute: %v", got)
		}
	})
}

func TestRunWaitsForHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, i := newRead(t)
		source.Add(informertest.ConfigMap("a", "1"))
		block := make(chan struct{})
		informertest.MustAdd(t, i, cache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-block }})
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
		if _, err := i.AddEventHandler(&informertest.Recorder{}); err == nil {
			t.Error("a stopped informer took a handler")
		}
	})
}

func TestRemovedHandlerIsNotCalledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, i := newRead(t)
		var r informertest.Recorder
		handle := informertest.MustAdd(t, i, &r)
		informertest.Run(t, i)
		synctest.Wait()
		if err := cache.ShutDownEventHandler(i, handle); err != nil {
			t.Fatal(err)
		}
		source.Add(informertest.ConfigMap("a", "1"))
		synctest.Wait()
		if got := r.Take(); len(got) != 0 {
			t.Errorf("removed handler was told %v", got)
		}
	})
}

// newRead returns a source without objects, and an informer that reads it when it runs and resyncs
// every 12 h.
func newRead(t *testing.T) (*informertest.Server, *Informer) {
	source := informertest.NewServer()
	t.Cleanup(source.Close)
	return source, New(Config{
		Example: &v1.ConfigMap{}, Resync: 12 * time.Hour,
		Source: func(ctx context.Context, into *Sink) {
			cache.NewReflectorWithOptions(source.ListWatch(), &v1.ConfigMap{}, into, cache.ReflectorOptions{}).RunWithContext(ctx)
		},
	})
}

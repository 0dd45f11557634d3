package informer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

// TestWhatIsAskedForLateIsNoOlderThanTheRest asks for a kind for the first time after the shard's
// takeover. The cache must contain what the last owner wrote after the factory was made, although
// the process's cache of all objects had stalled before that.
func TestWhatIsAskedForLateIsNoOlderThanTheRest(t *testing.T) {
	marks := map[schema.GroupResource]Mark{{Resource: "configmaps"}: {Version: "2"}}
	t.Run("CatchUp", func(t *testing.T) {
		askLate(t, func(ctx context.Context, f *Factory) error { return f.CatchUp(ctx, marks) })
	})
	t.Run("Refresh", func(t *testing.T) { askLate(t, func(ctx context.Context, f *Factory) error { return f.Refresh(ctx) }) })
}

func askLate(t *testing.T, confirm func(context.Context, *Factory) error) {
	synctest.Test(t, func(t *testing.T) {
		low, _ := namesInHalves(t)
		resource := newFakeResource(t)
		resource.Add(newConfigMap(low, "one")) // 1
		pool := newTestPool(t, &apiServer{takes: time.Millisecond}, clock.RealClock{}, 0)
		next, _ := halves(t, pool) // prepared while another member owns the range
		time.Sleep(time.Second)
		whole(t, pool, configMaps, deafResource{resource}) // a singleton of the process caches all
		synctest.Wait()
		serve(pool, configMaps, resource)
		time.Sleep(time.Second)
		resource.Add(newConfigMap(low, "two")) // 2: the last owner's last write
		time.Sleep(time.Minute)
		if err := confirm(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		next.StartWithContext(t.Context())
		i := next.reading(configMaps, resource, &v1.ConfigMap{}) // first asked for in Reconcile
		next.StartWithContext(t.Context())
		if err := next.WaitForCacheSyncWithContext(t.Context()).Err; err != nil {
			t.Fatal(err)
		}
		if n := len(i.GetStore().List()); n != 2 {
			t.Errorf("synced with %d objects of 2, at version %s", n, i.LastSyncResourceVersion())
		}
	})
}

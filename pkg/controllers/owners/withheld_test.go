package owners

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// deletedMap returns the metadata of a ConfigMap that is being deleted and waits for a finalizer.
func deletedMap(name, finalizer string) *metav1.PartialObjectMetadata {
	m := dependentOf(name, "")
	m.Finalizers, m.DeletionTimestamp = []string{finalizer}, &metav1.Time{Time: time.Now()}
	return m
}

// TestDeletionsWaitForTheGraph has owners in deletion when the garbage collector begins. It is told
// of those whose dependents matter only once the graph is complete.
func TestDeletionsWaitForTheGraph(t *testing.T) {
	for finalizer, waits := range map[string]bool{
		metav1.FinalizerOrphanDependents: true,
		metav1.FinalizerDeleteDependents: true,
		"example.com/anything":           false,
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newCollected(t)
			c.maps.Modify(deletedMap("map-a", finalizer))
			for _, gvr := range []schema.GroupVersionResource{nodes, secrets, configMaps} {
				c.monitor(t, gvr)
			}
			c.growing.Lock()
			c.first.Start(c.stop)
			before, after := "map secret secret node node", "map"
			if !waits {
				before, after = "map map secret secret node node", ""
			}
			c.checkTold(t, "while the graph grows, "+finalizer, before)
			time.Sleep(time.Hour) // virtual: however long that takes
			c.checkTold(t, "an hour later, "+finalizer, "")
			c.checkSynced(t, "while the graph grows, "+finalizer)
			c.growing.Unlock()
			time.Sleep(time.Minute)
			c.checkTold(t, "when the graph has grown, "+finalizer, after)
			c.checkSynced(t, "when the graph has grown, "+finalizer, "configmaps", "nodes", "secrets")
		})
	}
}

// TestDeletionsWaitForDependentsThatCannotBeRead checks that deletions wait 30 s for dependents
// that cannot be listed, as with stock, and again once these can be listed.
func TestDeletionsWaitForDependentsThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCollected(t)
		c.secrets.down.Store(true)
		for _, gvr := range []schema.GroupVersionResource{nodes, secrets, configMaps} {
			c.monitor(t, gvr)
		}
		c.first.Start(c.stop)
		time.Sleep(dependentsPatience - time.Second) // virtual, as are all below
		synctest.Wait()
		c.told.take()
		c.maps.Modify(deletedMap("map-a", metav1.FinalizerOrphanDependents))
		c.checkUpdates(t, "while there may be dependents that are not known")
		time.Sleep(2 * time.Second)
		c.checkUpdates(t, "after 30 s", "map-a")
		c.growing.Lock()
		c.secrets.down.Store(false)
		time.Sleep(time.Minute)
		c.checkTold(t, "when all can be read", "secret secret")
		c.maps.Modify(deletedMap("map-b", metav1.FinalizerOrphanDependents))
		c.checkUpdates(t, "while the graph grows")
		c.checkSynced(t, "while the graph grows", "configmaps", "nodes")
		c.growing.Unlock()
		time.Sleep(time.Minute)
		c.checkUpdates(t, "when the graph has grown", "map-b")
		c.checkSynced(t, "when the graph has grown", "configmaps", "nodes", "secrets")
	})
}

// TestDeletionsWaitForKindsThatComeLater adds a kind while the garbage collector runs.
func TestDeletionsWaitForKindsThatComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCollected(t)
		c.monitor(t, configMaps)
		c.first.Start(c.stop)
		synctest.Wait()
		c.told.take()
		c.maps.Modify(deletedMap("map-a", metav1.FinalizerOrphanDependents))
		c.checkUpdates(t, "with a whole graph", "map-a")
		c.growing.Lock()
		c.monitor(t, secrets)
		c.first.Start(c.stop)
		c.checkTold(t, "when a kind is added", "secret secret")
		c.maps.Modify(deletedMap("map-b", metav1.FinalizerOrphanDependents))
		c.checkUpdates(t, "while the graph grows")
		c.growing.Unlock()
		time.Sleep(time.Minute) // virtual
		c.checkUpdates(t, "when the graph has grown", "map-b")
	})
}

// checkUpdates checks that handlers have received updates of exactly these objects.
func (c *collected) checkUpdates(t *testing.T, when string, want ...string) {
	t.Helper()
	synctest.Wait()
	var got []string
	for _, call := range c.told.take() {
		rest, update := strings.CutPrefix(call, "update ")
		if !update {
			t.Errorf("%s handlers were told %q, want updates only", when, call)
		}
		got = append(got, rest)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s handlers were told of updates %q, want %q", when, got, want)
	}
}

// TestWithheldKeepsOrder has objects change in every way between holds and releases. All
// notifications of an object arrive in order, and no deletion that depends on dependents arrives
// during a hold.
func TestWithheldKeepsOrder(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		w := &withheld{}
		told := map[string][]string{}
		holding := 0
		var releases []func()
		handler := withholding{ResourceEventHandler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { note(t, told, obj, holding) },
			UpdateFunc: func(_, obj any) { note(t, told, obj, holding) },
			DeleteFunc: func(obj any) { note(t, told, obj, holding) },
		}, through: w}
		sent := map[string][]string{}
		for step := range 60 {
			switch random.IntN(8) {
			case 0:
				releases = append(releases, w.hold())
				holding++
				continue
			case 1:
				if n := len(releases); n > 0 {
					holding-- // before release makes its calls
					releases[n-1]()
					releases[n-1]()
					releases = releases[:n-1]
				}
				continue
			}
			name := fmt.Sprint("map-", random.IntN(3))
			obj := dependentOf(name, "")
			if random.IntN(2) == 0 {
				obj = deletedMap(name, metav1.FinalizerOrphanDependents)
			}
			obj.ResourceVersion = fmt.Sprint(step)
			sent[name] = append(sent[name], obj.ResourceVersion)
			switch random.IntN(4) {
			case 0:
				handler.OnAdd(obj, false)
			case 1:
				handler.OnDelete(cache.DeletedFinalStateUnknown{Obj: obj})
			default:
				handler.OnUpdate(obj, obj)
			}
		}
		for holding > 0 {
			holding--
			releases[holding]()
		}
		for name := range sent {
			if !slices.Equal(told[name], sent[name]) {
				t.Fatalf("seed %d: of %s the handler was told %v, want %v", seed, name, told[name], sent[name])
			}
		}
	}
}

func note(t *testing.T, told map[string][]string, obj any, holding int) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	m := obj.(*metav1.PartialObjectMetadata)
	if m.DeletionTimestamp != nil && holding > 0 {
		t.Errorf("the handler was told of the deletion of %s while %d hold", m.Name, holding)
	}
	told[m.Name] = append(told[m.Name], m.ResourceVersion)
}

package store

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
)

// TestSinkGoesByWhatIsStored has a source name events wrongly, as one does that starts over.
func TestSinkGoesByWhatIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := New(Config{Example: &v1.ConfigMap{}})
		var told informertest.Recorder
		informertest.MustAdd(t, i, &told)
		into := &Sink{Informer: i}
		at := func(version string) *v1.ConfigMap {
			c := informertest.ConfigMap("a", "1")
			c.ResourceVersion = version
			return c
		}
		again := func(version string) *v1.ConfigMap {
			c := at(version)
			c.UID = "created later"
			return c
		}
		for _, step := range []struct {
			what string
			do   func() error
			want []string
		}{
			{"delete of an unknown object", func() error { return into.Delete(at("1")) }, nil},
			{"change of an unknown object", func() error { return into.Update(at("2")) }, []string{"add a/1@2 initial=true"}},
			{"first list", func() error { return into.Replace([]any{at("3"), at("3")}, "3") }, []string{"update a/1@2 -> a/1@3"}},
			{"list that changes nothing", func() error { return into.Replace([]any{at("3")}, "4") }, nil},
			{"add of a known object", func() error { return into.Add(at("5")) }, []string{"update a/1@3 -> a/1@5"}},
			{"list with another object of the name", func() error { return into.Replace([]any{again("6")}, "6") }, []string{"missed a/1@5 a/1", "add a/1@6 initial=false"}},
			{"empty list", func() error { return into.Replace(nil, "6") }, []string{"missed a/1@6 a/1"}},
			{"add after a list", func() error { return into.Add(at("7")) }, []string{"add a/1@7 initial=false"}},
			{"bookmark", func() error { return into.Bookmark("8") }, nil},
		} {
			if err := step.do(); err != nil {
				t.Errorf("%s: %v", step.what, err)
			}
			informertest.CheckCalls(t, "handler, after "+step.what+",", &told, step.want...)
		}
		if got := i.LastSyncResourceVersion(); got != "8" {
			t.Errorf("last version is %s, want that of the bookmark", got)
		}
	})
}

// TestWhoWaitsIsWokenByEveryChange waits for an object to go, which arrives as an event with a
// version, as a tombstone without one, or by a list.
func TestWhoWaitsIsWokenByEveryChange(t *testing.T) {
	object := informertest.ConfigMap("a", "1")
	object.ResourceVersion = "2"
	for name, remove := range map[string]func(*Sink) error{
		"a deletion":  func(into *Sink) error { return into.Delete(object) },
		"a tombstone": func(into *Sink) error { return into.Delete(cache.DeletedFinalStateUnknown{Key: "a/1", Obj: object}) },
		"a list":      func(into *Sink) error { return into.Replace(nil, "3") },
	} {
		synctest.Test(t, func(t *testing.T) {
			i := New(Config{Example: &v1.ConfigMap{}})
			into := &Sink{Informer: i}
			if err := into.Replace([]any{object}, "2"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			waited := make(chan error, 1)
			go func() { waited <- i.Await(ctx, func() bool { return len(i.indexer.ListKeys()) == 0 }) }()
			synctest.Wait()
			if err := remove(into); err != nil {
				t.Fatal(err)
			}
			if err := <-waited; err != nil {
				t.Errorf("%s was not seen: %v", name, err)
			}
		})
	}
}

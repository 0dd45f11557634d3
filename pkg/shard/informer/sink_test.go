package informer

import (
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
)

// TestSinkGoesByWhatIsStored has a source call events by the wrong names, as one does
// that starts over.
func TestSinkGoesByWhatIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInformer(config{example: &v1.ConfigMap{}})
		var told recorder
		mustAdd(t, i, &told)
		into := &sink{i: i}
		at := func(version string) *v1.ConfigMap {
			c := configMap("a", "1")
			c.ResourceVersion = version
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
			{"empty list", func() error { return into.Replace(nil, "6") }, []string{"missed a/1@5 a/1"}},
			{"add after a list", func() error { return into.Add(at("7")) }, []string{"add a/1@7 initial=false"}},
			{"bookmark", func() error { return into.Bookmark("8") }, nil},
		} {
			if err := step.do(); err != nil {
				t.Errorf("%s: %v", step.what, err)
			}
			checkCalls(t, "handler, after "+step.what+",", &told, step.want...)
		}
		if got := i.LastSyncResourceVersion(); got != "8" {
			t.Errorf("last version is %s, want that of the bookmark", got)
		}
	})
}

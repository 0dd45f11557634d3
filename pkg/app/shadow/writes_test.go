package shadow

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

var create = Kind{Client: "deployment-controller", Verb: "create", Group: "apps", Resource: "replicasets"}

func of(kind Kind, namespace, name string) request {
	return request{Kind: kind, namespace: namespace, name: name}
}

// TestCountsObjects: an object counts once however often its controller tries, and as lasting once it
// has gone on trying for long enough.
func TestCountsObjects(t *testing.T) {
	w, now := newWrites(), time.Unix(1000, 0)
	for i := range 10 {
		w.add(of(create, "a", "one"), now.Add(time.Duration(i)*time.Second))
	}
	w.add(of(create, "a", "two"), now)
	w.add(of(create, "b", "one"), now)
	w.add(of(Kind{Client: "x", Verb: "create", Group: "apps", Resource: "replicasets"}, "a", "one"), now)
	w.add(of(Kind{Client: "x", Verb: "create", Resource: "events"}, "a", "one"), now)
	w.add(of(Kind{Client: "x", Verb: "patch", Group: "events.k8s.io", Resource: "events"}, "a", "one"), now)
	check := func(objects, lasting int, attempts int64, examples ...string) {
		t.Helper()
		all, events, uncounted := w.list()
		i := slices.IndexFunc(all, func(w Write) bool { return w.Kind == create })
		got := all[i]
		if got.Objects != objects || got.Lasting != lasting || got.Attempts != attempts || !slices.Equal(got.Examples, examples) {
			t.Errorf("counted %+v, want %d, %d, %d, %q", got, objects, lasting, attempts, examples)
		}
		if other := all[1-i]; other.Client != "x" || other.Objects != 1 || other.Attempts != 1 {
			t.Errorf("of another client: %+v", other)
		}
		if len(all) != 2 || events != 2 || uncounted != 0 {
			t.Errorf("%d kinds, %d events, %d uncounted", len(all), events, uncounted)
		}
	}
	check(3, 0, 12, "a/one", "a/two", "b/one")
	w.add(of(create, "a", "two"), now.Add(LastingAfter-1))
	check(3, 0, 13, "a/one", "a/two", "b/one")
	w.add(of(create, "a", "two"), now.Add(LastingAfter))
	check(3, 1, 14, "a/two")
	w.add(of(create, "a", "two"), now.Add(2*LastingAfter))
	check(3, 1, 15, "a/two")
	w.add(of(create, "c", "new"), now.Add(2*LastingAfter))
	check(4, 1, 16, "a/two")
}

// TestCountIsBounded: more objects and more kinds than there is room for are counted as such.
func TestCountIsBounded(t *testing.T) {
	w, now := newWrites(), time.Unix(1000, 0)
	for i := range maxObjects + 10 {
		w.add(of(create, "a", fmt.Sprint(i)), now)
	}
	all, _, uncounted := w.list()
	if all[0].Objects != maxObjects || all[0].Attempts != maxObjects+10 || uncounted != 10 || len(all[0].Examples) != maxExamples {
		t.Errorf("%+v and %d uncounted", all[0], uncounted)
	}
	for i := range maxKinds + 10 {
		w.add(of(Kind{Verb: "delete", Resource: fmt.Sprint(i)}, "a", "x"), now)
	}
	if all, _, _ = w.list(); len(all) != maxKinds || len(w.objects) != maxObjects {
		t.Errorf("%d kinds and %d objects", len(all), len(w.objects))
	}
}

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

// TestCountsObjects checks that an object counts once, however often its controller tries. It
// counts as lasting once its controller has tried for long enough.
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

// TestLastingNeedsOneSeries checks that a controller that tries again and again, at growing
// intervals, counts as one whose write nobody else makes. Two races with the leader on one object,
// an hour apart, do not.
func TestLastingNeedsOneSeries(t *testing.T) {
	for name, test := range map[string]struct {
		at   []time.Duration
		want int
	}{
		"one race":                     {[]time.Duration{0, time.Millisecond, 3 * time.Millisecond}, 0},
		"two races, an hour apart":     {[]time.Duration{0, 5 * time.Millisecond, time.Hour, time.Hour + 5*time.Millisecond}, 0},
		"just one series":              {[]time.Duration{0, LastingAfter}, 1},
		"just two":                     {[]time.Duration{0, LastingAfter + 1}, 0},
		"the second one lasts":         {[]time.Duration{0, time.Hour, time.Hour + 10*time.Second, time.Hour + LastingAfter}, 1},
		"intervals that double":        {[]time.Duration{0, 20 * time.Second, 60 * time.Second, 140 * time.Second}, 1},
		"it lasts, and begins again":   {[]time.Duration{0, LastingAfter, time.Hour, time.Hour + LastingAfter}, 1},
		"every quarter of an hour":     {[]time.Duration{0, 15 * time.Minute, 30 * time.Minute}, 0},
		"a pause within a long series": {[]time.Duration{0, 20 * time.Second, 90 * time.Second}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w, began := newWrites(), time.Unix(1000, 0)
			for _, after := range test.at {
				w.add(of(create, "a", "one"), began.Add(after))
			}
			all, _, _ := w.list()
			if all[0].Lasting != test.want || all[0].Objects != 1 || all[0].Attempts != int64(len(test.at)) {
				t.Errorf("counted %+v, want %d lasting", all[0], test.want)
			}
		})
	}
}

// TestRoomIsMade requires that, when the table is full, objects that were tried only briefly make
// room for others. Lasting objects do not, and objects that are followed already stay followed.
func TestRoomIsMade(t *testing.T) {
	w, now := newWrites(), time.Unix(1000, 0)
	lasts := of(create, "a", "lasts")
	w.add(lasts, now)
	w.add(lasts, now.Add(LastingAfter))
	for i := range maxObjects - 2 {
		w.add(of(create, "a", fmt.Sprint(i)), now)
	}
	now = now.Add(LastingAfter)
	fresh := of(create, "a", "fresh")
	w.add(fresh, now)
	w.add(of(create, "b", "early"), now)
	if _, _, uncounted := w.list(); uncounted != 1 {
		t.Errorf("%d uncounted while all may go on, want 1", uncounted)
	}
	now = now.Add(LastingAfter)
	late := of(create, "b", "late")
	w.add(late, now)
	if len(w.objects) != 3 || w.objects[keyOf(lasts)] == nil || w.objects[keyOf(fresh)] == nil || w.objects[keyOf(late)] == nil {
		t.Errorf("%d objects are followed, want the one that lasts, the fresh and the late one", len(w.objects))
	}
	w.add(fresh, now)
	w.add(late, now.Add(LastingAfter))
	all, _, uncounted := w.list()
	if all[0].Lasting != 3 || uncounted != 1 {
		t.Errorf("counted %+v and %d uncounted, want 3 lasting and 1", all[0], uncounted)
	}
}

// TestCountIsBounded checks that objects and kinds beyond the bound are counted as uncounted.
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

package informer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestExpectedRangeFollows checks that a range which was expected when the informer of slim copies
// listed reads nothing itself and shares its objects, that a range which was not expected lists its
// part, and that nothing stays whole for a range that is not expected any more and has gone.
func TestExpectedRangeFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{fakeResource: newFakeResource(t)}
		inLow, inHigh := namesInHalves(t)
		s.Add(withData(inLow, "1"))
		s.Add(withData(inHigh, "1"))
		pool := newSlimPool(t, &apiServer{shards: true})
		low, high := halves(t, pool)
		pool.Expect([]shard.Range{low.within})
		group := pool.NewFactory(shard.Everything(), nil)
		defer group.Shutdown()
		slim := group.readingSlim(configMaps, s, &v1.ConfigMap{})
		group.StartWithContext(t.Context())
		isWhole := func(in string) bool { return len(holding(t, slim, in).Data) > 0 }
		look := func(when string, wholeLow, wholeHigh bool) {
			t.Helper()
			settle()
			if isWhole(inLow) != wholeLow || isWhole(inHigh) != wholeHigh {
				t.Errorf("%s: the objects of the ranges are whole: %t and %t, want %t and %t",
					when, isWhole(inLow), isWhole(inHigh), wholeLow, wholeHigh)
			}
		}
		look("before any range", true, false)
		s.asked()
		ranged := low.reading(configMaps, s, &v1.ConfigMap{})
		low.StartWithContext(t.Context())
		look("with the expected range", true, false)
		if everything, own, watches := s.asked(); everything+own+watches != 0 || holding(t, ranged, inLow) != holding(t, slim, inLow) {
			t.Errorf("the expected range caused %d lists of everything, %d of itself and %d watches, or holds an object of its own", everything, own, watches)
		}
		other := high.reading(configMaps, s, &v1.ConfigMap{})
		high.StartWithContext(t.Context())
		look("with a range that was not expected", true, true)
		if _, own, _ := s.asked(); own == 0 || len(holding(t, other, inHigh).Data) == 0 {
			t.Errorf("the other range listed %d times", own)
		}
		s.Modify(withData(inLow, "2"))
		pool.Expect(nil)
		look("when it is in use and not expected any more", true, true)
		if got := holding(t, ranged, inLow).Data["v"]; got != "2" {
			t.Errorf("the range holds version %q", got)
		}
		low.Shutdown()
		look("when the range has gone", false, true)
		s.Modify(withData(inLow, "3"))
		look("after another change", false, true)
	})
}

// TestExpectedRangeComesBeforeTheList begins with an expected range while slim copies wait for the
// answer to the first question to the API server, and a little later.
func TestExpectedRangeComesBeforeTheList(t *testing.T) {
	const takes = 100 * time.Millisecond
	for after := takes / 10; after <= takes+2*gatherPatience; after += takes / 10 {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &slow{fakeResource: newFakeResource(t)}
				inLow, _ := namesInHalves(t)
				s.Add(withData(inLow, "1"))
				pool := newSlimPool(t, &apiServer{shards: true, takes: takes})
				low, _ := halves(t, pool)
				pool.Expect([]shard.Range{low.within})
				group := pool.NewFactory(shard.Everything(), nil)
				defer group.Shutdown()
				slim := group.readingSlim(configMaps, s, &v1.ConfigMap{})
				ranged := low.reading(configMaps, s, &v1.ConfigMap{})
				defer low.Shutdown()
				group.StartWithContext(t.Context())
				time.Sleep(after) // virtual
				low.StartWithContext(t.Context())
				settle()
				if everything, own, _ := s.asked(); everything != 1 || own != 0 || holding(t, ranged, inLow) != holding(t, slim, inLow) {
					t.Errorf("%d lists of everything and %d of the range, want only one of everything; or the range holds an object of its own", everything, own)
				}
			})
		})
	}
}

// TestExpectedRangeContinues checks that a range continues from its version, and lists nothing,
// when the informer of slim copies that it followed goes.
func TestExpectedRangeContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{fakeResource: newFakeResource(t)}
		inLow, _ := namesInHalves(t)
		s.Add(withData(inLow, "1"))
		pool := newSlimPool(t, &apiServer{shards: true})
		low, _ := halves(t, pool)
		pool.Expect([]shard.Range{low.within})
		group := pool.NewFactory(shard.Everything(), nil)
		group.readingSlim(configMaps, s, &v1.ConfigMap{})
		group.StartWithContext(t.Context())
		ranged := low.reading(configMaps, s, &v1.ConfigMap{})
		low.StartWithContext(t.Context())
		settle()
		s.asked()
		group.Shutdown()
		settle()
		s.Modify(withData(inLow, "2"))
		settle()
		if everything, own, watches := s.asked(); everything+own > 0 || watches != 1 {
			t.Errorf("%d lists of everything, %d of the range and %d watches of it, want one watch", everything, own, watches)
		}
		if got := holding(t, ranged, inLow).Data["v"]; got != "2" {
			t.Errorf("the range holds version %q", got)
		}
	})
}

// withData returns the ConfigMap of a namespace with some data, which slim copies lack.
func withData(namespace, data string) *v1.ConfigMap {
	c := newConfigMap(namespace, "one")
	c.Data = map[string]string{"v": data}
	return c
}

// paged lists two ConfigMaps on a page each, and calls between once it has been asked for the first
// one. It implements reader.
type paged struct {
	items   [2]*v1.ConfigMap
	between func()
}

// List implements reader.
func (p *paged) List(_ context.Context, o metav1.ListOptions) (kruntime.Object, error) {
	list := &v1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	switch {
	case o.ShardSelector != "":
		list.Items = []v1.ConfigMap{*p.items[0], *p.items[1]}
	case o.Continue == "":
		list.Items, list.Continue = []v1.ConfigMap{*p.items[0]}, "1"
		p.between()
	default:
		list.Items = []v1.ConfigMap{*p.items[1]}
	}
	return list, nil
}

// Watch implements reader.
func (p *paged) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if streams(o) {
		return nil, errors.New("no streaming lists")
	}
	return watch.NewFake(), nil
}

// TestExpectedBetweenPages checks that a range does not follow if it was expected only after the
// first page of a list, of which slim copies had been made.
func TestExpectedBetweenPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inLow, inHigh := namesInHalves(t)
		pool := newSlimPool(t, &apiServer{shards: true})
		low, high := halves(t, pool)
		p := &paged{items: [2]*v1.ConfigMap{withData(inHigh, "1"), withData(inLow, "1")}}
		p.between = func() { pool.Expect([]shard.Range{low.within, high.within}) }
		pool.Expect([]shard.Range{low.within})
		group := pool.NewFactory(shard.Everything(), nil)
		defer group.Shutdown()
		slim := group.readingSlim(configMaps, p, &v1.ConfigMap{})
		group.StartWithContext(t.Context())
		settle()
		if len(holding(t, slim, inHigh).Data) > 0 || len(holding(t, slim, inLow).Data) == 0 {
			t.Error("not just what was expected from the first page on is whole")
		}
		ranged := high.reading(configMaps, p, &v1.ConfigMap{})
		high.StartWithContext(t.Context())
		settle()
		if len(holding(t, ranged, inHigh).Data) == 0 {
			t.Error("a range holds a slim copy")
		}
	})
}

// settle waits for longer than informers wait for each other.
func settle() {
	time.Sleep(2 * time.Minute) // virtual
	synctest.Wait()
}

// holding returns the only object that an informer holds in a namespace.
func holding(t *testing.T, i cache.SharedIndexInformer, namespace string) *v1.ConfigMap {
	t.Helper()
	var found []*v1.ConfigMap
	for _, obj := range i.GetStore().List() {
		if c := obj.(*v1.ConfigMap); c.Namespace == namespace {
			found = append(found, c)
		}
	}
	if len(found) != 1 {
		t.Fatalf("there are %d objects in %s", len(found), namespace)
	}
	return found[0]
}

// copiesWorld has what fills an informer of slim copies, and the informer of a range.
type copiesWorld struct{ slim, ranged *sink }

// list begins a list of the slim copies, and returns what becomes of an object in it.
func (w copiesWorld) list(t *testing.T, obj any) any {
	t.Helper()
	take, err := w.slim.i.beginList(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	taken, _ := take(obj)
	return taken
}

// TestWhatARangeHoldsIsTakenOver has a range join an informer of slim copies, which another
// informer follows, and checks when it may follow: never if it has missed something, or would go
// back in time.
func TestWhatARangeHoldsIsTakenOver(t *testing.T) {
	at := func(version string) *v1.ConfigMap {
		c := withData("ns", version)
		c.ResourceVersion = version
		return c
	}
	for name, test := range map[string]struct {
		before, after func(w copiesWorld) error // the range joins in between
		follows       bool
		version       string // that the range holds in the end
	}{
		"nothing has changed": {follows: true, version: "3"},
		"the range is ahead": {
			after:   func(w copiesWorld) error { return w.ranged.Bookmark("9") },
			version: "3",
		},
		"the range has missed a change": {
			before:  func(w copiesWorld) error { return w.slim.Update(at("7")) },
			version: "3",
		},
		"the range has heard of it, too": {
			before:  func(w copiesWorld) error { return errors.Join(w.slim.Update(at("7")), w.ranged.Update(at("7"))) },
			follows: true, version: "7",
		},
		"it has changed since the range joined": {
			after:   func(w copiesWorld) error { return w.slim.Update(at("8")) },
			follows: true, version: "8",
		},
		"it has been listed since the range joined": {
			after: func(w copiesWorld) error {
				return w.slim.Replace([]any{w.list(t, at("8"))}, "8")
			},
			follows: true, version: "8",
		},
		"the range came during a list": {
			before:  func(w copiesWorld) error { w.list(t, at("3")); return nil },
			version: "3",
		},
		"it has gone since the range joined": {
			after:   func(w copiesWorld) error { return w.slim.Delete(at("8")) },
			follows: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			none := func() []shard.Range { return nil }
			slim := newInformer(config{example: &v1.ConfigMap{}, copies: &copies{slim: slimConfigMap, expected: none, joining: map[*sink]string{}}})
			ranged, other := newInformer(config{example: &v1.ConfigMap{}}), newInformer(config{example: &v1.ConfigMap{}})
			w := copiesWorld{&sink{i: slim}, &sink{i: ranged}}
			listed := w.list(t, at("3"))
			steps := []func(w copiesWorld) error{
				func(w copiesWorld) error {
					return errors.Join(w.slim.Replace([]any{listed}, "6"), w.ranged.Replace([]any{at("3")}, "5"))
				},
				test.before, test.after,
			}
			into := &sink{i: ranged, stored: true, within: shard.Range{Start: 1}}
			for n, step := range steps {
				if step != nil {
					if err := step(w); err != nil {
						t.Fatal(err)
					}
				}
				if n == 0 && !slim.follow(&sink{i: other, stored: true}) {
					t.Fatal("slim copies cannot be followed")
				}
				if n == 1 {
					slim.join(into)
				}
			}
			if could, did := slim.admits(into), slim.follow(into); could != test.follows || did != test.follows {
				t.Fatalf("follows: %t, said so before: %t; want %t", did, could, test.follows)
			}
			held := func(i *Informer) *v1.ConfigMap {
				obj, _, err := i.GetStore().GetByKey("ns/one")
				if err != nil {
					t.Fatal(err)
				}
				c, _ := obj.(*v1.ConfigMap)
				return c
			}
			mine := held(ranged)
			if got := resourceVersionOf(mine); got != test.version || mine != nil && len(mine.Data) == 0 {
				t.Errorf("the range holds version %q, whole: %t; want %q", got, mine != nil && len(mine.Data) > 0, test.version)
			}
			if shared := held(slim) == mine && held(other) == mine; shared != test.follows {
				t.Errorf("all hold the same object: %t", shared)
			}
			if got, want := slim.GetIndexer().LastStoreSyncResourceVersion(), slim.LastSyncResourceVersion(); got != want {
				t.Errorf("the store says that it is at %s, and is at %s", got, want)
			}
			slim.unfollow(into)
			if c := held(slim); c != nil && len(c.Data) > 0 {
				t.Error("it stays whole when the range has left")
			}
		})
	}
}

// resourceVersionOf returns the version of an object; empty for none.
func resourceVersionOf(c *v1.ConfigMap) string {
	if c == nil {
		return ""
	}
	return c.ResourceVersion
}

// TestWhatIsWhole checks which objects an informer of slim copies holds whole, and which ranges may
// follow it, when what is expected changes at awkward moments.
func TestWhatIsWhole(t *testing.T) {
	everywhere := shard.Range{Start: 1} // all of the namespaces here
	failing := errors.New("a test fails")
	heavy := func() *v1.ConfigMap {
		c := withData("ns", "3")
		c.ResourceVersion = "3"
		return c
	}
	type world struct {
		copiesWorld
		expected  []shard.Range
		into      *sink
		transform error
	}
	for name, test := range map[string]struct {
		expected []shard.Range // at the first list
		run      func(t *testing.T, w *world)
		whole    bool // in the end
		follows  bool
	}{
		"expected":     {expected: []shard.Range{everywhere}, whole: true, follows: true},
		"not expected": {},
		"a list has begun after it was expected no more": {
			expected: []shard.Range{everywhere}, whole: true,
			run: func(t *testing.T, w *world) {
				w.expected = nil // what is held has not been reduced yet
				w.list(t, heavy())
			},
		},
		"a list that could not be stored": {
			run: func(t *testing.T, w *world) {
				w.expected, w.transform = []shard.Range{everywhere}, failing
				if err := w.slim.Replace([]any{w.list(t, heavy())}, "7"); !errors.Is(err, failing) {
					t.Error(err)
				}
			},
		},
		"a list of a reading that has ended": {
			run: func(t *testing.T, w *world) {
				w.list(t, heavy()) // its slim copies are stored below
				w.expected = []shard.Range{everywhere}
				ended, end := context.WithCancel(t.Context())
				end()
				if _, err := w.slim.i.beginList(ended, true); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if err := w.slim.Replace([]any{slimConfigMap(heavy())}, "7"); err != nil {
					t.Error(err)
				}
			},
		},
		"it joined, was expected, and has left": {
			run: func(t *testing.T, w *world) {
				w.slim.i.join(w.into)
				changed := heavy()
				changed.ResourceVersion = "8"
				if err := w.slim.Update(changed); err != nil {
					t.Error(err)
				}
				w.expected = []shard.Range{everywhere}
				w.slim.i.unfollow(w.into)
			},
		},
		"a range leaves what follows whole objects": {
			expected: []shard.Range{everywhere}, whole: true,
			run: func(t *testing.T, w *world) {
				if err := (&sink{i: w.slim.i, stored: true}).replace([]any{heavy()}, "7"); err != nil {
					t.Error(err)
				}
				w.expected = nil
				w.slim.i.unfollow(w.into)
			},
		},
		"the whole objects have gone": {
			run: func(t *testing.T, w *world) {
				if err := (&sink{i: w.slim.i, stored: true}).replace([]any{heavy()}, "7"); err != nil {
					t.Error(err)
				}
				w.slim.shed()
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{expected: test.expected}
			slim := newInformer(config{
				example: &v1.ConfigMap{}, shed: slimConfigMap,
				copies:    &copies{slim: slimConfigMap, expected: func() []shard.Range { return w.expected }, joining: map[*sink]string{}},
				transform: func(obj any) (any, error) { return obj, w.transform },
			})
			ranged := newInformer(config{example: &v1.ConfigMap{}})
			w.copiesWorld = copiesWorld{&sink{i: slim}, &sink{i: ranged}}
			w.into = &sink{i: ranged, stored: true, within: everywhere}
			if err := w.slim.Replace([]any{w.list(t, heavy())}, "6"); err != nil {
				t.Fatal(err)
			}
			if test.run != nil {
				test.run(t, w)
			}
			if follows := slim.admits(w.into); follows != test.follows {
				t.Errorf("the range may follow: %t, want %t", follows, test.follows)
			}
			for _, obj := range slim.GetStore().List() {
				if whole := len(obj.(*v1.ConfigMap).Data) > 0; whole != test.whole {
					t.Errorf("%s is whole: %t, want %t", name, whole, test.whole)
				}
			}
		})
	}
}
